"""The check of sacrebleu's private interfaces on first use: a version that has changed is named, and nothing is scored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU

from nmt_cli.errors import UsageError
from nmt_cli.evaluation import sacrebleu_interface
from nmt_cli.evaluation.metrics import compute

HYPOTHESES, REFERENCES = ["a b c d"], [["a b c e"]]
INSTALL = r"Install a version that nmt works with: pip install 'sacrebleu>=2\.4,<3'\."


@pytest.fixture(autouse=True)
def first_use() -> Iterator[None]:
    """Check sacrebleu anew, before and after the test."""
    sacrebleu_interface.check_metrics.cache_clear()
    yield
    sacrebleu_interface.check_metrics.cache_clear()


@pytest.mark.parametrize("installed", ["2.3.1", "1.5.0", "3.0.0", "3.1.0rc1"])
def test_an_unknown_version_is_refused(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacrebleu_interface, "version", lambda _: installed)
    with pytest.raises(UsageError, match=rf"^sacrebleu {installed} is a version that nmt does not know\. {INSTALL}$"):
        compute("bleu", HYPOTHESES, REFERENCES)


@pytest.mark.parametrize("installed", ["2.4.0", "2.6.0", "2.12.3", "2.7.0.dev1"])
def test_known_versions_are_used(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacrebleu_interface, "version", lambda _: installed)
    assert compute("chrf", HYPOTHESES, REFERENCES).value > 0


@pytest.mark.parametrize(
    "method", ["_cache_references", "_extract_corpus_statistics", "_aggregate_and_compute", "_compute_score_from_stats"]
)
def test_a_method_that_takes_something_else_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLEU, method, lambda self: None)
    with pytest.raises(
        UsageError, match=rf"^sacrebleu [\d.]+ has changed its sentence statistics \(TypeError: .*\)\. {INSTALL}$"
    ):
        compute("bleu", HYPOTHESES, REFERENCES)


def test_statistics_that_give_another_score_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        BLEU, "corpus_score", lambda self, *_: sacrebleu.metrics.bleu.BLEUScore(50.0, [1], [2], [50.0], 1.0, 6, 6)
    )
    with pytest.raises(
        UsageError, match="has changed its sentence statistics: the results differ from those of `corpus_score`"
    ):
        compute("ter", HYPOTHESES, REFERENCES)
