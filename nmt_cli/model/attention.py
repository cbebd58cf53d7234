"""Multi-head scaled dot-product attention (sections 3.2.1 and 3.2.2).

    B batch   S source length   T target length   D d_model   H heads   K d_k   W d_v
    masks are boolean, True = may attend, and broadcast to (B, H, T, S)

`attend` runs the fastest kernel for the device; `attend_plain` is equation (1) written out, its slow twin, and
`attention_weights` its softmax. A module attends by `attend`, and while it is `watched` by the written-out form, whose weights are kept.
Projections that read the same input are one matrix product: queries, keys and values in self-attention, keys and values
of the memory in encoder-decoder attention. Projections carry biases, as in torch's `nn.Transformer` and fairseq (the paper's formula
shows none; they are 0.06 % of base's parameters). No dropout on attention weights: the
paper names none (section 5.4).

Sequences stand in a padded block (B, T, D), or, with a `Packing`, as rows (N, D) without padding. A `Cache` lets a
decoder take one position at a time: it is given the new keys and values and returns all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection
from .linear import Linear
from .packing import Packing


class Cache(Protocol):
    """Keys and values of the target positions seen so far, for one decoder layer."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, 1, K) and (B, H, 1, W); return those of all positions, (B, H, T, K) and (B, H, T, W)."""
        ...


SHORT = 256
"""Positions up to which a CPU trains faster with equation (1) in separate products: the fused kernel's backward pass
there is made for long sequences, and takes 3 to 8 times as long on sentences of 16 to 100 tokens."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) V (equation 1) by the fastest means: torch's fused kernel, or `_Short`.

    query (B, H, T, K), key (B, H, S, K), value (B, H, S, W), mask as above or None, `causal` hides the future.
    Returns (B, H, T, W).
    """
    if query.device.type == "cpu" and query.requires_grad and max(query.size(2), key.size(2)) <= SHORT:
        return _Short.apply(query, key, value, _allowed(query, key, mask, causal))  # type: ignore[no-any-return, no-untyped-call]
    if causal and mask is not None:  # the kernel takes one or the other
        mask, causal = _allowed(query, key, mask, causal), False
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def attend_plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation (1) written out: the slow twin of `attend`, same arguments."""
    return attention_weights(query, key, mask, causal) @ value  # (B, H, T, W)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(QK^T / sqrt(d_k)), (B, H, T, S): how much each query takes of each key. A row sums to 1."""
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, H, T, S)
    allowed = _allowed(query, key, mask, causal)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return scores.softmax(-1)


def _allowed(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """The mask and, if `causal`, the past: what may be attended to."""
    if not causal:
        return mask
    past = torch.ones(query.size(2), key.size(2), dtype=torch.bool, device=query.device).tril()  # (T, S)
    return past if mask is None else mask & past


class _Short(torch.autograd.Function):
    """Equation (1) and its gradient in as few passes as separate operations allow; the softmax is in fp32 at least."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        shape = (*query.shape[:-1], key.size(2))  # (B, H, T, S)
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)  # (B * H, T or S, K or W)
        ctx.scale = query.size(-1) ** -0.5
        scores = torch.bmm(query, key.transpose(1, 2)).view(shape)
        bias = torch.zeros((), dtype=torch.promote_types(query.dtype, torch.float32))
        if allowed is not None:
            bias = bias.expand(allowed.shape).masked_fill(~allowed, float("-inf"))
        weights = torch.add(bias, scores, alpha=ctx.scale).softmax(-1).to(query.dtype).flatten(0, 1)  # (B * H, T, S)
        ctx.save_for_backward(query, key, value, weights)
        return torch.bmm(weights, value).view(*shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        query, key, value, weights = ctx.saved_tensors
        batch = grads[0].size(0)
        grad = grads[0].flatten(0, 1)  # (B * H, T, W)
        of_weights = torch.bmm(grad, value.transpose(1, 2))
        exact = torch.promote_types(query.dtype, torch.float32)
        of_scores = torch._softmax_backward_data(of_weights.to(exact), weights.to(exact), -1, exact)
        of_scores = of_scores.mul_(ctx.scale).to(query.dtype)
        of_query, of_key = torch.bmm(of_scores, key), torch.bmm(of_scores.transpose(1, 2), query)
        of_value = torch.bmm(weights.transpose(1, 2), grad)
        return (*(part.view(batch, -1, *part.shape[1:]) for part in (of_query, of_key, of_value)), None)


def _heads(x: Tensor, sizes: list[int], heads: int, packing: Packing | None) -> tuple[Tensor, ...]:
    """Projections side by side, (B, T, their `sizes`) or in rows -> each as (B, H, T, K)."""
    if packing is not None:
        return packing.heads(x, sizes, heads)
    return tuple(part.view(*x.shape[:2], heads, -1).transpose(1, 2) for part in torch.split(x, sizes, -1))


def _joined(x: Tensor, packing: Packing | None) -> Tensor:
    """(B, H, T, W) -> (B, T, H * W), or rows."""
    return x.transpose(1, 2).flatten(2) if packing is None else packing.joined(x)


def _projection(d_in: int, sizes: list[int]) -> Linear:
    """Several projections as one; each part is drawn as a matrix of its own (Glorot and Bengio 2010)."""
    linear = Linear(d_in, sum(sizes))
    for part in torch.split(linear.weight.data, sizes):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


class SelfAttention(nn.Module):
    """Every position attends to positions of the same sequence."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.num_heads, self.attend = config.num_heads, attend
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        self.query_key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool = False, cache: Cache | None = None, packing: Packing | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, D). With a `cache`, x is the newest position alone and attends to all cached ones."""
        query, key, value = _heads(self.query_key_value(x), self.sizes, self.num_heads, packing)
        if cache is not None:
            key, value = cache.append(key, value)
        return self.output(_joined(self.attend(query, key, value, mask, causal), packing))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Target positions attend to the encoder's output ("encoder-decoder attention")."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.num_heads, self.attend = config.num_heads, attend
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values]
        self.query = _projection(config.d_model, [keys])
        self.key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def project(self, memory: Tensor, packing: Packing | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory (B, S, D), once a sentence: (B, H, S, K) and (B, H, S, W)."""
        key, value = _heads(self.key_value(memory), self.sizes, self.num_heads, packing)
        return key, value

    def forward(self, x: Tensor, projected: tuple[Tensor, Tensor], mask: Tensor | None, packing: Packing | None = None) -> Tensor:
        """x (B, T, D), `projected` from `project` -> (B, T, D). `packing` is the target's."""
        query = self.query(x)
        query = _heads(query, [query.size(-1)], self.num_heads, packing)[0]
        return self.output(_joined(self.attend(query, *projected, mask), packing))  # type: ignore[no-any-return]


@contextmanager
def watched(module: SelfAttention | CrossAttention) -> Iterator[list[Tensor]]:
    """Let `module` attend by equation (1) written out; each softmax, (B, H, T, S), goes into the list that is given.

    Not while other threads use the module.
    """
    seen: list[Tensor] = []
    usual = module.attend

    def attend_seen(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        seen.append(attention_weights(query, key, mask, causal))
        return seen[-1] @ value

    module.attend = attend_seen
    try:
        yield seen
    finally:
        module.attend = usual
