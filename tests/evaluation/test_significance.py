"""Paired bootstrap and approximate randomisation: the verdicts that must come out, and that they come out alike every time."""

import os

import pytest

from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metric import MetricOptions, MetricSpec, SentenceStatisticsMetric
from nmt_cli.evaluation.metrics import DEFAULT_METRICS, Scorer, compute, spec
from nmt_cli.evaluation.significance import TESTS, compare, confidence
from nmt_cli.registry import METRICS

WORDS = ["the", "small", "dog", "often", "sees", "a", "large", "cat", "near", "our", "old", "house"]
REFERENCE = [" ".join(WORDS[(i * j) % 12] for j in range(1, 9)) for i in range(1, 61)]
GOOD = [line.replace("dog", "hound") for line in REFERENCE]
BAD = [" ".join(reversed(line.split())) for line in REFERENCE]


PLAIN = MetricOptions()


def scorers(*metrics: str, options: MetricOptions = PLAIN) -> dict[str, Scorer]:
    return {metric: Scorer(metric, [REFERENCE], options) for metric in metrics}


@pytest.mark.parametrize("test", TESTS)
def test_a_clear_difference_is_significant_under_every_metric(test: str) -> None:
    tables = compare([("good", GOOD), ("bad", BAD)], scorers(*DEFAULT_METRICS), test=test, samples=200)
    assert list(tables) == list(DEFAULT_METRICS)
    for metric, (good, bad) in tables.items():
        assert (good.system, bad.system) == ("good", "bad")
        assert good.p_value is None
        assert bad.p_value is not None
        assert bad.p_value < 0.05
        for row, hypotheses in ((good, GOOD), (bad, BAD)):
            alone = compute(metric, hypotheses, [REFERENCE])
            assert row.score.value == pytest.approx(alone.value)
            assert (row.score.metric, row.score.name) == (metric, alone.name)
            assert row.score.higher_is_better == alone.higher_is_better
            assert abs(row.mean - row.score.value) < row.ci
            assert {"bootstrap": "|bs:200|seed:12345|", "randomisation": "|bs:1000|ar:200|seed:12345|"}[
                test
            ] in row.score.signature
        assert (good.score.value > bad.score.value) == spec(metric).higher_is_better


@pytest.mark.parametrize("test", TESTS)
def test_equal_systems_do_not_differ(test: str) -> None:
    spaced = [line.replace(" ", "  ") for line in GOOD]  # other text, same tokens
    for rows in compare(
        [("a", GOOD), ("b", list(GOOD)), ("c", spaced)], scorers(*DEFAULT_METRICS), test=test, samples=50
    ).values():
        assert [row.p_value for row in rows] == [None, 1.0, 1.0]


class Right(SentenceStatisticsMetric):
    """The number of lines that are right, where a hypothesis is "1" or "0" and says so itself."""

    def __init__(self) -> None:
        super().__init__("Right", version="1")

    def rows(self, hypotheses, references):
        return [[int(hypothesis)] for hypothesis in hypotheses]

    def value(self, sums):
        return sums[0]


RIGHT = MetricSpec(lambda options: Right())


def test_randomisation_gives_the_p_value_of_all_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by hand. To exchange the two outputs of a line changes the difference only where one of them alone is right.

    1111111100 against 1100000000: six such lines, all the first's; the difference is |±1 ±1 ±1 ±1 ±1 ±1|, observed 6 and
    never larger. sacrebleu counts the trials that are strictly larger, and one: p = 1 / (trials + 1).
    1111111100 against 1100000001: seven such lines, six of them the first's; observed 5, larger only where all seven signs
    are alike, in 2 of 2^7 exchanges: p = 1/64.
    """
    monkeypatch.setitem(METRICS, "right", f"{__name__}:RIGHT")
    scorer = {"right": Scorer("right", [["-"] * 10])}
    first, second = list("1111111100"), list("1100000000")
    assert compare([("a", first), ("b", second)], scorer, test="randomisation", samples=999)["right"][
        1
    ].p_value == pytest.approx(1 / 1000)
    turned = [*second[:9], "1"]
    p_value = compare([("a", first), ("b", turned)], scorer, test="randomisation", samples=20_000)["right"][1].p_value
    assert p_value == pytest.approx(2 / 2**7, rel=0.15)


def test_the_seed_is_fixed_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    systems, metrics = [("good", GOOD), ("bad", BAD)], scorers("bleu", "ter")
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    once, alone = compare(systems, metrics, samples=50), confidence("bad", BAD, metrics["bleu"], samples=50)
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert (compare(systems, metrics, samples=50), confidence("bad", BAD, metrics["bleu"], samples=50)) == (once, alone)
    assert os.environ["SACREBLEU_SEED"] == "none"
    assert compare(systems, metrics, samples=50, seed=7) != once
    assert confidence("bad", BAD, metrics["bleu"], samples=50, seed=7) != alone


def test_the_confidence_of_one_system_is_sacrebleus() -> None:
    import sacrebleu

    theirs = sacrebleu.metrics.BLEU()
    score = theirs.corpus_score(BAD, [REFERENCE], n_bootstrap=300)  # seed 12345, its default and ours
    row = confidence("bad", BAD, Scorer("bleu", [REFERENCE]), samples=300)
    assert (row.system, row.score.value, row.p_value) == ("bad", score.score, None)
    assert (row.mean, row.ci) == (pytest.approx(score._mean), pytest.approx(score._ci))
    assert row.score.signature == theirs.get_signature().format()
    assert row.score.details == compute("bleu", BAD, [REFERENCE]).details


def test_samples_unless_told_are_sacrebleus() -> None:
    from sacrebleu.significance import PairedTest

    assert {test.key: test.samples for test in TESTS.values()} == PairedTest._DEFAULT_SAMPLES


def test_options_reach_the_metric() -> None:
    options = MetricOptions(lowercase=True, tokenize="char")
    rows = compare([("a", GOOD), ("b", [line.upper() for line in GOOD])], scorers("bleu", options=options), samples=20)[
        "bleu"
    ]
    assert "case:lc|eff:no|tok:char" in rows[0].score.signature
    assert rows[0].score.value == rows[1].score.value


def test_a_row_for_json() -> None:
    row = compare([("a", GOOD), ("b", BAD)], scorers("chrf"), samples=20)["chrf"][1]
    keys = ["metric", "name", "score", "signature", "details", "higher_is_better", "mean", "ci95", "p_value"]
    assert list(row.as_dict()) == keys
    assert all(type(row.as_dict()[key]) is float for key in ("score", "mean", "ci95", "p_value"))


def test_misuse_is_named() -> None:
    pair, bleu = [("a", GOOD), ("b", BAD)], scorers("bleu")
    with pytest.raises(UsageError, match="at least two systems, got 1"):
        compare(pair[:1], bleu)
    with pytest.raises(UsageError, match="at least 1, got 0 and 1000"):
        compare(pair, bleu, seed=0)
    with pytest.raises(UsageError, match="at least 1, got 7 and 0"):
        confidence("a", GOOD, bleu["bleu"], samples=0, seed=7)
    with pytest.raises(
        UsageError,
        match=r"unknown test of significance 'bootsrap': expected one of bootstrap, randomisation\. Did you mean 'bootstrap'\?",
    ):
        compare(pair, bleu, test="bootsrap")
    with pytest.raises(DataError, match="59 hypothesis lines cannot be scored against 60 lines"):
        compare([("a", GOOD), ("b", BAD[:-1])], bleu)
    with pytest.raises(UsageError, match="unknown metric 'rouge'"):
        Scorer("rouge", [REFERENCE])
