"""Private functions of torch, which only this file uses. `works` checks that they still compute the same."""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor

UNUSABLE = (RuntimeError, AttributeError, NotImplementedError, TypeError)


def softmax_backward(grad: Tensor, softmax: Tensor) -> Tensor:
    """Return the gradient of the scores from the gradient of softmax(scores) over the last dimension.

    Both have one dtype.
    """
    return torch._softmax_backward_data(grad, softmax, -1, softmax.dtype)


def relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of x. `grad` is the gradient of max(0, x); `output` is max(0, x)."""
    return cast(Tensor, torch.ops.aten.threshold_backward(grad, output, 0))


@cache
def works() -> bool:
    """Return whether `softmax_backward` and `relu_backward` exist and compute the same as autograd."""
    scores, grad = torch.linspace(-2, 2, 12).view(3, 4), torch.linspace(1, -1, 12).view(3, 4)
    softmax = scores.softmax(-1)
    expected = softmax * (grad - (grad * softmax).sum(-1, keepdim=True))
    try:
        same = torch.allclose(softmax_backward(grad, softmax), expected, atol=1e-6)
        return same and torch.equal(relu_backward(grad, scores.relu()), grad * (scores > 0))
    except UNUSABLE:
        return False
