"""The state of a search as tensors, with one row per sentence.

    B sentences   W hypotheses per sentence

Rows are appended when sentences enter (`concat`) and removed when sentences leave (`select`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from .search import COMPACT_BELOW

AT_ONCE = 1.0
"""With this share, a sentence leaves in the step in which it is finished."""
FREE = -1
"""In place of a required token: any token may follow."""


class Rows:
    """Base class of dataclasses whose fields are tensors (B, …), `Rows` themselves, or None."""

    def select(self, rows: Tensor) -> Self:
        """Return the rows at these indices."""
        return type(self)(**{name: _select(value, rows) for name, value in vars(self).items()})

    def concat(self, other: Self) -> Self:
        """Return these rows, then those of `other`. Shorter dimensions are filled up with -1, or False."""
        return type(self)(**{name: _concat(value, getattr(other, name)) for name, value in vars(self).items()})

    def reorder(self, parents: Tensor) -> Self:
        """Return the rows after hypothesis w of sentence b continued its hypothesis parents[b, w]; only `OfHypotheses` move."""
        return type(self)(
            **{name: value.reorder(parents) if isinstance(value, Rows) else value for name, value in vars(self).items()}
        )


class OfHypotheses(Rows):
    """Base class of dataclasses whose fields are tensors (B, W, …), one entry per hypothesis."""

    def reorder(self, parents: Tensor) -> Self:
        """See `Rows`."""
        return type(self)(**{name: _gather(value, parents) for name, value in vars(self).items()})


def _select(value: Any, rows: Tensor) -> Any:
    if value is None:
        return None
    return value.select(rows) if isinstance(value, Rows) else value.index_select(0, rows)


def _gather(value: Tensor, parents: Tensor) -> Tensor:
    """(B, W, …) -> (B, C, …) of the hypotheses `parents` (B, C)."""
    index = parents.view(*parents.shape, *[1] * (value.dim() - 2))
    return value.gather(1, index.expand(*parents.shape, *value.shape[2:]))


def _concat(first: Any, second: Any) -> Any:
    if first is None:
        return None
    if isinstance(first, Rows):
        return first.concat(second)
    shape = [max(sizes) for sizes in zip(first.shape[1:], second.shape[1:], strict=True)]
    return torch.cat([_filled(part, shape) for part in (first, second)])


def _filled(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return `tensor` (B, …) with its dimensions after the first filled up to `shape`."""
    if list(tensor.shape[1:]) == list(shape):
        return tensor
    missing = [
        bound
        for size, wanted in zip(reversed(tensor.shape[1:]), reversed(shape), strict=True)
        for bound in (0, wanted - size)
    ]
    return F.pad(tensor, missing, value=False if tensor.dtype == torch.bool else -1)


@dataclass
class Sentences(Rows):
    """The state of each sentence, apart from its hypotheses."""

    ids: Tensor  # (B,)
    lengths: Tensor  # (B,) |Y| of an output that ends in the next step, end symbol counted
    max_lengths: Tensor  # (B,) largest number of tokens of an output, end symbol not counted

    @staticmethod
    def start(ids: Sequence[int], max_lengths: Tensor) -> Sentences:
        """Return the state of sentences whose outputs are empty."""
        return Sentences(torch.tensor(ids, device=max_lengths.device), torch.ones_like(max_lengths), max_lengths)

    @property
    def remaining(self) -> Tensor:
        """(B,) number of tokens that may still be added to an open output, end symbol not counted."""
        return self.max_lengths + 1 - self.lengths

    @property
    def complete(self) -> Tensor:
        """(B,) whether an open output has all the tokens that it may have, so that only the end symbol may follow."""
        return self.max_lengths < self.lengths

    def required_tokens(self, required: Tensor | None, rows: Tensor, eos: int) -> Tensor:
        """Return the one token that may follow each row, (N,), or FREE.

        `required` (N,) are the tokens that constraints require; `rows` (N,) are the sentences of the rows. A complete output must end.
        """
        free = torch.full_like(rows, FREE) if required is None else required
        return free.masked_fill(self.complete[rows], eos)


def split_off_finished(unfinished: Tensor, compact_below: float = COMPACT_BELOW) -> tuple[Tensor, Tensor] | None:
    """Return the indices of the sentences that stay and of those that leave; None: no sentence leaves in this step.

    `unfinished` (B,) says which sentences still have open hypotheses; on a device, the function waits for it. Sentences leave once
    at most the share `compact_below` is unfinished.
    """
    count = int(unfinished.sum())
    if count > compact_below * len(unfinished) or count == len(unfinished):
        return None
    return unfinished.nonzero().flatten(), unfinished.logical_not().nonzero().flatten()


def without(ids: Tensor, dropped: Sequence[int]) -> Tensor:
    """Return the indices of the ids (B,) that are not among `dropped`."""
    return torch.isin(ids, torch.tensor(dropped, device=ids.device), invert=True).nonzero().flatten()
