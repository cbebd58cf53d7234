"""oneDNN's linear map with a maximum, and its gradient, as torch's own compiler calls them.

These operators are private to torch.

`has_fused_linear` calls them once on small numbers and compares the results with plain torch. It returns False where an
operator is missing, refuses this processor, or computes something else; the kernel then declines.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return x W^T + b, followed by max(0, ·) if `relu`, in fp32 or bf16."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], ""))


def relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of x. `grad` is the gradient of max(0, x); `output` is max(0, x)."""
    return cast(Tensor, torch.ops.aten.threshold_backward(grad, output, 0))


@cache
def has_fused_linear() -> bool:
    """Return whether `linear` works in bf16, with max(0, ·)."""
    generator = torch.Generator().manual_seed(1)  # a running training depends on the state of the default generator
    x, weight, bias = (torch.randn(shape, generator=generator).bfloat16() for shape in ((5, 24), (40, 24), (40,)))
    try:
        ours = linear(x, weight, bias, relu=True)
        gradient = relu_backward(bias, bias.relu())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    return torch.equal(gradient, bias * (bias > 0)) and torch.allclose(
        ours.float(), F.relu(F.linear(x.float(), weight.float(), bias.float())), atol=0.1, rtol=0.05
    )
