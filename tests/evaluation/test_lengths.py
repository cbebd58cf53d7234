"""A test set by sentence length: which line goes where, and that the parts are scored as if they stood alone."""

import pytest

from nmt_cli.errors import UsageError
from nmt_cli.evaluation.lengths import BOUNDS, buckets, by_length, parse_bounds
from nmt_cli.evaluation.metrics import DEFAULT_METRICS, Scorer, compute


def words(count: int, word: str = "w") -> str:
    return " ".join(f"{word}{k}" for k in range(count))


def test_bounds_belong_to_the_bucket_below() -> None:
    lengths = [1, 10, 11, 20, 21, 50, 51, 400]
    assert [(bucket.name, bucket.lines) for bucket in buckets(lengths)] == [
        ("1-10", (0, 1)),
        ("11-20", (2, 3)),
        ("21-30", (4,)),
        ("31-40", ()),
        ("41-50", (5,)),
        ("51+", (6, 7)),
    ]
    assert [(bucket.name, bucket.shortest, bucket.longest) for bucket in buckets(lengths, [1, 2, 5])] == [
        ("1", 1, 1),
        ("2", 2, 2),
        ("3-5", 3, 5),
        ("6+", 6, None),
    ]


def test_every_line_is_in_one_bucket_and_lines_without_words_have_one_where_there_are_any() -> None:
    lines = [line for bucket in buckets([count % 67 for count in range(1, 300)]) for line in bucket.lines]
    assert sorted(lines) == list(range(299))
    found = [(bucket.name, bucket.lines) for bucket in buckets([0, 3, 0], [5])]
    assert found == [("0", (0, 2)), ("1-5", (1,)), ("6+", ())]
    assert "0" not in [bucket.name for bucket in buckets([3])]


def test_each_bucket_is_scored_as_if_it_stood_alone() -> None:
    reference = [words(5 + k % 30) for k in range(60)]
    other = [words(6 + k % 30) for k in range(60)]
    hypotheses = [line.replace("w3 ", "x ") + " end" * (k % 2) for k, line in enumerate(reference)]
    scorers = {metric: Scorer(metric, [reference, other]) for metric in DEFAULT_METRICS}
    parts = by_length(hypotheses, reference, scorers)
    assert [len(part.bucket.lines) for part in parts] == [12, 20, 20, 8, 0, 0]
    for part in parts[:4]:
        own, *streams = ([stream[k] for k in part.bucket.lines] for stream in (hypotheses, reference, other))
        assert part.scores == {metric: compute(metric, own, streams) for metric in DEFAULT_METRICS}
        assert part.ratio == sum(len(line.split()) for line in own) / sum(len(line.split()) for line in streams[0])
        assert part.ratio > 1
    assert [(part.ratio, part.scores) for part in parts[4:]] == [(None, {}), (None, {})]


def test_a_part_for_json_and_bounds_as_they_are_written() -> None:
    reference = [words(3)] * 2
    part, rest = by_length([words(3), words(6)], reference, {"ter": Scorer("ter", [reference])}, [4])
    common = {"words": "1-4", "shortest": 1, "longest": 4, "lines": 2}
    assert part.as_dict() == {**common, "ratio": 1.5, "scores": {"ter": 50.0}}
    assert rest.as_dict() == {"words": "5+", "shortest": 5, "longest": None, "lines": 0, "ratio": None, "scores": {}}
    assert parse_bounds("10,20,30,40,50") == BOUNDS
    assert parse_bounds(" 7 ") == (7,)


@pytest.mark.parametrize("text", ["", "a", "10,", "0,10", "10,10", "-5", "1.5", "²"])
def test_bounds_that_are_none_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="each larger than the one before, such as 10,20,30,40,50"):
        parse_bounds(text)
