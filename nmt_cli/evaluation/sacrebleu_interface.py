"""The only file that uses private interfaces of sacrebleu.

    sacrebleu's metric ──▶ SacrebleuMetric ──▶ rows of sentence statistics, scores of their sums
    rows, metric ──▶ bootstrap, paired_test ──▶ means, confidence intervals, p-values

sacrebleu keeps sentence statistics, and computes scores from their sums, but only in methods whose names begin with an
underscore. Another version may change them. So the first use checks sacrebleu's version, and then compares the results of
these methods with those of the public ones. A difference is a UsageError that names the version and the remedy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..console import warn
from ..errors import UsageError
from .metric import Metric, MetricValue

OLDEST, TOO_NEW = (2, 4), (3, 0)
"""Versions that this file was written for: from OLDEST, below TOO_NEW."""


class SacrebleuMetric(Metric):
    """One of sacrebleu's metrics. It reads the references once."""

    def __init__(self, metric: Any) -> None:
        check_metrics()
        _log_to_console()
        self._metric = metric
        self._references: Sequence[Sequence[str]] | None = None

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[Any]]:
        """See `Metric`."""
        if self._references is not references:
            self._metric._ref_cache, self._references = self._metric._cache_references(references), references
        rows: list[list[Any]] = self._metric._extract_corpus_statistics(hypotheses, None)
        return rows

    def score(self, rows: Sequence[Sequence[float]]) -> MetricValue:
        """See `Metric`."""
        return _value(self._metric._aggregate_and_compute(rows))

    def score_of_sums(self, sums: Sequence[float]) -> MetricValue:
        """See `Metric`."""
        return _value(self._metric._compute_score_from_stats(sums))

    def signature(self, num_references: int) -> Any:
        """See `Metric`."""
        return self._metric.get_signature()


def _value(score: Any) -> MetricValue:
    """Return sacrebleu's score, with the text that sacrebleu prints after it."""
    return MetricValue(
        score.name, float(score.score), score.format(width=2).removeprefix(f"{score.name} = {score.score:.2f}").strip()
    )


def bootstrap(rows: Sequence[Sequence[float]], metric: Metric, samples: int, seed: int) -> tuple[float, float]:
    """Return the mean over resampled test sets, and half the width of the 95 % confidence interval around it."""
    check_resampling()
    return _bootstrap(rows, metric, samples, seed)


def _bootstrap(rows: Sequence[Sequence[float]], metric: Metric, samples: int, seed: int) -> tuple[float, float]:
    import numpy as np
    from sacrebleu.significance import _bootstrap_resample, estimate_ci

    with _sacrebleu_seed(seed):
        _, scores = _bootstrap_resample(list(rows), ResampledMetric(metric, 0, lambda hypotheses: rows), samples)  # type: ignore[arg-type]
    mean, ci = estimate_ci(np.array([score.score for score in scores]))
    return float(mean), float(ci)


def paired_test(
    systems: Sequence[tuple[str, Sequence[str]]],
    metrics: Mapping[str, ResampledMetric],
    test: str,
    samples: int,
    interval_samples: int,
    seed: int,
) -> dict[str, tuple[str, str, list[Any]]]:
    """Compare every (name, hypotheses) with the first by sacrebleu's `test`, "bs" or "ar".

    `interval_samples`: resampled test sets for the confidence intervals of "ar"; -1 for "bs".
    Returns key of `metrics` → name in print, signature, and sacrebleu's results (score, p_value, mean, ci), one per system.
    """
    check_resampling()
    return _paired_test(systems, metrics, test, samples, interval_samples, seed)


def _paired_test(
    systems: Sequence[tuple[str, Sequence[str]]],
    metrics: Mapping[str, ResampledMetric],
    test: str,
    samples: int,
    interval_samples: int,
    seed: int,
) -> dict[str, tuple[str, str, list[Any]]]:
    from sacrebleu.significance import PairedTest

    with _sacrebleu_seed(seed):
        paired = PairedTest(
            list(systems),
            metrics,  # type: ignore[arg-type]
            None,
            test_type=test,
            n_samples=samples,
            n_ar_confidence=interval_samples,
        )
        signatures, results = paired()
    printed = [name for name in results if name != "System"]  # the metrics' names in print, in the order of `metrics`
    return {
        key: (name, signatures[name].format(), list(results[name])) for key, name in zip(metrics, printed, strict=True)
    }


class ResampledMetric:
    """A metric with its references, in the form that sacrebleu's tests of significance call.

    `rows`: the function that returns the statistics of hypotheses, (lines, K).
    """

    def __init__(
        self, metric: Metric, num_references: int, rows: Callable[[Sequence[str]], Sequence[Sequence[float]]]
    ) -> None:
        self.metric, self.num_references, self.rows = metric, num_references, rows

    def get_signature(self) -> Any:
        return self.metric.signature(self.num_references)

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: None) -> Sequence[Sequence[float]]:
        return self.rows(hypotheses)

    def _aggregate_and_compute(self, rows: Any) -> Any:
        return _Score(self.metric.score(rows))

    def _compute_score_from_stats(self, sums: Any) -> Any:
        return _Score(self.metric.score_of_sums(sums))


