"""Dropout(f(x + bias)) of a feed-forward network, in one pass over memory each way, on a CPU.

The modules of `model.activations` with nn.Dropout are the reference. The backward pass keeps x alone, or of ReLU the
output alone.

    N rows   F d_ff
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...engine.library import library
from ...model.activations import SwiGLU
from .calls import DTYPES, Address, Dropout, Int, address, pointer, structure, sums_like

KINDS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "swiglu": SwiGLU}
"""Names of the activations → their modules, in the order of nmt.h."""
_Form = structure("CActivation", (Int, "dtype rows size activation"), (Address, "x bias dropout"))


def kind_of(module: nn.Module) -> str:
    """Return the name of the activation that the module computes; "": `activation` does not have it."""
    if isinstance(module, nn.GELU) and module.approximate != "none":
        return ""
    return next((name for name, kind in KINDS.items() if type(module) is kind), "")


def activation(kind: str, x: Tensor, bias: Tensor | None, dropout: Dropout | None) -> Tensor:
    """Return Dropout(f(x + bias)) (N, F) of x (N, F) and bias (F,); of "swiglu", they have 2 * F columns."""
    return _Activation.apply(kind, x, bias, dropout)  # type: ignore[no-any-return, no-untyped-call]


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, x: Tensor, bias: Tensor | None, dropout: Dropout | None) -> Tensor:
        rows, columns = x.shape
        size = columns // 2 if kind == "swiglu" else columns
        x, bias = x.contiguous(), None if bias is None else bias.to(x.dtype).contiguous()
        out = x.new_empty(rows, size)
        ctx.dropout, ctx.mask = dropout, dropout.form() if dropout else None
        numbers = DTYPES[x.dtype], rows, size, list(KINDS).index(kind)
        ctx.form = _Form(*numbers, address(x), address(bias), pointer(ctx.mask))
        library().nmt_activation_forward(pointer(ctx.form), address(out))
        kept = out if kind == "relu" else x
        ctx.form.x = address(kept)
        ctx.save_for_backward(kept, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        kept, bias = ctx.saved_tensors
        grad_out, grad_x = grads[0].contiguous(), torch.empty_like(kept)
        grad_bias = sums_like(bias, ctx.needs_input_grad[2])
        library().nmt_activation_backward(pointer(ctx.form), address(grad_out), address(grad_x), address(grad_bias))
        return None, grad_x, grad_bias, None
