"""Private functions of torch, which only this file uses. `works` and `has_quantize` check that they still compute the same."""

from __future__ import annotations

import warnings
from functools import cache
from typing import cast

import torch
from torch import Tensor

UNUSABLE = (RuntimeError, AttributeError, NotImplementedError, TypeError)


def softmax_backward(grad: Tensor, softmax: Tensor) -> Tensor:
    """Return the gradient of the scores from the gradient of softmax(scores) over the last dimension. Both have one dtype."""
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


def quantize_fast(x: Tensor, scale: float) -> Tensor:
    """Return x / scale to the nearest integer in int8, in one pass over memory."""
    quantized = torch.quantize_per_tensor(x, scale, 0, torch.qint8)
    return torch.empty(0, dtype=torch.int8).set_(quantized.untyped_storage(), 0, x.shape, quantized.stride())


@cache
def has_quantize() -> bool:
    """Return whether torch still has its 8-bit tensors; torch has announced their removal."""
    x = torch.tensor([[-9.0, -1.004, 0.0, 0.26, 2.0]])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return quantize_fast(x, 0.01).tolist() == [[-128, -100, 0, 26, 127]]
    except UNUSABLE:
        return False