class _Score:
    """A score as sacrebleu's tests read it."""

    def __init__(self, value: MetricValue) -> None:
        self.name, self.score = value.name, value.value


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set sacrebleu's seed in the environment: sacrebleu reads it from nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def tokenizers() -> list[str]:
    """Return the names that BLEU's `tokenize` takes, as the installed sacrebleu lists them."""
    from sacrebleu.metrics.bleu import BLEU

    return list(BLEU.TOKENIZERS)


def tokenizer_model(name: str) -> tuple[str, Path] | None:
    """Return the address and the local path of a tokenizer's model, or None if this tokenizer has no model."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in SPM_MODELS:
        return None
    url = SPM_MODELS[name]["url"]
    return url, Path(SACREBLEU_DIR) / "models" / os.path.basename(url)


# --- the check on first use ---

HYPOTHESES, REFERENCES = (
    ["the cat sat on the mat", "a dog barks at the cat"],
    [["the cat lay on the mat", "the dog barks at a cat"]],
)
"""Text of the self-test."""


@cache
def check_metrics() -> None:
    """Raise UsageError unless sacrebleu's version is known and its sentence statistics give its public score."""
    _check_version()
    _check("sentence statistics", _statistics_agree)


@cache
def check_resampling() -> None:
    """Raise UsageError unless sacrebleu's resampling gives the same as its public `corpus_score`."""
    _check_version()
    _check("resampling", _resampling_agrees)


def _check_version() -> None:
    installed = tuple(int(part) if part.isdigit() else 0 for part in version("sacrebleu").split(".")[:2])
    if not OLDEST <= installed < TOO_NEW:
        raise _unusable("is a version that nmt does not know")


def _check(what: str, agrees: Callable[[], bool]) -> None:
    try:
        result = agrees()
    except Exception as error:  # a method that is missing, or takes or returns something else
        raise _unusable(f"has changed its {what} ({type(error).__name__}: {error})") from error
    if not result:
        raise _unusable(f"has changed its {what}: the results differ from those of `corpus_score`")


def _unusable(reason: str) -> UsageError:
    requirement = f"sacrebleu>={'.'.join(map(str, OLDEST))},<{TOO_NEW[0]}"
    return UsageError(
        f"sacrebleu {version('sacrebleu')} {reason}. Install a version that nmt works with: pip install '{requirement}'."
    )


def _statistics_agree() -> bool:
    from sacrebleu.metrics.bleu import BLEU

    metric, expected = BLEU(), BLEU().corpus_score(HYPOTHESES, REFERENCES)
    metric._ref_cache = metric._cache_references(REFERENCES)
    rows = metric._extract_corpus_statistics(HYPOTHESES, None)
    sums = [sum(column) for column in zip(*rows, strict=True)]
    scores = (metric._aggregate_and_compute(rows), metric._compute_score_from_stats(sums))
    return len(rows) == len(HYPOTHESES) and all(
        (score.name, score.score) == (expected.name, expected.score) for score in scores
    )


def _resampling_agrees() -> bool:
    from sacrebleu.metrics.bleu import BLEU

    metric, public, samples, seed = SacrebleuMetric(BLEU()), BLEU(), 5, 1
    rows = partial(metric.rows, references=REFERENCES)
    with _sacrebleu_seed(seed):
        expected = public.corpus_score(HYPOTHESES, REFERENCES, n_bootstrap=samples)
    mean, ci = _bootstrap(rows(HYPOTHESES), metric, samples, seed)
    systems = [("a", HYPOTHESES), ("b", HYPOTHESES)]
    _, signature, results = _paired_test(systems, {"bleu": ResampledMetric(metric, 1, rows)}, "bs", samples, -1, seed)[
        "bleu"
    ]
    intervals = [(mean, ci), *((result.mean, result.ci) for result in results)]
    close = all(abs(a - expected._mean) < 1e-9 and abs(b - expected._ci) < 1e-9 for a, b in intervals)
    return close and len(results) == 2 and 0 < results[1].p_value <= 1 and signature == public.get_signature().format()


class _ToConsole(logging.Handler):
    """A handler that prints sacrebleu's log messages as warnings on our console."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _log_to_console() -> None:
    logger = logging.getLogger("sacrebleu")
    if not any(isinstance(handler, _ToConsole) for handler in logger.handlers):
        logger.addHandler(_ToConsole(logging.WARNING))
        logger.propagate = False
