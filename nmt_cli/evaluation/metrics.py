"""Scores of a whole test set, each with its signature: BLEU, chrF and TER by sacrebleu's own code, and others beside them.

    hypotheses + reference streams ──▶ compute("bleu", …) ──▶ Score(value, signature, …)
    reference streams ──▶ Scorer("bleu", …) ──▶ .score(hypotheses), of any number of systems and of any of their lines

A score without its signature compares with nothing (Post, 2018, arXiv 1804.08771), so `Score` carries both. What is
compared is plain text: detokenised, true case; for `evalb` trees. All these metrics are functions of sums over sentences: a `Scorer` reads
the references once and keeps a row of numbers a sentence, from which the whole, a part or a resampled test set is scored.
A new metric is one line of `METRICS`: one of sacrebleu's, or a class of `additive.Additive` in a file of its own.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import warn
from ..errors import DataError, UsageError, system_reason

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Signature

    from .protocols import Protocol

DEFAULT_TOKENIZER = "13a"
"""mteval-v13a, what WMT uses and what a published score means unless it says otherwise."""


@dataclass(frozen=True)
class Options:
    """What can be chosen of the metrics; each takes what concerns it."""

    lowercase: bool = False
    """Ignore case in BLEU and chrF; TER always does (as sacrebleu's)."""
    tokenize: str = DEFAULT_TOKENIZER
    """BLEU's tokenizer, one of `tokenizers()`."""
    protocol: Protocol | None = None
    """BLEU by a protocol instead, of which the tokenizer is a part."""
    source: Sequence[str] | None = None
    """What the hypotheses translate, line by line, for COMET."""
    comet_model: Path | None = None
    """COMET's checkpoint, or a folder with it."""
    evalb_repair: bool = False
    """EVALB over the words and parts of speech of the reference, for parses in brackets too."""


@dataclass(frozen=True)
class Kind:
    """One metric: how to build it, which way is better, whether it is scored without being asked for, and its usual decimals."""

    build: Callable[[Options], Metric]
    higher_is_better: bool = True
    default: bool = True
    decimals: int = 2


def _bleu(options: Options) -> Metric:
    if options.protocol:
        from . import protocols

        return protocols.build(options.protocol, lowercase=options.lowercase)
    try:
        # `force` turns off sacrebleu's notice about text that looks tokenised; `nmt score` gives one that names the file.
        return _sacrebleu("BLEU", lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    except (Exception, SystemExit) as error:  # of MeCab, SentencePiece, urllib, portalocker, or sacrebleu's own
        from .tokenizers import failure

        raise failure(options.tokenize, error) from error


def _evalb(options: Options) -> Metric:
    from .evalb import Evalb

    return Evalb(options.evalb_repair)


def _comet(options: Options) -> Metric:
    from .comet import Comet

    return Comet(options.comet_model, options.source)


def _sacrebleu(name: str, **options: Any) -> Metric:
    import sacrebleu.metrics

    _log_to_console()
    metric: Metric = getattr(sacrebleu.metrics, name)(**options)
    return metric


METRICS: dict[str, Kind] = {
    "bleu": Kind(_bleu),
    "chrf": Kind(lambda options: _sacrebleu("CHRF", lowercase=options.lowercase)),
    "ter": Kind(lambda options: _sacrebleu("TER"), higher_is_better=False),
    "evalb": Kind(_evalb, default=False),
    "comet": Kind(_comet, default=False, decimals=4),
}
DEFAULT_METRICS = tuple(name for name, kind in METRICS.items() if kind.default)


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
    """What the metric says of itself: for BLEU the n-gram precisions, brevity penalty and lengths."""
    higher_is_better: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `metric`, `name`, `score` (unrounded), `signature`, `details`, `higher_is_better`."""
        return {
            "metric": self.metric,
            "name": self.name,
            "score": self.value,
            "signature": self.signature,
            "details": self.details,
            "higher_is_better": self.higher_is_better,
        }


class Scorer:
    """A metric with its references, read once; each system's rows of sufficient statistics are kept.

    `rows`: (lines, K) numbers, K the metric's own; a score is a function of their sum over lines.
    """

    def __init__(self, metric: str, references: Sequence[Sequence[str]], options: Options = Options()) -> None:
        self.name = metric
        self.references = references
        self._metric = build(metric, options)
        check_parallel(references[0] if references else (), references)
        self._metric._ref_cache = self._metric._cache_references(references)
        self._kept: dict[int, tuple[Sequence[str], list[list[Any]]]] = {}

    def rows(self, hypotheses: Sequence[str]) -> list[list[Any]]:
        """The statistics of each line; of the same object only once. Raises DataError where it is not parallel to the references."""
        if id(hypotheses) not in self._kept:
            check_parallel(hypotheses, self.references)
            self._kept[id(hypotheses)] = hypotheses, self._metric._extract_corpus_statistics(hypotheses, None)
        return self._kept[id(hypotheses)][1]

    def score(self, hypotheses: Sequence[str], lines: Sequence[int] | None = None) -> Score:
        """Score all of `hypotheses`, or the `lines` of it alone, at least one, counted from 0."""
        rows = self.rows(hypotheses)
        result = self._metric._aggregate_and_compute(rows if lines is None else [rows[line] for line in lines])
        details = result.format(width=2).removeprefix(f"{result.name} = {result.score:.2f}").strip()
        return self.named(result.name, float(result.score), self.get_signature().format(), details)

    def counts(self, hypotheses: Sequence[str]) -> Mapping[str, float]:
        """Figures by name that the metric gives besides its score; most give none."""
        from .sentence_statistics import Additive

        return self._metric.counts([sum(column) for column in zip(*self.rows(hypotheses), strict=True)]) if isinstance(self._metric, Additive) else {}

    def remarks(self, hypotheses: Sequence[str]) -> list[str]:
        """What people should know of this system's score; most metrics say nothing."""
        from .sentence_statistics import Additive

        return list(self._metric.remarks(self.rows(hypotheses), hypotheses, self.references)) if isinstance(self._metric, Additive) else []

    def named(self, name: str, value: float, signature: str, details: str = "") -> Score:
        """A Score of this metric."""
        return Score(self.name, name, value, signature, details, METRICS[self.name].higher_is_better)

    # What sacrebleu's tests of significance ask of a metric; None for `references` means those given at first.
    def get_signature(self) -> Signature:
        return self._metric.get_signature()

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: None) -> list[list[Any]]:
        return self.rows(hypotheses)

    def _aggregate_and_compute(self, rows: Any) -> Any:
        return self._metric._aggregate_and_compute(rows)

    def _compute_score_from_stats(self, sums: Any) -> Any:
        return self._metric._compute_score_from_stats(sums)


def compute(metric: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: Options = Options()) -> Score:
    """Score `hypotheses` against reference streams, each of them parallel to the hypotheses.

    For several systems against the same references make one `Scorer`: it reads them once.
    """
    check_known("metric", metric, METRICS)
    check_parallel(hypotheses, references)
    return Scorer(metric, references, options).score(hypotheses)


def build(metric: str, options: Options = Options()) -> Metric:
    """The sacrebleu object behind a metric; unknown names of metrics and tokenizers are usage errors."""
    check_known("metric", metric, METRICS)
    check_known("tokenizer", options.tokenize, tokenizers())
    try:
        return METRICS[metric].build(options)
    except ImportError as error:
        raise UsageError(f"the metric {metric!r} needs the package {error.name or '?'!r}, which cannot be imported: {error}. Install it with pip, or leave --metric {metric} out.") from error
    except OSError as error:
        raise DataError(f"the metric {metric!r} cannot be used: {system_reason(error)}. Make the file readable, or leave --metric {metric} out.") from error


def tokenizers() -> list[str]:
    """The names that BLEU's `tokenize` takes, as the installed sacrebleu lists them."""
    from sacrebleu.metrics.bleu import BLEU

    return list(BLEU.TOKENIZERS)


def check_parallel(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """At least one line, at least one reference, and as many lines on every side."""
    if not references:
        raise UsageError("a score needs at least one reference, none was given.")
    if not hypotheses:
        raise DataError("there are no lines to score: the hypothesis is empty.")
    for number, reference in enumerate(references, 1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypothesis lines cannot be scored against {len(reference)} lines of reference {number}: they must be parallel, line by line."
            )


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise UsageError, with the nearest name, unless `name` is among `known`."""
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"unknown {what} {name!r}: expected one of {', '.join(names)}.{hint}")


class _ToConsole(logging.Handler):
    """sacrebleu's remarks, as warnings on our console."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _log_to_console() -> None:
    logger = logging.getLogger("sacrebleu")
    if not any(isinstance(handler, _ToConsole) for handler in logger.handlers):
        logger.addHandler(_ToConsole(logging.WARNING))
        logger.propagate = False
