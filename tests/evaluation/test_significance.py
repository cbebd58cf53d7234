"""Paired bootstrap and approximate randomisation: the verdicts that must come out, and that they come out alike every time."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation import significance
from nmt_cli.evaluation.metric import MetricSpec, SentenceStatisticsMetric
from nmt_cli.evaluation.metrics import DEFAULT_METRICS, Scorer, compute, spec
from nmt_cli.evaluation.significance import FEW, TESTS, compare
from nmt_cli.registry import METRICS

WORDS = ["the", "small", "dog", "often", "sees", "a", "large", "cat", "near", "our", "old", "house"]
REFERENCE = [" ".join(WORDS[(i * j) % 12] for j in range(1, 9)) for i in range(1, 61)]
GOOD = [line.replace("dog", "hound") for line in REFERENCE]
BAD = [" ".join(reversed(line.split())) for line in REFERENCE]


def scorers(*metrics: str) -> dict[str, Scorer]:
    return {metric: Scorer(metric, [REFERENCE]) for metric in metrics}


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
            entries = {"bootstrap": "bs:200 seed:12345", "randomisation": "bs:1000 seed:12345 randomisation:200"}[test]
            assert set(entries.split()) <= set(row.score.signature.split("|"))
        assert (good.score.value > bad.score.value) == spec(metric).higher_is_better


@pytest.mark.parametrize("test", TESTS)
def test_equal_systems_do_not_differ(test: str) -> None:
    systems = [("a", GOOD), ("b", list(GOOD)), ("c", [line.replace(" ", "  ") for line in GOOD])]  # the same tokens
    for rows in compare(systems, scorers(*DEFAULT_METRICS), test=test, samples=50).values():
        assert [row.p_value for row in rows] == [None, 1.0, 1.0]


class Mean(SentenceStatisticsMetric):
    """The mean of the hypotheses, which are decimal numbers: their sums depend on their order in the last bits."""

    def __init__(self) -> None:
        super().__init__("Mean", version="1")

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[float]]:
        return [[float(hypothesis), 1] for hypothesis in hypotheses]

    def value(self, sums: Sequence[float]) -> float:
        return sums[0] / sums[1]


MEAN = MetricSpec(lambda options: Mean())
SEVEN = REFERENCE[:7]
"""Seven lines; some of the systems below are equal in some lines, or have equal statistics in other lines."""
PAIRS = {
    "each is better in some lines": (
        [line.replace("dog", "hound") for line in SEVEN[:4]] + SEVEN[4:],
        SEVEN[:3] + [line.replace("cat", "lion").replace("our", "the") for line in SEVEN[3:]],
    ),
    "one line differs": (SEVEN, [*SEVEN[:6], "something else"]),
    "the order of words": (SEVEN, [" ".join(reversed(line.split())) for line in SEVEN]),
    "exchanged lines": ([*SEVEN[:3], *GOOD[3:7]], [*GOOD[:4], *SEVEN[4:]]),
    "nothing differs": (GOOD[:7], list(GOOD[:7])),
}
NUMBERS = (["0.1", "0.2", "0.3", "0.7", "0.6", "0.1", "0.4"], ["0.3", "0.1", "0.2", "0.6", "0.7", "0.3", "0.4"])


def share_of_all_exchanges(scorer: Scorer, first: list[str], second: list[str]) -> float:
    """The exact p-value: exchange the texts in every way, and score them."""
    pairs = list(zip(first, second, strict=True))
    observed = abs(scorer.score(first).value - scorer.score(second).value)
    differences = []
    for exchange in itertools.product((0, 1), repeat=len(pairs)):
        sides = [[pair[index ^ side] for pair, index in zip(pairs, exchange, strict=True)] for side in (0, 1)]
        differences.append(abs(scorer.score(sides[0]).value - scorer.score(sides[1]).value))
    return sum(difference >= observed - 1e-7 for difference in differences) / len(differences)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("metric", [*DEFAULT_METRICS, "mean"])
def test_randomisation_gives_the_p_of_all_exchanges(metric: str, pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "mean", f"{__name__}:MEAN")
    first, second = PAIRS[pair] if metric != "mean" else NUMBERS
    scorer = Scorer(metric, [SEVEN, GOOD[:7]] if pair == "exchanged lines" else [SEVEN])
    exact = share_of_all_exchanges(scorer, first, second)
    row = compare([("a", first), ("b", second)], {metric: scorer}, test="randomisation", samples=4999)[metric][1]
    assert row.p_value == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 4999) ** 0.5 + 1e-9)
    assert exact >= 2.0 ** (1 - (row.differing or 1))


def test_the_bootstrap_is_sacrebleus() -> None:
    from sacrebleu.significance import PairedTest

    mixed = [bad if number % 3 else good for number, (good, bad) in enumerate(zip(GOOD, BAD, strict=True))]
    near = [line if number % 7 else mixed[number].replace("cat", "lion") for number, line in enumerate(mixed)]
    systems: list[tuple[str, Sequence[str]]] = [("mixed", mixed), ("near", near), ("bad", BAD)]
    references = [REFERENCE, GOOD[::-1]]
    theirs: Any = PairedTest(systems, {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}, references, "bs", 300)()[1]
    ours = compare(systems, {name: Scorer(name, references) for name in DEFAULT_METRICS}, samples=300)
    for name, rows in ours.items():
        for row, expected in zip(rows, theirs[rows[0].score.name], strict=True):
            assert row.mean == pytest.approx(expected.mean, rel=1e-6)
            assert row.ci == pytest.approx(expected.ci, rel=1e-5)
            assert row.p_value == expected.p_value, name
    assert 0.05 < (ours["chrf"][1].p_value or 0) < 0.95


def test_the_number_of_samples_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    systems, metrics = [("good", GOOD), ("bad", BAD)], scorers("bleu", "ter")
    once = compare(systems, metrics, samples=70)
    monkeypatch.setattr(significance, "CHUNK", 7 * 64)
    assert compare(systems, metrics, samples=70) == once
    assert compare(systems, metrics, test="randomisation", samples=70)["bleu"][1].p_value == pytest.approx(0, abs=0.1)


def test_few_lines_that_differ_are_remarked_on() -> None:
    def remarks(count: int, test: str = "bootstrap", p_value: float | None = None) -> str | None:
        second = [*BAD[:count], *GOOD[count:]]
        row = compare([("a", GOOD), ("b", second)], scorers("chrf"), test=test, samples=50)["chrf"][1]
        assert row.differing == row.as_dict()["differing_lines"] == count
        return significance.remark("'a'", [replace(row, p_value=p_value or row.p_value)], len(GOOD), test)

    assert [count for count in range(9) if remarks(count, p_value=0.0001)] == [1, 2, 3, 4, 5]
    assert 2 * 0.5**FEW < 0.05 <= 2 * 0.5 ** (FEW - 1)
    assert remarks(3, p_value=0.25) is None  # no less than random exchanges can give
    assert remarks(3, "randomisation") is None
    for part in ("'a'", "chrF2", "3 of 60", "0.25 or more", "--significance randomisation"):
        assert part in (remarks(3) or "")
    assert "random exchanges give 1)" in (remarks(1) or "")


def test_the_seed_is_fixed_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(seed: int | None = None) -> Any:
        options: dict[str, Any] = {} if seed is None else {"seed": seed}
        several = compare([("good", GOOD), ("bad", BAD)], scorers("bleu", "ter"), samples=50, **options)
        return several, compare([("bad", BAD)], scorers("bleu"), samples=50, **options)

    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    once = of()
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert of() == once
    assert os.environ["SACREBLEU_SEED"] == "none"
    assert [one != other for one, other in zip(of(7), once, strict=True)] == [True, True]


def test_misuse_is_named() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0 and 1000"):
        compare([("a", GOOD), ("b", BAD)], scorers("bleu"), seed=0)
    with pytest.raises(DataError, match="59 hypothesis lines cannot be scored against 60 lines"):
        compare([("a", GOOD), ("b", BAD[:-1])], scorers("bleu"))
