"""Scores of a test set by sentence length: short and long sentences often have different errors.

    bounds 10, 20, …  ──▶ buckets 1-10, 11-20, …, 51+ of reference words ──▶ lines, scores and length ratio of each

The buckets count words of the first reference, so they are the same for every system and metric. Words are separated by
spaces; if a metric reads trees, they are the words of the trees (`Metric.words`). The length ratio is the hypothesis'
words divided by the reference's. Every line is in one bucket.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..errors import UsageError, shown
from .metrics import Score, Scorer

BOUNDS = (10, 20, 30, 40, 50)
"""Longest sentence of each bucket except the last, in words."""


@dataclass(frozen=True)
class Bucket:
    """The lines whose reference has `shortest` to `longest` words; `longest` None: no limit."""

    shortest: int
    longest: int | None
    lines: tuple[int, ...]
    """Counted from 0."""

    @property
    def name(self) -> str:
        if self.longest is None:
            return f"{self.shortest}+"
        return f"{self.shortest}-{self.longest}" if self.longest > self.shortest else str(self.shortest)


@dataclass(frozen=True)
class BucketScores:
    """The results of one system on one bucket."""

    bucket: Bucket
    ratio: float | None
    """Words of the hypothesis divided by words of the reference; None if the reference has no words."""
    scores: dict[str, Score]
    """Metric → score; empty if the bucket is empty."""

    def as_dict(self) -> dict[str, Any]:
        """Return the part for JSON: `words`, `shortest`, `longest`, `lines`, `ratio`, `scores` (metric -> number)."""
        bucket = self.bucket
        return {
            "words": bucket.name,
            "shortest": bucket.shortest,
            "longest": bucket.longest,
            "lines": len(bucket.lines),
            "ratio": self.ratio,
            "scores": {metric: score.value for metric, score in self.scores.items()},
        }


NUMBERS = re.compile(r"\s*\d{1,12}\s*(?:,\s*\d{1,12}\s*)*", re.ASCII)
"""Bounds as a user gives them."""


def parse_bounds(text: str) -> tuple[int, ...]:
    """Return the bounds of a command line, "10,20,30". Raises UsageError."""
    bounds = tuple(map(int, text.split(","))) if NUMBERS.fullmatch(text) else ()
    if not bounds or any(a >= b for a, b in pairwise((0, *bounds))):
        raise UsageError(
            f"the lengths {shown(text)} are no bounds: expected numbers of words, each larger than the one "
            f"before, such as {','.join(map(str, BOUNDS))}."
        )
    return bounds


def buckets(words: Sequence[int], bounds: Sequence[int] = BOUNDS) -> list[Bucket]:
    """Return the lines by their number of words: a bucket per range, and one for 0 words if there are such lines."""
    lows = (0, *bounds)
    lines: list[list[int]] = [[] for _ in range(len(lows) + 1)]
    for line, count in enumerate(words):
        lines[bisect_left(lows, count)].append(line)
    shortest, longest = (0, *(low + 1 for low in lows)), (*lows, None)
    ranges = [Bucket(low, high, tuple(own)) for low, high, own in zip(shortest, longest, lines, strict=True)]
    return ranges if ranges[0].lines else ranges[1:]


def by_length(
    hypotheses: Sequence[str], reference: Sequence[str], scorers: Mapping[str, Scorer], bounds: Sequence[int] = BOUNDS
) -> list[BucketScores]:
    """Return the results for each bucket of `reference` lines, with the scores of every metric on these lines."""
    parts = []
    ref_words, hyp_words = (
        [min(scorer.metric.words(line) for scorer in scorers.values()) for line in lines]
        for lines in (reference, hypotheses)
    )
    for bucket in buckets(ref_words, bounds):
        total = sum(ref_words[line] for line in bucket.lines)
        ratio = sum(hyp_words[line] for line in bucket.lines) / total if total else None
        scored = scorers.items() if bucket.lines else ()
        scores = {metric: scorer.score(hypotheses, bucket.lines) for metric, scorer in scored}
        parts.append(BucketScores(bucket, ratio, scores))
    return parts
