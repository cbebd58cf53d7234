"""A sentence to search outputs for, and what the search found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .search import Hypothesis


@dataclass(frozen=True)
class Sentence:
    """A sentence to search outputs for."""

    tokens: Sequence[int]
    """The source, without end symbol."""
    max_length: int
    """Largest number of output tokens, end symbol not counted."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The inputs of constraints for this sentence, by `name` of the constraint; see `Constraint.encode`."""


@dataclass
class SearchResult:
    """The hypotheses of a sentence, best first; if asked for, the alignment of the best one (see `alignment.aligned`)."""

    hypotheses: list[Hypothesis]
    alignment: list[int]
