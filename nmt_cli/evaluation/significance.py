"""Is a system better than the first one, or is it luck of the test set? Paired bootstrap resampling (Koehn, 2004).

The test set is drawn anew `samples` times, with replacement and the same lines for every system; the p-value says how
often a difference as large as the observed one would arise by chance. The resampling is sacrebleu's `PairedTest`; its
seed is fixed, so the same input always gives the same table. Memory: about lines × samples × 80 bytes (chrF).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .metrics import DEFAULT_TOKENIZER, METRICS, Score, build, check_parallel

SAMPLES = 1000
SEED = 12345
"""sacrebleu's own default; it stands in the signature."""


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
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    lowercase: bool = False,
    tokenize: str = DEFAULT_TOKENIZER,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> dict[str, list[Row]]:
    """Score every (name, hypotheses) and test it against the first; metric -> one row a system, in their order."""
    if len(systems) < 2:
        raise UsageError(f"a comparison needs at least two systems, got {len(systems)}.")
    if seed < 1 or samples < 1:
        raise UsageError(f"a comparison needs a seed and a number of samples of at least 1, got {seed} and {samples}.")
    scorers = {metric: build(metric, lowercase=lowercase, tokenize=tokenize) for metric in metrics}
    for _, hypotheses in systems:
        check_parallel(hypotheses, references)

    from sacrebleu.significance import PairedTest

    with _sacrebleu_seed(seed):
        test = PairedTest(list(systems), scorers, references, test_type="bs", n_samples=samples)
        signatures, results = test()
    names = [name for name in results if name != "System"]  # sacrebleu's own names, in the order of `metrics`
    return {
        metric: _rows(metric, name, signatures[name].format(), systems, results[name])
        for metric, name in zip(scorers, names, strict=True)
    }


def _rows(metric: str, name: str, signature: str, systems: Sequence[tuple[str, Sequence[str]]], results: Sequence[Any]) -> list[Row]:
    rows: list[Row] = []
    for (system, _), result in zip(systems, results, strict=True):
        score = Score(metric, name, float(result.score), signature, higher_is_better=METRICS[metric].higher_is_better)
        p_value = None if not rows else float(result.p_value)
        if rows and score.value == rows[0].score.value:
            # No difference was seen, so none can be significant. sacrebleu counts strictly greater differences only
            # and would give two equal outputs p = 1 / (samples + 1), the strongest it can.
            p_value = 1.0
        rows.append(Row(system, score, float(result.mean), float(result.ci), p_value))
    return rows


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
