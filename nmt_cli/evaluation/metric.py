"""The interface of a metric, its options, and the base class for a metric of your own.

    MetricSpec.build(MetricOptions) ──▶ Metric
    hypotheses, references ──▶ Metric.rows ──▶ (lines, K) numbers ──▶ their sum, (K,) ──▶ MetricValue

The score of a test set is a function of sums over sentences. So resampling, confidence intervals and the score of a
part of the test set are the same code for every metric. A metric is one file with a `MetricSpec`, and one line in
`registry.METRICS`. This is a complete metric, the share of lines that are equal to their reference:

    class Exact(SentenceStatisticsMetric):
        def __init__(self): super().__init__("Exact", version="1")
        def rows(self, hypotheses, references): return [[h == r, 1] for h, r in zip(hypotheses, references[0])]
        def value(self, sums): return 100 * sums[0] / sums[1]

    SPEC = MetricSpec(lambda options: Exact())

sacrebleu's own metrics are wrapped in `sacrebleu_interface`. This file imports neither torch nor sacrebleu.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Signature

DEFAULT_TOKENIZER = "13a"
"""mteval-v13a, the tokenizer of WMT. Published BLEU scores use it unless the paper says otherwise."""


@dataclass(frozen=True)
class Protocol:
    """BLEU as a paper computed it: the options of a protocol. `protocols` implements it."""

    name: str
    """A key of `protocols.PROTOCOLS`."""
    language: str = "de"
    """Language of the text, for Moses: one of `protocols.languages()`."""
    compounds: bool = True
    """Split compounds, if the protocol does."""
    tokenized_references: bool = False
    """The references are tokenised already: only the step `compounds` is applied to them."""


@dataclass(frozen=True)
class MetricOptions:
    """The options of all metrics. Each metric reads those that concern it."""

    lowercase: bool = False
    """Ignore case in BLEU and chrF. TER always ignores it, as sacrebleu's does."""
    tokenize: str = DEFAULT_TOKENIZER
    """BLEU's tokenizer, one of `sacrebleu_interface.tokenizers()`."""
    ter_asian: bool = False
    """TER over the characters of Chinese and Japanese kanji: sacrebleu's `normalized` and `asian_support`."""
    protocol: Protocol | None = None
    """BLEU by this protocol. The tokenizer is then a part of the protocol."""
    source: Sequence[str] | None = None
    """The source text, line by line, for COMET."""
    comet_model: Path | None = None
    """COMET's checkpoint, or the folder that contains it."""
    evalb_repair: bool = False
    """Compute EVALB over the words and parts of speech of the reference, also for parses in brackets."""


DEFAULT_OPTIONS = MetricOptions()


@dataclass(frozen=True)
class MetricValue:
    """A score: the metric's name in print, the number, and further figures to print."""

    name: str
    value: float
    details: str = ""


class Metric(ABC):
    """A metric as a `metrics.Scorer` uses it. K is the metric's own number of figures per sentence."""

    @abstractmethod
    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Sequence[Sequence[float]]:
        """Return a row of K numbers per hypothesis, in order. Every stream of `references` is parallel to `hypotheses`.

        Where a line has fewer references, those of the first streams have text, and the others are blank
        (`references`).
        """

    @abstractmethod
    def score_of_sums(self, sums: Sequence[float]) -> MetricValue:
        """Return the score of lines whose rows add up to `sums`: K numbers."""

    @abstractmethod
    def signature(self, num_references: int) -> Signature:
        """Return sacrebleu's signature of the score. Call `rows` first: the signature may depend on the lines."""

    def words(self, line: str) -> int:
        """Return the number of words of a hypothesis or reference, for scores by length."""
        return len(line.split())

    def counts(self, sums: Sequence[float]) -> Mapping[str, float]:
        """Return figures by name, for JSON."""
        return {}

    def remarks(
        self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Iterable[str]:
        """Return remarks for the user about a system's `rows`, such as lines that do not count: one or two sentences
        each.
        """
        return ()


class SentenceStatisticsMetric(Metric):
    """Base class for metrics that are not sacrebleu's, such as a mean or an F1 of counts.

    `name` is the name in print. `version` ends the signature.
    """

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    @abstractmethod
    def value(self, sums: Sequence[float]) -> float:
        """Return the score of lines whose rows add up to `sums`: K numbers."""

    def details(self, sums: Sequence[float]) -> str:
        """Return figures to print beside the score."""
        return ""

    def signature_entries(self) -> Mapping[str, str]:
        """Return further entries of the signature: options that change the score.

        No key or value contains `:` or `|`.
        """
        return {}

    def score_of_sums(self, sums: Sequence[float]) -> MetricValue:
        numbers = [float(number) for number in sums]
        return MetricValue(self.name, self.value(numbers), self.details(numbers))

    def signature(self, num_references: int) -> Signature:
        from sacrebleu.metrics.base import Signature

        signature = Signature({"num_refs": num_references})
        for key, value in (*self.signature_entries().items(), ("version", self.version)):
            signature.update(key, value)
        return signature


@dataclass(frozen=True)
class MetricSpec:
    """An entry of `registry.METRICS`: how to build the metric, whether higher is better, and its decimals in print."""

    build: Callable[[MetricOptions], Metric]
    higher_is_better: bool = True
    decimals: int = 2
