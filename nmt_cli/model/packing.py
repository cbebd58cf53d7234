"""Tokens in rows, one sentence after another, without padding: how a batch goes through the model in training.

    lengths (B,) ──▶ Packing: N rows = the tokens of all sentences, then spare rows up to a multiple of ROWS

    (N, D)         embeddings, projections, feed-forward, norms, dropout, loss: no work for padding
    (N, P * H * K) ──heads──▶ (P, B, H, L, K) ──▶ attention ──▶ (B, H, L, K) ──joined──▶ (N, H * K)

Attention alone needs sentences side by side. Both moves gather rows of K numbers, and so do their gradients, because
every token has one place on either side: padding reads the first spare row, whose gradient is zero, and spare rows
read the first position. N takes few different values, since compiled kernels are made for each.

    B sentences   L longest   D d_model   P projections (query, key, value)   H heads   K d_k or d_v
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

ROWS = 64
"""N is a multiple of it: a CPU's matrix products compile a kernel for each N, and a GPU's like whole tiles."""


class Packing:
    """Where the tokens of a batch with these lengths (B,), on the CPU and all above zero, stand. Raises nothing.

    With a `multiple` above 1 attention's L is one, and its mask stands even where nothing is padded: what it computes
    for a sentence then depends on the sentence alone.
    """

    def __init__(self, lengths: Tensor, multiple: int = 1) -> None:
        self.sentences, self.longest = lengths.numel(), -(-int(lengths.max()) // multiple) * multiple
        self.tokens = int(lengths.sum())
        self.size = -(-(self.tokens + 1) // ROWS) * ROWS
        within = torch.arange(self.longest) < lengths[:, None]  # (B, L)
        self.rows = torch.full((self.sentences, self.longest), self.tokens)  # (B, L): padding reads the first spare row
        self.rows[within] = torch.arange(self.tokens)
        self.cells = torch.zeros(self.size, dtype=torch.int64)  # (N,): where in (B * L) a row stands
        self.cells[: self.tokens] = within.flatten().nonzero().flatten()
        self.positions = self.cells % self.longest  # (N,) within the sentence
        self.mask = None if multiple == 1 and bool(within.all()) else within[:, None, None, :]  # (B, 1, 1, L), True = may be attended to
        self._indices: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def to(self, device: str) -> Packing:
        """The same on `device`; copies from pinned memory do not wait."""
        if device == "cpu":
            return self
        there = copy.copy(self)
        there._indices = {}
        for name in ("rows", "cells", "positions", "mask"):
            if (tensor := getattr(self, name)) is not None:
                setattr(there, name, tensor.pin_memory().to(device, non_blocking=True))
        return there

    def pack(self, padded: Tensor) -> Tensor:
        """(B, L) -> (N,); spare rows hold a copy of the first."""
        return padded.flatten()[self.cells]

    def heads(self, x: Tensor, sizes: list[int], heads: int) -> tuple[Tensor, ...]:
        """(N, sum of `sizes`), projections side by side -> each as (B, H, L, K)."""
        if len(set(sizes)) > 1:
            return tuple(self.heads(part.contiguous(), [size], heads)[0] for part, size in zip(torch.split(x, sizes, -1), sizes, strict=True))
        parts = len(sizes)
        apart, together = self._index(parts, heads)
        rows = _Gather.apply(x.reshape(self.size * parts * heads, -1), apart, together, self.tokens * parts * heads)  # type: ignore[no-untyped-call]
        return rows.view(parts, self.sentences, heads, self.longest, -1).unbind(0)  # type: ignore[no-any-return]

    def joined(self, x: Tensor) -> Tensor:
        """(B, H, L, W) -> (N, H * W)."""
        heads = x.size(1)
        apart, together = self._index(1, heads)
        rows = _Gather.apply(x.reshape(-1, x.size(-1)), together, apart, apart.numel())  # type: ignore[no-untyped-call]
        return rows.view(self.size, -1)  # type: ignore[no-any-return]

    def _index(self, parts: int, heads: int) -> tuple[Tensor, Tensor]:
        """For (P, B, H, L) the row of (N, P, H) to read, and the other way round; both flat."""
        if (parts, heads) not in self._indices:
            device = self.rows.device
            part, head = torch.arange(parts, device=device), torch.arange(heads, device=device)
            apart = (self.rows[None, :, None, :] * parts + part[:, None, None, None]) * heads + head[:, None]
            sentence, position = self.cells // self.longest, self.positions
            cell = (sentence[:, None, None] + part[:, None] * self.sentences) * heads + head  # (N, P, H)
            self._indices[parts, heads] = apart.flatten(), (cell * self.longest + position[:, None, None]).flatten()
        return self._indices[parts, heads]


class _Gather(torch.autograd.Function):
    """Rows of x by index; its gradient gathers too, by the opposite index, up to row `real`, after which it is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, opposite: Tensor, real: int) -> Tensor:
        ctx.opposite, ctx.real = opposite, real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = grads[0].index_select(0, ctx.opposite)
        grad[ctx.real :] = 0
        return grad, None, None, None
