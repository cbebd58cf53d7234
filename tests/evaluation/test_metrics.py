"""Scores: their values and signatures, a metric of one's own, and what a scorer can be handed by mistake."""

import http.client
import shutil
import sys
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metric import MetricOptions, MetricSpec, SentenceStatisticsMetric
from nmt_cli.evaluation.metrics import DEFAULT_METRICS, Scorer, compute
from nmt_cli.registry import METRICS

HYPOTHESES = ["The cat sat on the mat .", "A dog barked loudly at the postman ."]
REFERENCES = ["The cat lay on the mat .", "The dog barked loudly at a postman ."]


def test_tokenizer_none_leaves_tokenised_text_alone(capfd: pytest.CaptureFixture[str]) -> None:
    hypotheses, reference = ["well-known facts ."] * 200, ["well-known things ."] * 200
    score = compute("bleu", hypotheses, [reference], MetricOptions(tokenize="none"))
    assert "tok:none" in score.signature
    assert "hyp_len = 600" in score.details  # three tokens per line
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sacrebleu keeps the models of its tokenizers: an empty folder."""
    for place in ("sacrebleu.utils", "sacrebleu.tokenizers.tokenizer_spm"):
        monkeypatch.setattr(f"{place}.SACREBLEU_DIR", str(tmp_path))
    return tmp_path / "models"


URL = "https://tinyurl.com/flores200sacrebleuspm"


@pytest.mark.parametrize(
    "fault", [urllib.error.HTTPError(URL, 404, "Not Found", http.client.HTTPMessage(), None), TimeoutError("timed out")]
)
def test_a_tokenizer_without_model_is_named(fault: Exception, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(said: str) -> None:
        with pytest.raises(DataError, match=said):
            compute("bleu", HYPOTHESES, [REFERENCES], MetricOptions(tokenize="flores200"))

    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=fault))
    refused(r"'flores200' cannot be used: .*docs/scoring\.md")
    shutil.rmtree(models)
    models.write_text("a file where the folder would be")
    refused(r"cannot be used: .*(File exists|Not a directory)")
    models.unlink()
    models.mkdir()
    (models / "flores200sacrebleuspm").write_bytes(b"cut")
    refused("cannot be used: ")


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (ImportError("No module named 'nothing'", name="nothing"), UsageError, "needs the package 'nothing'"),
        (PermissionError(13, "Permission denied", "/a/model"), DataError, "'/a/model': Permission denied"),
    ],
)
def test_another_fault_is_not_said_to_be_a_tokenizers(
    fault: Exception, kind: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SPEC", MetricSpec(Mock(side_effect=fault)))
    monkeypatch.setitem(METRICS, "exact", f"{__name__}:SPEC")
    with pytest.raises(kind, match=f"the metric 'exact' .*{said}") as error:
        compute("exact", HYPOTHESES, [REFERENCES])
    assert "tokenizer" not in str(error.value)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match=r"'ja-mecab'.*pip install sacrebleu\[ja\]"):
        compute("bleu", HYPOTHESES, [REFERENCES], MetricOptions(tokenize="ja-mecab"))


class Exact(SentenceStatisticsMetric):
    """The share of lines that are their reference, and in `details` how many."""

    calls = 0

    def __init__(self) -> None:
        super().__init__("Exact", version="1")

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[float]]:
        Exact.calls += 1
        return [[hypothesis in streams, 1] for hypothesis, *streams in zip(hypotheses, *references, strict=True)]

    def value(self, sums: Sequence[float]) -> float:
        return 100 * sums[0] / sums[1]

    def details(self, sums: Sequence[float]) -> str:
        return f"{sums[0]:.0f} of {sums[1]:.0f}"


SPEC = MetricSpec(lambda options: Exact(), decimals=1)


def test_a_metric_from_outside_is_scored_like_any_other_and_reads_lines_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "exact", f"{__name__}:SPEC")
    hypotheses = ["one", "two", "three", "four"]
    score = compute("exact", hypotheses, [["one", "2", "3", "four"]])
    assert (score.metric, score.name, score.value, score.details) == ("exact", "Exact", 50.0, "2 of 4")
    assert score.signature == "nrefs:1|version:1"
    scorer, Exact.calls = Scorer("exact", [["one", "2", "3", "four"], ["1", "two", "3", "4"]]), 0
    assert (scorer.score(hypotheses).value, scorer.score(hypotheses).signature) == (75.0, "nrefs:2|version:1")
    assert scorer.score(hypotheses, [1, 2]).details == "1 of 2"
    assert Exact.calls == 1
    assert scorer.score(["one", "2", "3", "4"], [1]).value == 100.0
    assert Exact.calls == 2  # once for each list
    monkeypatch.setitem(METRICS, "lost", "no_such_package.lost:SPEC")
    with pytest.raises(UsageError, match=r"metric 'lost' .* 'no_such_package\.lost:SPEC'"):
        compute("lost", HYPOTHESES, [REFERENCES])


@pytest.mark.parametrize("metric", DEFAULT_METRICS)
def test_a_scorer_gives_what_sacrebleu_gives_for_the_whole_and_for_a_part(metric: str) -> None:
    theirs: Any = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[metric]()
    streams = [REFERENCES, ["A cat lay on a mat .", "The dog barked at the postman ."]]
    scorer = Scorer(metric, streams)
    for hypotheses in (HYPOTHESES, HYPOTHESES[::-1], REFERENCES):
        assert scorer.score(hypotheses).value == theirs.corpus_score(hypotheses, streams).score
        part = theirs.corpus_score(hypotheses[1:], [stream[1:] for stream in streams])
        assert scorer.score(hypotheses, [1]).value == part.score
        assert scorer.score(hypotheses).signature == theirs.get_signature().format()
