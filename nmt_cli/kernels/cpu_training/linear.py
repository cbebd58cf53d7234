"""x W^T + b, followed by max(0, ·) if `relu`, in one oneDNN call: for training in bf16 on a CPU.

torch adds a bias in bf16 by writing it into every row of the result beforehand, and applies max(0, ·) afterwards;
oneDNN's matrix product does both on the way. `nn.Linear` and `nn.ReLU` are the reference.

oneDNN's operators are private to torch; its own compiler calls them. `has_fused_linear` calls them once on small
numbers and compares the results with plain torch.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...model.layers import FeedForward

KINDS = (nn.Linear, FeedForward)


def supports(module: nn.Module) -> str:
    """Return "" if there is a kernel for this linear map or feed-forward network, else the reason why not."""
    if type(module) is FeedForward and type(module.activation) is not nn.ReLU:
        return f"activation {type(module.activation).__name__!r} has no kernel"
    if type(module) not in KINDS:
        return f"linear map {type(module).__name__!r} has no kernel"
    return "" if has_fused_linear() else "this torch has no fused linear map for this processor"


def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return x W^T + b, followed by max(0, ·) if `relu`, in fp32 or bf16."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], ""))


def relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of x. `grad` is the gradient of max(0, x); `output` is max(0, x)."""
    return cast(Tensor, torch.ops.aten.threshold_backward(grad, output, 0))


@cache
def has_fused_linear() -> bool:
    """Return whether `fused_linear` works in bf16, with max(0, ·).

    It does not where an operator is missing, refuses this processor, or computes something else.
    """
    generator = torch.Generator().manual_seed(1)  # a running training depends on the state of the default generator
    x, weight, bias = (torch.randn(shape, generator=generator).bfloat16() for shape in ((5, 24), (40, 24), (40,)))
    try:
        ours = fused_linear(x, weight, bias, relu=True)
        gradient = relu_backward(bias, bias.relu())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    return torch.equal(gradient, bias * (bias > 0)) and torch.allclose(
        ours.float(), F.relu(F.linear(x.float(), weight.float(), bias.float())), atol=0.1, rtol=0.05
    )


class FusedLinear(nn.Linear):
    """`nn.Linear` over the same parameters, followed by max(0, ·) if `relu`."""

    def __init__(self, linear: nn.Linear, relu: bool = False) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias, self.relu = linear.weight, linear.bias, relu

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_in) -> (…, d_out)."""
        if x.dtype == torch.bfloat16 and x.dim() == 2 and torch.is_grad_enabled():
            return _Fused.apply(x, self.weight, self.bias, self.relu)  # type: ignore[no-any-return, no-untyped-call]
        y = F.linear(x, self.weight, self.bias)
        return F.relu(y, inplace=True) if self.relu else y


class FusedFeedForward(nn.Module):
    """`FeedForward` with ReLU over the same parameters."""

    def __init__(self, feed_forward: FeedForward) -> None:
        super().__init__()
        self.inner, self.outer = FusedLinear(feed_forward.inner, relu=True), FusedLinear(feed_forward.outer)
        self.dropout = feed_forward.dropout

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        return self.outer(self.dropout(self.inner(x)))  # type: ignore[no-any-return]


def replacement(module: nn.Linear | FeedForward) -> nn.Module:
    """Return the faster module over the same parameters."""
    return FusedFeedForward(module) if isinstance(module, FeedForward) else FusedLinear(module)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = fused_linear(x, weight, bias, relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, y = ctx.saved_tensors
        grad = grads[0] if y is None else relu_backward(grads[0], y)
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        return (
            grad @ weight if for_x else None,
            grad.T @ x if for_weight else None,
            grad.sum(0) if for_bias else None,
            None,
        )
