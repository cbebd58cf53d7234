"""A sentence to search outputs for, and what the search found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ModelError


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
    ended: bool = True
    """Whether the encoder reads an end symbol after the tokens."""
    aligned: bool = False
    """Whether each of its hypotheses needs an alignment."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its tokens without the end symbol, log P with the end symbol, and its score."""

    tokens: list[int]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...] = ()
    """If asked for: log P of each token, end symbol included."""


FinishedSentences = list[tuple[int, list[Hypothesis]]]
"""Sentence ids, and the hypotheses of each sentence, best first."""


@dataclass
class SearchResult:
    """The hypotheses of a sentence, best first; on demand with alignments of the best or all (`alignment.aligned`)."""

    hypotheses: list[Hypothesis]
    alignments: list[list[int]]


def check_numbers(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses. Raises ModelError if there are none, or if a score is not a number."""
    checked = list(hypotheses)
    if not checked or any(h.score != h.score for h in checked):
        raise ModelError(
            "the model's output is not a number (NaN or infinite): its weights are damaged or it diverged in "
            "training. Use another checkpoint."
        )
    return checked


def hypotheses_of(columns: Sequence[list[Any]], paths: list[Any] | None) -> list[list[Hypothesis]]:
    """Return the hypotheses of each sentence. Raises ModelError, see `check_numbers`.

    `columns` are their tokens, lengths, log P and scores, lists (B, K); a score of -inf: there is no hypothesis.
    `paths` (B, K, L), if token log-probabilities are asked for: log P of the output up to each token.
    """
    return [
        check_numbers(
            Hypothesis(t[:n], p, s, () if paths is None else _differences([*path[:n], p]))
            for t, n, p, s, path in zip(*of_sentence, strict=True)
            if s != -math.inf
        )
        for of_sentence in zip(*columns, paths or columns[0], strict=True)
    ]


def _differences(sums: list[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in zip([0.0, *sums], sums, strict=False))
