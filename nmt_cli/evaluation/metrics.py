"""BLEU, chrF and TER of a whole test set, by sacrebleu's own code, each with its signature.

    hypotheses + reference streams ──▶ compute("bleu", …) ──▶ Score(value, signature, …)

A score without its signature compares with nothing (Post, 2018, arXiv 1804.08771), so `Score` carries both. What is
compared is plain text: detokenised, true case. A new metric is one line of `METRICS`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..console import warn
from ..errors import DataError, UsageError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

DEFAULT_TOKENIZER = "13a"
"""mteval-v13a, what WMT uses and what a published score means unless it says otherwise."""


@dataclass(frozen=True)
class Kind:
    """One metric: how to build it from (lowercase, tokenize), and which way is better."""

    build: Callable[[bool, str], Metric]
    higher_is_better: bool = True


def _sacrebleu(name: str, **options: Any) -> Metric:
    import sacrebleu.metrics

    _log_to_console()
    metric: Metric = getattr(sacrebleu.metrics, name)(**options)
    return metric


# `force` turns off sacrebleu's notice about text that looks tokenised; `nmt score` gives one that names the file.
METRICS: dict[str, Kind] = {
    "bleu": Kind(lambda lowercase, tokenize: _sacrebleu("BLEU", lowercase=lowercase, tokenize=tokenize, force=True)),
    "chrf": Kind(lambda lowercase, tokenize: _sacrebleu("CHRF", lowercase=lowercase)),
    "ter": Kind(lambda lowercase, tokenize: _sacrebleu("TER"), higher_is_better=False),
}


@dataclass(frozen=True)
class Score:
    """A metric's value over a test set, with the signature that makes it comparable."""

    metric: str
    """The key in `METRICS`."""
    name: str
    """The name in print: BLEU, chrF2, TER."""
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


def compute(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = DEFAULT_TOKENIZER,
) -> Score:
    """Score `hypotheses` against reference streams, each of them parallel to the hypotheses.

    `lowercase` acts on BLEU and chrF, `tokenize` on BLEU alone; TER ignores case always (as sacrebleu does).
    """
    scorer = build(metric, lowercase=lowercase, tokenize=tokenize)
    check_parallel(hypotheses, references)
    result = scorer.corpus_score(hypotheses, references)
    details = result.format(width=2).removeprefix(f"{result.name} = {result.score:.2f}").strip()
    return Score(
        metric=metric,
        name=result.name,
        value=float(result.score),
        signature=scorer.get_signature().format(),
        details=details,
        higher_is_better=METRICS[metric].higher_is_better,
    )


def build(metric: str, *, lowercase: bool = False, tokenize: str = DEFAULT_TOKENIZER) -> Metric:
    """The sacrebleu object behind a metric; unknown names of metrics and tokenizers are usage errors."""
    _check_known("metric", metric, METRICS)
    _check_known("tokenizer", tokenize, tokenizers())
    try:
        return METRICS[metric].build(lowercase, tokenize)
    except (ImportError, RuntimeError, OSError, SystemExit) as error:
        # Some tokenizers want an extra package (ja-mecab, ko-mecab) or fetch a model (flores200, …).
        reason = " ".join(str(error).split())
        raise DataError(
            f"the tokenizer {tokenize!r} cannot be used here: {reason}. Supply what it asks for, or choose another one."
        ) from error


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


def _check_known(what: str, name: str, known: Iterable[str]) -> None:
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
