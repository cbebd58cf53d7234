"""Tests of significance between systems, and confidence intervals of a score.

    compare(systems, {"bleu": Scorer(…)}) ──▶ one row per system: score, mean, 95 % confidence interval, p-value

Paired bootstrap resampling (Koehn, 2004) samples the lines of the test set with replacement, the same lines for every
system. Approximate randomisation (Riezler and Maxwell, 2005) exchanges the two systems' outputs at random, line by
line. In both tests the p-value is the share of samples whose difference is at least as large as the observed one. So
systems without any difference have p = 1. Both need only sums of the rows of `Metric.rows`.

The seed is fixed, so the same input always gives the same table. The samples are drawn in chunks of bounded size.
Memory: the rows, and 50 MB. Legend: N lines, S samples, K numbers per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .metrics import Score, Scorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 12345
"""sacrebleu's own default. It is a part of the signature."""
BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Resampling:
    """A test of significance: its key in the signature, and its default number of samples."""

    key: str
    samples: int


TESTS: dict[str, Resampling] = {
    BOOTSTRAP: Resampling("bs", 1000),
    "randomisation": Resampling("randomisation", 10_000),  # sacrebleu's "ar" counts no ties: another p, another key
}
SAMPLES = TESTS[BOOTSTRAP].samples
"""Number of resampled test sets for a confidence interval, with any test."""
FEW = 6
"""With fewer lines that differ, no exchange of outputs can give p < 0.05: k lines have 2^k exchanges, and at least two
of them give the observed difference. Of six lines, 2 / 2^6 = 0.03."""
TIE = 1e-9
"""Two differences are equal if they differ by less than this share of the scores: sums in another order differ in their
last bits."""
CHUNK = 1 << 21
"""Maximum size of S x N numbers that are drawn at once."""


@dataclass(frozen=True)
class Row:
    """The score of one system under one metric, with its confidence interval."""

    system: str
    score: Score
    mean: float
    """Mean over the resampled test sets."""
    ci: float
    """Half the width of the 95 % confidence interval around `mean`."""
    p_value: float | None
    """Against the first system; None for the first itself."""
    differing: int | None = None
    """Number of lines whose statistics differ from those of the first system; None for the first itself."""

    def as_dict(self) -> dict[str, Any]:
        """Return `Score.as_dict` with `mean`, `ci95`, `p_value` and `differing_lines`."""
        values = {"mean": self.mean, "ci95": self.ci, "p_value": self.p_value, "differing_lines": self.differing}
        return {**self.score.as_dict(), **values}


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    scorers: Mapping[str, Scorer],
    *,
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = SEED,
) -> dict[str, list[Row]]:
    """Score every (name, hypotheses) and test it against the first. Return metric → one row per system, in order.

    A single system gets its mean and interval.

    `samples`: resampled test sets, or random exchanges; by default the test's own number. Raises UsageError.
    """
    samples = TESTS[test].samples if samples is None else samples
    if seed < 1 or samples < 1:
        raise UsageError(f"resampling needs a seed and a number of samples of at least 1, got {seed} and {samples}.")
    return {metric: _compared(systems, scorer, test, samples, seed) for metric, scorer in scorers.items()}


def _compared(
    systems: Sequence[tuple[str, Sequence[str]]], scorer: Scorer, test: str, samples: int, seed: int
) -> list[Row]:
    import numpy as np

    paired = test == BOOTSTRAP
    rows = [np.asarray(scorer.rows(hypotheses), dtype=np.float64) for _, hypotheses in systems]
    resampled = _resampled_scores(scorer, rows, samples if paired else SAMPLES, seed)
    entries = {"bs": SAMPLES, TESTS[test].key: samples, "seed": seed}
    result: list[Row] = []
    for (name, hypotheses), own, scores in zip(systems, rows, resampled, strict=True):
        score, p_value, differing = _score(scorer, hypotheses, entries), None, None
        if result:
            differing = int((own != rows[0]).any(axis=1).sum())
            differences = np.abs(scores - resampled[0]) if paired else _exchanged(scorer, rows[0], own, samples, seed)
            chance = differences - differences.mean() if paired else differences  # resampled around zero
            p_value = _p_value(chance, result[0].score.value, score.value)
        result.append(Row(name, score, *_interval(scores), p_value, differing))
    return result


