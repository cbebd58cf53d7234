"""oneDNN's linear map with a maximum, as torch's own compiler calls it.

The operator is private to torch: only this file uses it.

`has_fused_linear` calls it once on small numbers and compares the result with plain torch. It returns False where the
operator is missing, refuses this processor, or computes something else; the kernel then declines.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

UNUSABLE = (RuntimeError, AttributeError, NotImplementedError, TypeError)
"""Errors from a call of an operator that is missing, has changed, or refuses the processor."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return x W^T + b, followed by max(0, ·) if `relu`, in fp32 or bf16."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], ""))


@cache
def has_fused_linear() -> bool:
    """Return whether `linear` works in bf16, with max(0, ·)."""
    generator = torch.Generator().manual_seed(1)  # a running training depends on the state of the default generator
    x, weight, bias = (torch.randn(shape, generator=generator).bfloat16() for shape in ((5, 24), (40, 24), (40,)))
    try:
        ours = linear(x, weight, bias, relu=True)
    except UNUSABLE:
        return False
    return torch.allclose(ours.float(), F.relu(F.linear(x.float(), weight.float(), bias.float())), atol=0.1, rtol=0.05)
