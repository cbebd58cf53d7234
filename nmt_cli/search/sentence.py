"""A sentence to search outputs for, and what the search found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Sentence:
    """A sentence to search outputs for."""

    tokens: Sequence[int]
    """The source, without end symbol."""
    max_length: int
    """Largest number of output tokens, end symbol not counted."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The inputs of constraints for this sentence, by `name` of the constraint; see `Constraint.encode`."""
    first: int = 0
    """Index of the first token of the text; a token before it is the tag of the target language (`data.tags`)."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its tokens without the end symbol, log P with the end symbol, and log P / lp, plus cp if asked
    for.
    """

    tokens: list[int]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...] = ()
    """If asked for: log P of each token, end symbol included."""

    def with_path(self, path: Sequence[float]) -> Hypothesis:
        """Return the hypothesis with `token_log_probs`, from the log P of the output up to each token."""
        ends = [*path[: len(self.tokens)], self.log_prob]
        return replace(
            self, token_log_probs=tuple(after - before for before, after in zip([0.0, *ends], ends, strict=False))
        )


FinishedSentences = list[tuple[int, list[Hypothesis]]]
"""Sentence ids, and the hypotheses of each sentence, best first."""


@dataclass
class SearchResult:
    """The hypotheses of a sentence, best first; if asked for, the alignment of the best one (see
    `alignment.aligned`).
    """

    hypotheses: list[Hypothesis]
    alignment: list[int]
