"""Layouts of the sequences of a batch in a tensor: padded to one length, or packed without padding.

    padded   (B, L, D)   every sentence has L positions; a mask hides the padding
    packed   (N, D)      the tokens of one sentence after another, then spare rows up to a multiple of ROWS

Training packs: embeddings, projections, feed-forward, norms, dropout and loss then spend no work on padding. Only
attention needs the sentences side by side, so each layout has two methods, for before and after attention:

    (…, P * H * K) ──split_heads──▶ P × (B, H, L, K) ──▶ attention ──▶ (B, H, L, K) ──merge_heads──▶ (…, H * K)

In the packed layout both methods gather rows of K numbers. Every token has exactly one row before and after a gather,
so its gradient is a gather by the inverse index. Padding reads the first spare row, whose gradient is zero; spare rows
read the first position. N is rounded up so that it takes few different values: kernels for matrix products are prepared
for each.

    B sentences   L longest   D d_model   P projections (query, key, value)   H heads   K d_k or d_v
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..device.torch_device import is_host, to_device

ROWS = 64
"""N is a multiple of this number."""


class Layout(Protocol):
    """The arrangement of a batch's sequences in x."""

    def split_heads(self, x: Tensor, sizes: list[int], heads: int) -> tuple[Tensor, ...]:
        """Split x (…, sum of `sizes`), which has projections of these sizes side by side.

        Return each as (B, H, L, size / H).
        """
        ...

    def merge_heads(self, x: Tensor) -> Tensor:
        """Turn x (B, H, L, W) into (…, H * W)."""
        ...


class Padded:
    """The padded layout: x is (B, L, D)."""

    def split_heads(self, x: Tensor, sizes: list[int], heads: int) -> tuple[Tensor, ...]:
        return tuple(part.view(*x.shape[:2], heads, -1).transpose(1, 2) for part in torch.split(x, sizes, -1))

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)


PADDED = Padded()


class Packing:
    """The packed layout: x is (N, D). `lengths` (B,) are those of the sentences: int64 on the CPU, all above zero.

    `numbers` (B,), int64 on the CPU, say which sentences they are, for dropout by counter; without them it counts from
    0.

    L is rounded up to a multiple of `multiple`. With a `multiple` above 1, the mask exists even if there is no padding:
    the result for a sentence then does not depend on the other sentences.
    """

    def __init__(self, lengths: Tensor, multiple: int = 1, numbers: Tensor | None = None) -> None:
        self.numbers = numbers
        self.sentences, self.longest = lengths.numel(), -(-int(lengths.max()) // multiple) * multiple
        self.tokens = int(lengths.sum())
        self.size = -(-(self.tokens + 1) // ROWS) * ROWS
        within = torch.arange(self.longest) < lengths[:, None]  # (B, L)
        self.rows = torch.full((self.sentences, self.longest), self.tokens)  # (B, L): padding reads the first spare row
        self.rows[within] = torch.arange(self.tokens)
        self.slots = torch.zeros(self.size, dtype=torch.int64)  # (N,): the index of a row in (B * L)
        self.slots[: self.tokens] = within.flatten().nonzero().flatten()
        self.positions = self.slots % self.longest  # (N,) within the sentence
        # (B, 1, 1, L), True = may be attended to
        self.mask = None if multiple == 1 and bool(within.all()) else within[:, None, None, :]
        ends = torch.cat((lengths.cumsum(0), torch.tensor([self.size])))
        self.starts = nn.functional.pad(ends, (1, 0))  # (B + 2,): the first row of each sentence, of spare rows, and N
        self.bounds = self.starts.int()  # the same in int32, as FlashAttention reads them
        self._indices: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def longest_run(self) -> int:
        """The largest number of rows between two neighbours in `starts`."""
        return max(self.longest, self.size - self.tokens)

    def to(self, device: str) -> Packing:
        """Return the packing on `device`."""
        return self if is_host(device) else self.of(to_device(self.parts, device))

    @property
    def parts(self) -> list[Tensor]:
        """The tensors to copy to another device, in int64; `of` returns a packing with the copies."""
        return [self.rows, self.slots, self.positions, self.starts]

    def of(self, copies: Sequence[Tensor]) -> Packing:
        """Return the same packing with these copies of its `parts`, on their device."""
        moved = copy.copy(self)
        moved._indices = {}
        moved.rows, moved.slots, moved.positions, moved.starts = copies
        moved.bounds = moved.starts.int()
        if self.mask is not None:
            moved.mask = (moved.rows != self.tokens)[:, None, None, :]
        return moved

    def pack(self, padded: Tensor) -> Tensor:
        """Pack (B, L) into (N,). Spare rows hold a copy of the first element."""
        return padded.flatten()[self.slots]

    def unpack(self, packed: Tensor, padding: int) -> Tensor:
        """Unpack (N,) into (B, L), with `padding` after each sentence."""
        return packed[self.rows].masked_fill(self.rows == self.tokens, padding)

    @property
    def lengths(self) -> Tensor:
        """The length of each sentence in tokens, (B,)."""
        return self.starts.diff()[:-1]

    def split_heads(self, x: Tensor, sizes: list[int], heads: int) -> tuple[Tensor, ...]:
        if len(set(sizes)) > 1:
            return tuple(
                self.split_heads(part.contiguous(), [size], heads)[0]
                for part, size in zip(torch.split(x, sizes, -1), sizes, strict=True)
            )
        parts = len(sizes)
        to_heads, to_rows = self._index(parts, heads)
        rows = _Gather.apply(x.reshape(self.size * parts * heads, -1), to_heads, to_rows, self.tokens * parts * heads)  # type: ignore[no-untyped-call]
        return rows.view(parts, self.sentences, heads, self.longest, -1).unbind(0)  # type: ignore[no-any-return]

    def merge_heads(self, x: Tensor) -> Tensor:
        heads = x.size(1)
        to_heads, to_rows = self._index(1, heads)
        rows = _Gather.apply(x.reshape(-1, x.size(-1)), to_rows, to_heads, to_heads.numel())  # type: ignore[no-untyped-call]
        return rows.view(self.size, -1)  # type: ignore[no-any-return]

    def _index(self, parts: int, heads: int) -> tuple[Tensor, Tensor]:
        """Return for each row of (P, B, H, L) the row of (N, P, H) to read, and the inverse index; both flat."""
        if (parts, heads) not in self._indices:
            device = self.rows.device
            part, head = torch.arange(parts, device=device), torch.arange(heads, device=device)
            to_heads = (self.rows[None, :, None, :] * parts + part[:, None, None, None]) * heads + head[:, None]
            sentence, position = self.slots // self.longest, self.positions
            slot = (sentence[:, None, None] + part[:, None] * self.sentences) * heads + head  # (N, P, H)
            self._indices[parts, heads] = to_heads.flatten(), (slot * self.longest + position[:, None, None]).flatten()
        return self._indices[parts, heads]


class _Gather(torch.autograd.Function):
    """Gathers rows of x by index. The gradient is gathered by the inverse index; from row `real` on it is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, real: int) -> Tensor:
        ctx.inverse, ctx.real = inverse, real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = grads[0].index_select(0, ctx.inverse)
        grad[ctx.real :] = 0
        return grad, None, None, None
