"""Dropout (section 5.4) with 16 random bits per element, on a CPU.

On a CPU, most of dropout's time goes to one random float per element. `keep_mask` takes four elements from each 64-bit
random number instead and compares them with a threshold: the drop rate is `p` to within 2**-17, and the kept elements
are scaled by the rate that was really used, so the expectation is exact. torch's own dropout is the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...model.residuals import DropoutAdd

KINDS = (nn.Dropout, DropoutAdd)
_LEVELS = 65_536  # 16 random bits per element


def supports(module: nn.Module) -> str:
    """Return "" if there is a kernel for this dropout module, else the reason why not."""
    return "" if type(module) in KINDS else f"dropout {type(module).__name__!r} has no kernel"


def keep_mask(like: Tensor, p: float) -> Tensor:
    """Return a mask of `like`'s shape and dtype: 0 with probability `p`, else 1 / (1 - p).

    Its seed is one draw from torch's default CPU generator, so `torch.manual_seed` and saved generator states govern
    it.
    """
    dropped = round(p * _LEVELS)
    seed = int(torch.randint(2**62, ()))
    words = np.random.SFC64(seed).random_raw(like.numel() // 4 + 1)  # twice as fast as torch's generator
    draws = torch.from_numpy(words).view(torch.int16)[: like.numel()]
    # in place: a boolean result would take seven times as long
    kept = torch.ge(draws, dropped - _LEVELS // 2, out=draws)
    return kept.to(like.dtype).mul_(_LEVELS / (_LEVELS - dropped)).view(like.shape)


class FastDropout(nn.Module):
    """`nn.Dropout` with `keep_mask`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x * keep_mask(x, self.p) if self.training and self.p else x


class FastDropoutAdd(nn.Module):
    """`DropoutAdd`: x + Dropout(y), in x's dtype and in one pass over memory."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x, y (…, D) -> (…, D)."""
        if not self.training or not self.p:
            return x + y
        return _AddMasked.apply(x, y, keep_mask(x, self.p))  # type: ignore[no-any-return, no-untyped-call]


def replacement(module: nn.Dropout | DropoutAdd) -> nn.Module:
    """Return the faster module with the same rate."""
    return FastDropout(module.p) if isinstance(module, nn.Dropout) else FastDropoutAdd(module.dropout.p)


class _AddMasked(torch.autograd.Function):
    """x + y * mask; the mask is a constant, and x's gradient passes through unchanged."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.y_dtype = y.dtype
        return torch.addcmul(x, y.to(x.dtype), mask)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return grads[0], (grads[0] * mask).to(ctx.y_dtype), None
