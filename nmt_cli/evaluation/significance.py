"""Is a system better than the first one, or is it luck of the test set? And how sure is a score at all?

    compare(systems, {"bleu": Scorer(…)})      a row a system: score, mean, 95 % confidence interval, p-value
    confidence(hypotheses, Scorer(…))          the same for a system alone, without p-value

Paired bootstrap resampling (Koehn, 2004) draws the test set anew, with replacement and the same lines for every system.
Approximate randomisation (Riezler and Maxwell, 2005) exchanges the two systems' outputs at random, line by line. Either
way the p-value says how often a difference as large as the observed one would arise by chance. Both are sacrebleu's; the
seed is fixed, so the same input always gives the same table. Memory: about lines × samples × 80 bytes (chrF).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .metrics import Score, Scorer, check_known

SEED = 12345
"""sacrebleu's own default; it stands in the signature."""
BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Resampling:
    """A test of significance: sacrebleu's name of it, and how often it resamples unless told."""

    key: str
    samples: int


TESTS: dict[str, Resampling] = {BOOTSTRAP: Resampling("bs", 1000), "randomisation": Resampling("ar", 10_000)}
SAMPLES = TESTS[BOOTSTRAP].samples
"""Resampled test sets that a confidence interval is read from, whatever the test."""


@dataclass(frozen=True)
class Row:
    """One system under one metric: its score, and how sure that is."""

    system: str
    score: Score
    mean: float
    """Mean over the resampled test sets."""
    ci: float
    """Half the width of the 95 % confidence interval around `mean`."""
    p_value: float | None
    """Two-sided, against the first system; None for the first itself."""

    def as_dict(self) -> dict[str, Any]:
        """`Score.as_dict` with `mean`, `ci95` and `p_value`."""
        return {**self.score.as_dict(), "mean": self.mean, "ci95": self.ci, "p_value": self.p_value}


def compare(
    systems: Sequence[tuple[str, Sequence[str]]],
    scorers: Mapping[str, Scorer],
    *,
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = SEED,
) -> dict[str, list[Row]]:
    """Score every (name, hypotheses) and test it against the first; metric -> one row a system, in their order.

    `samples`: resampled test sets, or random exchanges; the test's own number unless given.
    """
    if len(systems) < 2:
        raise UsageError(f"a comparison needs at least two systems, got {len(systems)}.")
    check_known("test of significance", test, TESTS)
    samples = TESTS[test].samples if samples is None else samples
    _check_numbers(samples, seed)

    from sacrebleu.significance import PairedTest

    for scorer in scorers.values():
        for _, hypotheses in systems:
            scorer.rows(hypotheses)  # what is not parallel is told before the long work
    with _sacrebleu_seed(seed):
        # A Scorer is to sacrebleu a metric that has its references already.
        drawn = -1 if test == BOOTSTRAP else SAMPLES  # the bootstrap's own samples give its intervals
        paired = PairedTest(list(systems), scorers, None, test_type=TESTS[test].key, n_samples=samples, n_ar_confidence=drawn)  # type: ignore[arg-type]
        signatures, results = paired()
    names = [name for name in results if name != "System"]  # sacrebleu's own names, in the order of `scorers`
    return {
        metric: _rows(scorer, name, signatures[name].format(), systems, results[name])
        for (metric, scorer), name in zip(scorers.items(), names, strict=True)
    }


def _rows(scorer: Scorer, name: str, signature: str, systems: Sequence[tuple[str, Sequence[str]]], results: Sequence[Any]) -> list[Row]:
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


def confidence(system: str, hypotheses: Sequence[str], scorer: Scorer, *, samples: int = SAMPLES, seed: int = SEED) -> Row:
    """Score one system, with mean and 95 % confidence interval over `samples` test sets drawn anew."""
    _check_numbers(samples, seed)

    from sacrebleu.significance import _bootstrap_resample, estimate_ci

    score, signature = scorer.score(hypotheses), scorer.get_signature()
    with _sacrebleu_seed(seed):
        _, resampled = _bootstrap_resample(scorer.rows(hypotheses), scorer, samples)  # type: ignore[arg-type]
    import numpy as np

    mean, ci = estimate_ci(np.array([result.score for result in resampled]))
    signature.update("bs", samples)
    signature.update("seed", seed)
    return Row(system, scorer.named(score.name, score.value, signature.format(), score.details), float(mean), float(ci), None)


def _check_numbers(samples: int, seed: int) -> None:
    if seed < 1 or samples < 1:
        raise UsageError(f"resampling needs a seed and a number of samples of at least 1, got {seed} and {samples}.")


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacrebleu reads its seed from the environment, and nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
