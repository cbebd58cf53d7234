"""x W^T + b, with max(0, .) where wanted: nn.Linear, in one kernel where a CPU trains in bf16.

torch adds a bias in bf16 by writing it into every row of the result beforehand, and max(0, .) afterwards; oneDNN's
matrix product does both on the way, when it is asked. `Linear` is an nn.Linear in every other respect, and where that
kernel does not apply (fp32, GPUs, evaluation) it computes as one: its slow twin.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """(..., d_in) -> (..., d_out); with `relu` followed by max(0, .)."""

    def __init__(self, d_in: int, d_out: int, relu: bool = False) -> None:
        super().__init__(d_in, d_out)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and x.dtype == torch.bfloat16 and x.dim() == 2 and torch.is_grad_enabled() and fused_is_there():
            return _Fused.apply(x, self.weight, self.bias, self.relu)  # type: ignore[no-any-return, no-untyped-call]
        y = F.linear(x, self.weight, self.bias)
        return F.relu(y, inplace=True) if self.relu else y


@cache
def fused_is_there() -> bool:
    """Whether this torch has the kernel, for this CPU, and it is right."""
    x, weight, bias = (torch.linspace(-1, 2, rows * 24).sin().view(rows, 24).bfloat16() for rows in (5, 40, 40))
    bias = bias[:, 0].contiguous()  # no random numbers: those of the training under way are counted
    try:
        ours = _Fused.apply(x, weight, bias, True)  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    return torch.allclose(ours.float(), F.relu(F.linear(x.float(), weight.float(), bias.float())), atol=0.1, rtol=0.05)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, y = ctx.saved_tensors
        grad = grads[0] if y is None else torch.ops.aten.threshold_backward(grads[0], y, 0)
        return grad @ weight, grad.T @ x, grad.sum(0), None
