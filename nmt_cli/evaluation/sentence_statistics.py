"""Metrics that are not sacrebleu's, in the form that sacrebleu gives its own: a row of numbers a sentence, and their sums.

    class Exact(Additive):                              # a metric in whole: the share of lines that are their reference
        def __init__(self): super().__init__("Exact", version="1")
        def rows(self, hypotheses, references): return [[h == r, 1] for h, r in zip(hypotheses, references[0])]
        def value(self, sums): return 100 * sums[0] / sums[1]

So resampling, confidence intervals and parts of the test set are the same code for every metric. In `metrics.METRICS`
such a class is a line: `"exact": Kind(lambda options: Exact(), default=False)`, the class imported inside the lambda.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature


class Additive(Metric):
    """A metric whose score is a function of sums over sentences, such as a mean or an F1 of counts.

    `name` is what is printed; `version` ends the signature.
    """

    def __init__(self, name: str, version: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.version = name, version

    @abstractmethod
    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Sequence[Sequence[float]]:
        """A row of K numbers a hypothesis, in order; every stream of `references` is parallel to `hypotheses`."""

    @abstractmethod
    def value(self, sums: Sequence[float]) -> float:
        """The score of lines whose rows add up to `sums`: K numbers."""

    def details(self, sums: Sequence[float]) -> str:
        """What else the metric says of itself, in print."""
        return ""

    def counts(self, sums: Sequence[float]) -> Mapping[str, float]:
        """Figures by name, for JSON."""
        return {}

    def remarks(self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterable[str]:
        """What people should know of a system's `rows`, such as lines that do not count; a sentence or two each."""
        return ()

    def signature(self) -> Mapping[str, str]:
        """What else the score depends on, for the signature: neither key nor value holds `:` or `|`."""
        return {}

    def get_signature(self) -> Signature:
        signature = Signature({"num_refs": self.num_refs})
        for key, value in (*self.signature().items(), ("version", self.version)):
            signature.update(key, value)
        return signature

    # sacrebleu's side
    def _cache_references(self, references: Sequence[Sequence[str]]) -> list[Any]:
        self.num_refs = len(references)
        return list(references)

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]] | None) -> Any:
        return self.rows(hypotheses, references or self._ref_cache or ())

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Any) -> Score:
        sums = [float(number) for number in stats]
        score = Score(self.name, self.value(sums))
        score._verbose = self.details(sums)
        return score

    def _preprocess_segment(self, sent: str) -> str:
        raise NotImplementedError("the sentences of an additive metric are read by its `rows`")

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        raise NotImplementedError("the sentences of an additive metric are read by its `rows`")

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        raise NotImplementedError("the sentences of an additive metric are read by its `rows`")
