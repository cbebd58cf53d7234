"""The state of a search as tensors, with one row per sentence.

    B sentences   P length of the longest prefix

Rows are appended when sentences enter (`concat`) and removed when sentences leave (`select`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

COMPACT_BELOW = 0.7
"""Finished sentences leave once at most this share of the sentences is unfinished, because leaving costs a copy."""
FREE = -1
"""In prefixes and required tokens: any token may follow."""


class Rows:
    """Base class of dataclasses whose fields are tensors (B, …), or `Rows` themselves."""

    def select(self, rows: Tensor) -> Self:
        """Return the rows at these indices."""
        return type(self)(**{name: value.select(rows) if isinstance(value, Rows) else value.index_select(0, rows) for name, value in vars(self).items()})

    def concat(self, other: Self) -> Self:
        """Return these rows, then those of `other`. The shorter last dimension is filled up with -1."""
        values: dict[str, Any] = {}
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            values[name] = mine.concat(theirs) if isinstance(mine, Rows) else _concat(mine, theirs)
        return type(self)(**values)


def _concat(first: Tensor, second: Tensor) -> Tensor:
    if first.dim() == 1:
        return torch.cat([first, second])
    size = max(first.size(-1), second.size(-1))
    return torch.cat([F.pad(part, (0, size - part.size(-1)), value=-1) for part in (first, second)])


@dataclass
class Sentences(Rows):
    """What a search knows of each sentence, apart from its hypotheses."""

    ids: Tensor  # (B,)
    lengths: Tensor  # (B,) |Y| of an output that ends in the coming step, end symbol counted
    max_lengths: Tensor  # (B,) tokens of an output at most, end symbol not counted
    prefixes: Tensor  # (B, P) tokens that an output must begin with; beyond its prefix FREE

    @staticmethod
    def start(ids: Sequence[int], max_lengths: Tensor, prefixes: Sequence[Sequence[int]] | None) -> Sentences:
        """Return the state of sentences whose outputs are empty."""
        device, prefixes = max_lengths.device, prefixes or [[]] * len(max_lengths)
        longest = max(len(prefix) for prefix in prefixes)
        padded = [[*prefix, *[FREE] * (longest - len(prefix))] for prefix in prefixes]
        return Sentences(
            ids=torch.tensor(ids, device=device),
            lengths=torch.ones_like(max_lengths),
            max_lengths=max_lengths,
            prefixes=torch.tensor(padded, dtype=torch.long, device=device).view(len(max_lengths), longest),
        )

    @property
    def remaining(self) -> Tensor:
        """(B,) tokens that may still be added to an open output, end symbol not counted."""
        return self.max_lengths + 1 - self.lengths

    @property
    def complete(self) -> Tensor:
        """(B,) whether an open output has all the tokens that it may have, so that only the end symbol may follow."""
        return self.max_lengths < self.lengths

    def required_tokens(self, eos: int) -> Tensor | None:
        """Return the one token that may follow in each sentence, (B,), or FREE; None where all sentences are free."""
        complete, size = self.complete, self.prefixes.size(1)
        if size:
            tokens = self.prefixes.gather(1, (self.lengths - 1).clamp_max(size - 1)[:, None])[:, 0]
            return tokens.masked_fill(self.lengths > size, FREE).masked_fill(complete, eos)
        if bool(complete.any()):
            return torch.full_like(self.lengths, FREE).masked_fill(complete, eos)
        return None


def split_off_finished(unfinished: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the indices of the sentences that stay and of those that leave; None: none leaves in this step.

    `unfinished` (B,) says which sentences still have open hypotheses.
    """
    if int(unfinished.sum()) > COMPACT_BELOW * len(unfinished):
        return None
    return unfinished.nonzero().flatten(), unfinished.logical_not().nonzero().flatten()
