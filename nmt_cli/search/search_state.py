"""The state of a search as arrays, with one row per sentence.

    B sentences   W hypotheses per sentence

Rows are appended when sentences enter (`concat`) and removed when sentences leave (`select`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from .arrays import Array, Arrays, arrays_of

FREE = -1
"""In place of a required token: any token may follow."""


class Rows:
    """Base class of dataclasses whose fields are arrays (B, …), other `Rows`, lists of them, or None."""

    def each(self, change: Callable[..., Array], *others: Self) -> Self:
        """Return the rows with `change` applied to each array, which gets the arrays of `others` too."""
        return type(self)(
            **{
                name: _each(change, value, *(vars(other)[name] for other in others))
                for name, value in vars(self).items()
            }
        )

    def select(self, rows: Array) -> Self:
        """Return the rows at these indices."""
        return self.each(lambda values: arrays_of(values).take(values, rows))

    def concat(self, *others: Self) -> Self:
        """Return these rows, then those of `others`. Shorter dimensions are filled up with -1, or False."""
        return self.each(_concat, *others)

    def reorder(self, parents: Array) -> Self:
        """Return the rows after hypothesis w of sentence b continued parents[b, w]; only `OfHypotheses` move."""
        return type(self)(
            **{name: value.reorder(parents) if isinstance(value, Rows) else value for name, value in vars(self).items()}
        )


class OfHypotheses(Rows):
    """Base class of dataclasses whose fields are arrays (B, W, …), one entry per hypothesis."""

    def reorder(self, parents: Array) -> Self:
        gather = arrays_of(parents).gather
        return self.each(lambda values: gather(values, parents))


def _each(change: Callable[..., Array], first: Any, *others: Any) -> Any:
    if isinstance(first, Rows):
        return first.each(change, *others)
    if isinstance(first, list):
        return [_each(change, *several) for several in zip(first, *others, strict=True)]
    return None if first is None else change(first, *others)


def _concat(*parts: Array) -> Array:
    arrays = arrays_of(parts[0])
    shape = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    fill = 0 if parts[0].dtype == arrays.boolean else -1
    return arrays.concat([arrays.padded(part, (len(part), *shape), fill) for part in parts])


@dataclass
class Sentences(Rows):
    """The state of each sentence, apart from its hypotheses."""

    ids: Array  # (B,)
    lengths: Array  # (B,) |Y| of an output that ends in the next step, end symbol counted
    max_lengths: Array  # (B,) largest number of tokens of an output, end symbol not counted

    @staticmethod
    def start(arrays: Arrays, ids: Sequence[int], max_lengths: Array) -> Sentences:
        """Return the state of sentences whose outputs are empty."""
        ones = arrays.full((len(ids),), 1, arrays.int64)
        return Sentences(arrays.array(list(ids), arrays.int64), ones, max_lengths)

    @property
    def remaining(self) -> Array:
        """(B,) number of tokens that may still be added to an open output, end symbol not counted."""
        return self.max_lengths + 1 - self.lengths

    @property
    def complete(self) -> Array:
        """(B,) whether an open output has all the tokens that it may have, so that only the end symbol may follow."""
        return self.max_lengths < self.lengths

    def required_tokens(self, required: Array | None, rows: Array, eos: int) -> Array:
        """Return the one token that may follow each row, (N,), or FREE.

        `required` (N,) are the tokens that constraints require; `rows` (N,) are the sentences of the rows. A complete
        output must end.
        """
        return arrays_of(rows).where(self.complete[rows], eos, FREE if required is None else required)
