"""Attention with gradients over short sequences (equation 1), on a CPU.

torch's fused function has a backward pass made for long sequences: on sentences of 16 to 100 tokens it takes 3 to 8
times as long as the separate products here. `model.attention.attend_plain` is the reference implementation.

    B batch   H heads   T target length   S source length   K d_k   W d_v
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ...model.attention import CrossAttention, SelfAttention, allowed, attend

KINDS = (SelfAttention, CrossAttention)
SHORT = 256
"""Number of positions up to which separate matrix products are faster."""


def supports(module: SelfAttention | CrossAttention) -> str:
    """Return "" if `module` attends by equation (1), else the reason why there is no kernel for it."""
    if type(module) not in KINDS or module.attend is not attend:
        return f"attention {type(module).__name__!r} has no kernel"
    return "dropout on attention weights has no kernel" if module.dropout else ""


def replacement(module: SelfAttention | CrossAttention) -> SelfAttention | CrossAttention:
    """Return the same attention, over the same parameters, by `attend_short`."""
    faster = copy.copy(module)
    faster.attend = attend_short
    return faster


def attend_short(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return the same as `model.attention.attend`, which computes inputs that are long or need no gradient."""
    trained = query.requires_grad or key.requires_grad or value.requires_grad
    if query.device.type == "cpu" and trained and max(query.size(2), key.size(2)) <= SHORT:
        return _ShortAttention.apply(query, key, value, allowed(query, key, mask, causal))  # type: ignore[no-any-return, no-untyped-call]
    return attend(query, key, value, mask, causal)


class _ShortAttention(torch.autograd.Function):
    """Equation (1) and its gradient in batched matrix products; the softmax is in fp32 at least."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, may_attend: Tensor | None) -> Tensor:
        shape = (*query.shape[:-1], key.size(2))  # (B, H, T, S)
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)  # (B * H, T or S, K or W)
        ctx.scale = query.size(-1) ** -0.5
        scores = torch.bmm(query, key.transpose(1, 2)).view(shape)
        bias = torch.zeros((), dtype=torch.promote_types(query.dtype, torch.float32))
        if may_attend is not None:
            bias = bias.expand(may_attend.shape).masked_fill(~may_attend, float("-inf"))
        weights = torch.add(bias, scores, alpha=ctx.scale).softmax(-1).to(query.dtype).flatten(0, 1)  # (B * H, T, S)
        ctx.save_for_backward(query, key, value, weights)
        return torch.bmm(weights, value).view(*shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        query, key, value, weights = ctx.saved_tensors
        batch = grads[0].size(0)
        grad = grads[0].flatten(0, 1)  # (B * H, T, W)
        weights_grad = torch.bmm(grad, value.transpose(1, 2))
        exact = torch.promote_types(query.dtype, torch.float32)
        scores_grad = torch._softmax_backward_data(weights_grad.to(exact), weights.to(exact), -1, exact)
        scores_grad = scores_grad.mul_(ctx.scale).to(query.dtype)
        query_grad, key_grad = torch.bmm(scores_grad, key), torch.bmm(scores_grad.transpose(1, 2), query)
        value_grad = torch.bmm(weights.transpose(1, 2), grad)
        return (*(part.view(batch, -1, *part.shape[1:]) for part in (query_grad, key_grad, value_grad)), None)
