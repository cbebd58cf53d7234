"""Dropout (section 5.4), fast where random numbers are dear.

On a CPU most of dropout's time goes to drawing one random float an element. `keep_mask` draws 16 random bits an
element instead, four elements from each 64-bit number, and compares them with a threshold: the drop rate is `p` to
within 2**-17, and the survivors are scaled by the rate that was really used, so the expectation is exact.
On other devices, and as the slow twin, torch's own `F.dropout` serves.

    dropout(x, p)          x with elements dropped, the rest scaled
    add_dropout(x, y, p)   x + dropout(y, p), in one pass over memory
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 65_536  # 16 random bits an element


def keep_mask(like: Tensor, p: float) -> Tensor:
    """A mask of `like`'s shape and dtype: 0 with probability `p`, else 1 / (1 - p).

    Seeded by one draw of torch's default CPU generator, so `torch.manual_seed` and saved generator states govern it.
    """
    dropped = round(p * _LEVELS)
    seed = int(torch.randint(2**62, ()))
    words = np.random.SFC64(seed).random_raw(like.numel() // 4 + 1)  # twice as fast as torch's generator
    draws = torch.from_numpy(words).view(torch.int16)[: like.numel()]
    kept = torch.ge(draws, dropped - _LEVELS // 2, out=draws)  # in place: a boolean result would take seven times as long
    return kept.to(like.dtype).mul_(_LEVELS / (_LEVELS - dropped)).view(like.shape)


class _AddMasked(torch.autograd.Function):
    """x + y * mask; the mask is a constant, and x's gradient passes through untouched."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.y_dtype = y.dtype
        return torch.addcmul(x, y.to(x.dtype), mask)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return grads[0], (grads[0] * mask).to(ctx.y_dtype), None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`x` with each element dropped with probability `p` and the others scaled by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * keep_mask(x, p)


def add_dropout(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """x + dropout(y): a sub-layer's output joining the residual stream, in `x`'s dtype."""
    if not training or p == 0.0:
        return x + y
    if x.device.type != "cpu":
        return x + F.dropout(y, p)
    return _AddMasked.apply(x, y, keep_mask(x, p))  # type: ignore[no-any-return, no-untyped-call]
