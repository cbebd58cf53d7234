"""Residual sums with dropout, and their norms, on a CPU: `training_residual.hpp` of the engine, with gradients.

torch's own operators, as `model.residuals` and `model.norms` use them, are the reference.

    N rows   D d_model
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ...engine.library import library
from .calls import DTYPES, Address, Double, Dropout, Int, address, pointer, structure, sums_like

CResidual = structure(
    "CResidual",
    (Int, "dtype rows size"),
    (Address, "x y bias dropout weight shift"),
    (Double, "epsilon"),
    (Address, "sum out moments"),
)


def supports(norm: nn.Module) -> bool:
    """Return whether `residual` computes this norm."""
    affine = len(getattr(norm, "normalized_shape", ())) == 1 and norm.weight is not None
    if type(norm) is nn.LayerNorm:
        return affine and norm.bias is not None
    return type(norm) is nn.RMSNorm and affine and norm.eps is not None


def residual(
    x: Tensor | None, y: Tensor | None, bias: Tensor | None, norm: nn.Module | None, dropout: Dropout | None
) -> tuple[Tensor, Tensor]:
    """Return x + Dropout(y + bias) and its norm, (N, D) each; without a norm, twice the sum.

    `norm` is one that `supports` accepts. bias (D,). Without y, x is the sum, and there is no bias and no dropout.
    """
    rows = y if x is None else x
    assert rows is not None
    dtype = rows.dtype
    weight = None if norm is None else norm.weight.to(dtype)
    shift = None if norm is None or type(norm) is nn.RMSNorm else norm.bias.to(dtype)
    norm_of = weight, shift, 0.0 if norm is None else norm.eps
    if y is None or (x is None and bias is None and dropout is None):  # no sum
        rows = rows.contiguous()
        normed = rows if norm is None else _Residual.apply(rows, None, None, *norm_of, None)  # type: ignore[no-untyped-call]
        return rows, normed
    x, y, bias = (None if part is None else part.to(dtype).contiguous() for part in (x, y, bias))
    results = _Residual.apply(x, y, bias, *norm_of, dropout)  # type: ignore[no-untyped-call]
    return results if norm is not None else (results, results)


class _Residual(torch.autograd.Function):
    """The sum without a norm; the norm of x without y; otherwise the sum and its norm."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor | None,
        y: Tensor | None,
        bias: Tensor | None,
        weight: Tensor | None,
        shift: Tensor | None,
        epsilon: float,
        dropout: Dropout | None,
    ) -> Any:
        rows = y if x is None else x
        assert rows is not None
        total = rows if y is None else torch.empty_like(rows)
        out = moments = None
        if weight is not None:
            out, moments = torch.empty_like(rows), torch.empty(len(rows), 2, dtype=torch.float32)
        mask = dropout.form() if dropout else None
        form = CResidual(
            *(DTYPES[rows.dtype], *rows.shape),
            *(address(x), address(y), address(bias), pointer(mask), address(weight), address(shift)),
            *(epsilon, address(total), address(out), address(moments)),
        )
        library().nmt_residual_forward(pointer(form))
        ctx.set_materialize_grads(False)
        ctx.summed, ctx.epsilon, ctx.dropout = y is not None, epsilon, dropout
        ctx.save_for_backward(total if out is not None else None, bias, weight, shift, moments)
        return total if out is None else out if y is None else (total, out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        total, bias, weight, shift, moments = ctx.saved_tensors
        grad_out = None if weight is None else grads[-1]
        grad_sum = grads[0] if ctx.summed else None
        given = grad_sum if grad_out is None else grad_out
        if given is None:
            return (None,) * 7
        for_x, for_y, for_bias, for_weight, for_shift, *_ = ctx.needs_input_grad
        grad_out, grad_sum = (None if grad is None else grad.contiguous() for grad in (grad_out, grad_sum))
        normed, dropped = grad_out is not None, ctx.dropout is not None
        new = functools.partial(torch.empty_like, given, memory_format=torch.contiguous_format)
        grad_x = new() if normed and (for_x or (for_y and not dropped)) else None
        grad_y = new() if dropped and for_y else None
        params = (bias, for_bias), (weight, for_weight and normed), (shift, for_shift and normed)
        written = (grad_x, grad_y, *(sums_like(*param) for param in params))
        if any(part is not None for part in written):
            mask = ctx.dropout.form() if dropped else None
            form = CResidual(
                *(DTYPES[given.dtype], *given.shape),
                *(None, None, None, pointer(mask), address(weight), address(shift)),
                *(ctx.epsilon, address(total), None, address(moments)),
            )
            library().nmt_residual_backward(pointer(form), *map(address, (grad_out, grad_sum, *written)))
        if not normed:
            grad_x = grad_sum  # a sum hands its gradient on
        return grad_x if for_x else None, (grad_y if dropped else grad_x) if for_y else None, *written[2:], None, None
