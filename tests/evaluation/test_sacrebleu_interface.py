"""sacrebleu's private interfaces give its public scores."""

from __future__ import annotations

import pytest
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt_cli.evaluation import sacrebleu_interface
from nmt_cli.evaluation.metrics import compute


@pytest.mark.parametrize(("metric", "theirs"), [("bleu", BLEU), ("chrf", CHRF), ("ter", TER)])
def test_the_private_methods_of_the_installed_version_give_its_public_scores(metric: str, theirs: type[Metric]) -> None:
    hypotheses, references = ["the cat sat on the mat", "a dog barks"], [["the cat lay on the mat", "the dog barks"]]
    expected = theirs().corpus_score(hypotheses, references)
    found = sacrebleu_interface.SacrebleuMetric(theirs())
    rows = found.rows(hypotheses, references)
    sums = [sum(column) for column in zip(*rows, strict=True)]
    for one in (found.score_of_sums(sums), compute(metric, hypotheses, references)):
        assert (one.name, one.value) == (expected.name, expected.score)
