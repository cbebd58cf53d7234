"""Tests of significance between systems, and confidence intervals of a score.

    compare(systems, {"bleu": Scorer(…)})      one row per system: score, mean, 95 % confidence interval, p-value
    confidence(name, hypotheses, Scorer(…))    the same for one system, without p-value

Paired bootstrap resampling (Koehn, 2004) samples the lines of the test set with replacement, the same lines for every system.
Approximate randomisation (Riezler and Maxwell, 2005) exchanges the two systems' outputs at random, line by line. In both
tests the p-value is the probability of a difference as large as the observed one by chance. sacrebleu computes both. The seed
is fixed, so the same input always gives the same table. Memory: about lines × samples × 80 bytes (chrF).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from . import sacrebleu_interface
from .metric import check_known
from .metrics import Score, Scorer

SEED = 12345
"""sacrebleu's own default. It is a part of the signature."""
BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Resampling:
    """A test of significance: sacrebleu's name for it, and its default number of samples."""

    key: str
    samples: int


TESTS: dict[str, Resampling] = {BOOTSTRAP: Resampling("bs", 1000), "randomisation": Resampling("ar", 10_000)}
SAMPLES = TESTS[BOOTSTRAP].samples
"""Number of resampled test sets for a confidence interval, with any test."""


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
    """Two-sided, against the first system; None for the first itself."""

    def as_dict(self) -> dict[str, Any]:
        """Return `Score.as_dict` with `mean`, `ci95` and `p_value`."""
        return {**self.score.as_dict(), "mean": self.mean, "ci95": self.ci, "p_value": self.p_value}


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    scorers: Mapping[str, Scorer],
    *,
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = SEED,
) -> dict[str, list[Row]]:
    """Score every (name, hypotheses) and test it against the first. Return metric → one row per system, in order.

    `samples`: resampled test sets, or random exchanges; by default the test's own number. Raises UsageError.
    """
    if len(systems) < 2:
        raise UsageError(f"a comparison needs at least two systems, got {len(systems)}.")
    check_known("test of significance", test, TESTS)
    samples = TESTS[test].samples if samples is None else samples
    _check_numbers(samples, seed)

    for scorer in scorers.values():
        for _, hypotheses in systems:
            scorer.rows(hypotheses)  # lines that are not parallel are an error before the long work
    interval_samples = -1 if test == BOOTSTRAP else SAMPLES  # the bootstrap's own samples give its intervals
    metrics = {
        name: sacrebleu_interface.ResampledMetric(scorer.metric, len(scorer.references), scorer.rows)
        for name, scorer in scorers.items()
    }
    tables = sacrebleu_interface.paired_test(systems, metrics, TESTS[test].key, samples, interval_samples, seed)
    return {metric: _rows(scorer, systems, *tables[metric]) for metric, scorer in scorers.items()}


def _rows(
    scorer: Scorer, systems: Sequence[tuple[str, Sequence[str]]], name: str, signature: str, results: Sequence[Any]
) -> list[Row]:
    rows: list[Row] = []
    for (system, _), result in zip(systems, results, strict=True):
        score = scorer.named(name, float(result.score), signature)
        p_value = None if not rows else float(result.p_value)
        if rows and score.value == rows[0].score.value:
            # No difference was seen, so none can be significant. sacrebleu counts strictly greater differences only
            # and would give two equal outputs p = 1 / (samples + 1), the strongest it can.
            p_value = 1.0
        rows.append(Row(system, score, float(result.mean), float(result.ci), p_value))
    return rows


def confidence(
    system: str, hypotheses: Sequence[str], scorer: Scorer, *, samples: int = SAMPLES, seed: int = SEED
) -> Row:
    """Score one system. Return its row, with mean and 95 % confidence interval over `samples` resampled test sets."""
    _check_numbers(samples, seed)

    score, signature = scorer.score(hypotheses), scorer.metric.signature(len(scorer.references))
    mean, ci = sacrebleu_interface.bootstrap(scorer.rows(hypotheses), scorer.metric, samples, seed)
    signature.update("bs", samples)
    signature.update("seed", seed)
    return Row(system, scorer.named(score.name, score.value, signature.format(), score.details), mean, ci, None)


def _check_numbers(samples: int, seed: int) -> None:
    if seed < 1 or samples < 1:
        raise UsageError(f"resampling needs a seed and a number of samples of at least 1, got {seed} and {samples}.")
