"""sacrebleu's private interfaces: an unknown version is refused, and the installed one gives its public scores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt_cli.errors import UsageError
from nmt_cli.evaluation import sacrebleu_interface
from nmt_cli.evaluation.metrics import compute

HYPOTHESES, REFERENCES = ["a b c d"], [["a b c e"]]
INSTALL = r"Install one that it works with: pip install 'sacrebleu>=2\.4,<3'\."


@pytest.fixture(autouse=True)
def first_use() -> Iterator[None]:
    """Check sacrebleu anew, before and after the test."""
    sacrebleu_interface.check_version.cache_clear()
    yield
    sacrebleu_interface.check_version.cache_clear()


@pytest.mark.parametrize("installed", ["2.3.1", "1.5.0", "3.0.0", "3.1.0rc1"])
def test_an_unknown_version_is_refused(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacrebleu_interface, "version", lambda _: installed)
    with pytest.raises(UsageError, match=rf"^sacrebleu {installed} is a version that nmt does not know\. {INSTALL}$"):
        compute("bleu", HYPOTHESES, REFERENCES)


@pytest.mark.parametrize("installed", ["2.4.0", "2.6.0", "2.12.3", "2.7.0.dev1"])
def test_known_versions_are_used(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacrebleu_interface, "version", lambda _: installed)
    assert compute("chrf", HYPOTHESES, REFERENCES).value > 0


@pytest.mark.parametrize(("metric", "theirs"), [("bleu", BLEU), ("chrf", CHRF), ("ter", TER)])
def test_the_private_methods_of_the_installed_version_give_its_public_scores(metric: str, theirs: type[Metric]) -> None:
    hypotheses, references = ["the cat sat on the mat", "a dog barks"], [["the cat lay on the mat", "the dog barks"]]
    expected = theirs().corpus_score(hypotheses, references)
    found = sacrebleu_interface.SacrebleuMetric(theirs())
    rows = found.rows(hypotheses, references)
    sums = [sum(column) for column in zip(*rows, strict=True)]
    for one in (found.score_of_sums(sums), compute(metric, hypotheses, references)):
        assert (one.name, one.value) == (expected.name, expected.score)
