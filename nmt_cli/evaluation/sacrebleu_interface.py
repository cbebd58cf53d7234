"""The only file that uses private interfaces of sacrebleu.

    sacrebleu's metric ──▶ SacrebleuMetric ──▶ rows of sentence statistics, scores of their sums

sacrebleu keeps sentence statistics, and computes scores from their sums, but only in methods whose names begin with an
underscore. Another version may change them, so pyproject.toml bounds the version. A test compares the results of these
methods with those of the public ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .metric import Metric, MetricValue
from .references import without_missing
from .tokenizers import unspaced


class SacrebleuMetric(Metric):
    """One of sacrebleu's metrics. It reads the references once.

    `by_spaces`: its name in a remark, if it separates words at spaces; `remedy`: see `tokenizers.unspaced`.
    """

    def __init__(self, metric: Any, by_spaces: str = "", remedy: str = "") -> None:
        self._metric, self._by_spaces, self._remedy = metric, by_spaces, remedy
        self._references: Sequence[Sequence[str]] | None = None

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[Any]]:
        if self._references is not references:
            streams = [
                [None if line is None else self.tokens(line, reference=True) for line in stream]
                for stream in without_missing(references)
            ]
            self._metric._ref_cache, self._references = self._metric._cache_references(streams), references
        rows: list[list[Any]] = self._metric._extract_corpus_statistics(
            [self.tokens(line) for line in hypotheses], None
        )
        return rows

    def tokens(self, line: str, *, reference: bool = False) -> str:
        """Return the text of a line that sacrebleu reads."""
        return line

    def score_of_sums(self, sums: Sequence[float]) -> MetricValue:
        score = self._metric._compute_score_from_stats(sums)
        printed = score.format(width=2).removeprefix(f"{score.name} = {score.score:.2f}").strip()
        return MetricValue(score.name, float(score.score), printed)

    def remarks(
        self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Iterable[str]:
        return unspaced(references, self._by_spaces, self._remedy) if self._by_spaces else ()

    def signature(self, num_references: int) -> Any:
        return self._metric.get_signature()


def tokenizers() -> list[str]:
    """Return the names that BLEU's `tokenize` takes, as the installed sacrebleu lists them."""
    from sacrebleu.metrics.bleu import BLEU

    return list(BLEU.TOKENIZERS)