def remark(first: str, rows: Sequence[Row], lines: int, test: str) -> str | None:
    """Return for a system which p-values of the bootstrap say nothing, because too few lines differ from the system
    `first`; or None.

    `rows`: the system's rows under all metrics. `lines`: N.
    """
    few = [
        f"{row.score.name} in {row.differing} of {lines:,} (p = {row.p_value:.4f}; random exchanges give "
        f"{least:.3g}{' or more' * (least < 1)})"
        for row in rows
        if row.p_value is not None
        and 0 < (row.differing or 0) < FEW
        and row.p_value < (least := 2.0 ** (1 - (row.differing or 0)))
    ]
    if test != BOOTSTRAP or not few:
        return None
    return (
        f"too few lines differ from {first}, so the bootstrap's p says nothing: {', '.join(few)}. Use "
        "--significance randomisation."
    )


def _resampled_scores(scorer: Scorer, rows: Sequence[NDArray[Any]], samples: int, seed: int) -> list[NDArray[Any]]:
    """Return the scores of resampled test sets, (S,), for each system's (N, K) rows.

    The sets are those of sacrebleu.
    """
    import numpy as np

    lines, generator = len(rows[0]), np.random.default_rng(seed)
    scores = []
    for size in _chunks(samples, lines):
        drawn = generator.choice(lines, size=(size, lines))
        counts = np.stack([np.bincount(numbers, minlength=lines) for numbers in drawn]).astype(np.float64)  # (size, N)
        scores.append([_values(scorer, counts @ each) for each in rows])
    return [np.concatenate(chunks) for chunks in zip(*scores, strict=True)]


def _exchanged(scorer: Scorer, first: NDArray[Any], second: NDArray[Any], samples: int, seed: int) -> NDArray[Any]:
    """Return the differences of two systems after random exchanges of their outputs, (S,).

    To exchange equal rows has no effect.
    """
    import numpy as np

    change = (second - first)[(second != first).any(axis=1)]
    generator = np.random.default_rng(seed)
    differences = []
    for size in _chunks(samples, len(change)):
        moved = generator.integers(2, size=(size, len(change)), dtype=bool).astype(np.float64) @ change  # (size, K)
        sides = _values(scorer, first.sum(axis=0) + moved), _values(scorer, second.sum(axis=0) - moved)
        differences.append(np.abs(sides[0] - sides[1]))
    return np.concatenate(differences)


def _chunks(samples: int, lines: int) -> Iterator[int]:
    """Yield numbers of samples whose sum is `samples`, each small enough for the memory."""
    most = max(CHUNK // max(lines, 1), 1)
    for start in range(0, samples, most):
        yield min(most, samples - start)


def _values(scorer: Scorer, sums: NDArray[Any]) -> NDArray[Any]:
    """Return the scores, (S,), of sums of rows, (S, K)."""
    import numpy as np

    return np.array([scorer.metric.score_of_sums(numbers).value for numbers in sums.tolist()])


def _p_value(differences: NDArray[Any], first: float, second: float) -> float:
    """Return the share of `differences` that are at least as large as the observed one, which counts as a sample."""
    tie = TIE * max(abs(first), abs(second))
    return (int((differences >= abs(first - second) - tie).sum()) + 1) / (len(differences) + 1)


def _interval(scores: NDArray[Any]) -> tuple[float, float]:
    """Return the mean, and half the width of the 95 % confidence interval, as sacrebleu computes them."""
    ordered, out = sorted(scores.tolist()), len(scores) // 40
    return float(scores.mean()), (ordered[-1 - out] - ordered[out]) / 2


def _score(scorer: Scorer, hypotheses: Sequence[str], entries: Mapping[str, int]) -> Score:
    """Return the score with `entries` in its signature."""
    score, signature = scorer.score(hypotheses), scorer.signature()
    for key, value in entries.items():
        signature.update(key, value)
    return replace(score, signature=signature.format())
