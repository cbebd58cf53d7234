"""Scores of a whole test set, each with its signature: BLEU, chrF and TER by sacrebleu's own code, and others beside
them.

    hypotheses + reference streams ──▶ compute("bleu", …) ──▶ Score(value, signature, …)
    reference streams ──▶ Scorer("bleu", …) ──▶ .score(hypotheses), for any number of systems and any of their lines

Scores can be compared only if their signatures are equal (Post, 2018, arXiv 1804.08771), so `Score` has both. The
metrics compare plain text, detokenised and in true case; `evalb` compares trees. `registry.METRICS` lists the metrics,
and `metric` defines them. A `Scorer` reads the references once and keeps a row of statistics per sentence. From these
rows it scores the whole test set, a part of it, or a resampled one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataError, UsageError, check_choice, system_reason
from ..registry import METRICS, load
from .metric import DEFAULT_OPTIONS, DEFAULT_TOKENIZER, Metric, MetricOptions, MetricSpec
from .references import missing, present_first

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Signature

DEFAULT_METRICS = ("bleu", "chrf", "ter")
"""The metrics that `nmt score` computes without --metric."""


@dataclass(frozen=True)
class Score:
    """A metric's value over a test set, with the signature that makes it comparable."""

    metric: str
    """The key in `METRICS`."""
    name: str
    """The name in print: BLEU, chrF2, TER, EVALB."""
    value: float
    signature: str
    details: str = ""
    """Figures to print beside the score: for BLEU the n-gram precisions, brevity penalty and lengths."""
    higher_is_better: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return for JSON: `metric`, `name`, `score` (unrounded), `signature`, `details`, `higher_is_better`."""
        return {"score" if name == "value" else name: value for name, value in vars(self).items()}


class Scorer:
    """A metric with its references. It computes each system's rows once and keeps them."""

    def __init__(
        self, metric: str, references: Sequence[Sequence[str]], options: MetricOptions = DEFAULT_OPTIONS
    ) -> None:
        self.name = metric
        self.metric = build(metric, options)
        check_parallel(references[0] if references else (), references)
        self.references = present_first(references)
        self.num_references = -1 if any(missing(references)) else len(references)  # sacrebleu's -1: a variable number
        self._rows: dict[int, tuple[Sequence[str], Sequence[Sequence[float]]]] = {}  # by the identity of the hypotheses

    def rows(self, hypotheses: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the statistics of each line: (lines, K) numbers.

        Raises DataError unless the hypotheses are parallel to the references.
        """
        if id(hypotheses) not in self._rows:
            check_parallel(hypotheses, self.references)
            self._rows[id(hypotheses)] = hypotheses, self.metric.rows(hypotheses, self.references)
        return self._rows[id(hypotheses)][1]

    def score(self, hypotheses: Sequence[str], lines: Sequence[int] | None = None) -> Score:
        """Return the score of all `hypotheses`, or only of `lines`: at least one, counted from 0."""
        rows = self.rows(hypotheses)
        value = self.metric.score_of_sums(_sums(rows if lines is None else [rows[line] for line in lines]))
        higher = spec(self.name).higher_is_better
        return Score(self.name, value.name, value.value, self.signature().format(), value.details, higher)

    def signature(self) -> Signature:
        """Return sacrebleu's signature. Call `rows` first."""
        return self.metric.signature(self.num_references)

    def counts(self, hypotheses: Sequence[str]) -> Mapping[str, float]:
        """Return the metric's other figures by name. Most metrics have no other figures."""
        return self.metric.counts(_sums(self.rows(hypotheses)))

    def remarks(self, hypotheses: Sequence[str]) -> list[str]:
        """Return what the user should know about this system's score. Most metrics have no remarks."""
        return list(self.metric.remarks(self.rows(hypotheses), hypotheses, self.references))


def _sums(rows: Sequence[Sequence[float]]) -> Sequence[float]:
    """Return the sums of rows, (lines, K) -> (K,), with the bits of sacrebleu's."""
    from sacrebleu.utils import sum_of_lists

    return cast(Sequence[float], sum_of_lists(rows))  # type: ignore[no-untyped-call]


def compute(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: MetricOptions = DEFAULT_OPTIONS,
) -> Score:
    """Return the score of `hypotheses` against reference streams, each parallel to the hypotheses.

    For several systems against the same references use one `Scorer`: it reads them once.
    """
    return Scorer(metric, references, options).score(hypotheses)


def spec(metric: str) -> MetricSpec:
    """Return the spec of a metric. Raises UsageError for an unknown one."""
    return cast(MetricSpec, load(METRICS, metric, "metric"))


def build(metric: str, options: MetricOptions = DEFAULT_OPTIONS) -> Metric:
    """Return a new metric.

    Raises UsageError for an unknown metric or tokenizer, or a missing package. Raises DataError for a file that cannot
    be read.
    """
    metric_spec = spec(metric)
    if options.tokenize != DEFAULT_TOKENIZER:
        from .sacrebleu_interface import tokenizers

        check_choice("tokenizer", options.tokenize, tokenizers())
    try:
        return metric_spec.build(options)
    except ImportError as error:
        raise UsageError(
            f"the metric {metric!r} needs the package {error.name or '?'!r}, which cannot be imported: "
            f"{error}. Install it with pip, or leave --metric {metric} out."
        ) from error
    except OSError as error:
        raise DataError(
            f"the metric {metric!r} cannot be used: {system_reason(error)}. Make the file readable, or leave "
            f"--metric {metric} out."
        ) from error


def check_parallel(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise UsageError without a reference, DataError without lines or if the sides differ in their number of lines."""
    if not references:
        raise UsageError("a score needs at least one reference, none was given.")
    if not hypotheses:
        raise DataError("there are no lines to score: the hypothesis is empty.")
    for number, reference in enumerate(references, 1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypothesis lines cannot be scored against {len(reference)} lines of "
                f"reference {number}: they must be parallel, line by line."
            )
