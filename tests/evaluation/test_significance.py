"""Paired bootstrap: the verdicts that must come out, and that they come out alike every time."""

import os

import pytest

from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metrics import METRICS, compute
from nmt_cli.evaluation.significance import compare

WORDS = ["the", "small", "dog", "often", "sees", "a", "large", "cat", "near", "our", "old", "house"]
REFERENCE = [" ".join(WORDS[(i * j) % 12] for j in range(1, 9)) for i in range(1, 61)]
GOOD = [line.replace("dog", "hound") for line in REFERENCE]
BAD = [" ".join(reversed(line.split())) for line in REFERENCE]


def test_a_clear_difference_is_significant_under_every_metric() -> None:
    tables = compare([("good", GOOD), ("bad", BAD)], [REFERENCE], samples=200)
    assert list(tables) == list(METRICS)
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
            assert "|bs:200|seed:12345|" in row.score.signature
        assert (good.score.value > bad.score.value) == METRICS[metric].higher_is_better


def test_equal_systems_do_not_differ() -> None:
    spaced = [line.replace(" ", "  ") for line in GOOD]  # other text, same tokens
    for rows in compare([("a", GOOD), ("b", list(GOOD)), ("c", spaced)], [REFERENCE], samples=50).values():
        assert [row.p_value for row in rows] == [None, 1.0, 1.0]


def test_the_seed_is_fixed_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = [("good", GOOD), ("bad", BAD)]
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    once = compare(systems, [REFERENCE], ["bleu", "ter"], samples=50)
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert compare(systems, [REFERENCE], ["bleu", "ter"], samples=50) == once
    assert os.environ["SACREBLEU_SEED"] == "none"
    assert compare(systems, [REFERENCE], ["bleu", "ter"], samples=50, seed=7) != once


def test_options_reach_the_metric() -> None:
    rows = compare([("a", GOOD), ("b", [line.upper() for line in GOOD])], [REFERENCE], ["bleu"], lowercase=True, tokenize="char", samples=20)["bleu"]
    assert "case:lc|eff:no|tok:char" in rows[0].score.signature
    assert rows[0].score.value == rows[1].score.value


def test_a_row_for_json() -> None:
    row = compare([("a", GOOD), ("b", BAD)], [REFERENCE], ["chrf"], samples=20)["chrf"][1]
    keys = ["metric", "name", "score", "signature", "details", "higher_is_better", "mean", "ci95", "p_value"]
    assert list(row.as_dict()) == keys
    assert all(type(row.as_dict()[key]) is float for key in ("score", "mean", "ci95", "p_value"))


def test_misuse_is_named() -> None:
    with pytest.raises(UsageError, match="at least two systems, got 1"):
        compare([("a", GOOD)], [REFERENCE])
    with pytest.raises(UsageError, match="at least 1, got 0 and 1000"):
        compare([("a", GOOD), ("b", BAD)], [REFERENCE], seed=0)
    with pytest.raises(DataError, match="59 hypothesis lines cannot be scored against 60 lines"):
        compare([("a", GOOD), ("b", BAD[:-1])], [REFERENCE])
    with pytest.raises(UsageError, match="unknown metric 'rouge'"):
        compare([("a", GOOD), ("b", BAD)], [REFERENCE], ["rouge"])
