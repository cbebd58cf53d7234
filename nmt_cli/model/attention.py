"""Multi-head scaled dot-product attention (sections 3.2.1 and 3.2.2).

    B batch   S source length   T target length   D d_model   H heads   K d_k   W d_v
    masks are boolean, True = may attend, and broadcast to (B, H, T, S)

`attend` runs torch's fused kernel; `attend_plain` is equation (1) written out, its slow twin. Projections that read
the same input are one matrix product: queries, keys and values in self-attention, keys and values of the memory in
encoder-decoder attention. Projections carry biases, as in torch's `nn.Transformer` and fairseq (the paper's formula
shows none; they are 0.06 % of base's parameters). No dropout on attention weights: the
paper names none (section 5.4).

A `Cache` lets a decoder take one position at a time: it is given the new keys and values and returns all of them.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection


class Cache(Protocol):
    """Keys and values of the target positions seen so far, for one decoder layer."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, 1, K) and (B, H, 1, W); return those of all positions, (B, H, T, K) and (B, H, T, W)."""
        ...


SHORT = 256
"""Positions up to which a CPU trains faster with equation (1) written out: the fused kernel's backward pass there is
made for long sequences, and takes 3 to 8 times as long on sentences of 16 to 100 tokens."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(QK^T / sqrt(d_k)) V (equation 1) by the fastest means: torch's fused kernel, or `attend_plain`.

    query (B, H, T, K), key (B, H, S, K), value (B, H, S, W), mask as above or None, `causal` hides the future.
    Returns (B, H, T, W).
    """
    if query.device.type == "cpu" and query.requires_grad and max(query.size(2), key.size(2)) <= SHORT:
        return attend_plain(query, key, value, mask, causal)
    if causal and mask is not None:  # the kernel takes one or the other
        mask, causal = mask & _past(query.size(2), key.size(2), query.device), False
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def attend_plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation (1) written out: the slow twin of `attend`, same arguments."""
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, H, T, S)
    if causal:
        seen = _past(query.size(2), key.size(2), query.device)
        mask = seen if mask is None else mask & seen
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ value  # (B, H, T, W)


def _past(targets: int, sources: int, device: torch.device) -> Tensor:
    return torch.ones(targets, sources, dtype=torch.bool, device=device).tril()  # (T, S)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    batch, length, size = x.shape
    return x.view(batch, length, num_heads, size // num_heads).transpose(1, 2)  # (B, H, T, K)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # (B, T, H * W)


def _projection(d_in: int, sizes: list[int]) -> nn.Linear:
    """Several projections as one; each part is drawn as a matrix of its own (Glorot and Bengio 2010)."""
    linear = nn.Linear(d_in, sum(sizes))
    for part in torch.split(linear.weight.data, sizes):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


class SelfAttention(nn.Module):
    """Every position attends to positions of the same sequence."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        self.query_key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool = False, cache: Cache | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, D). With a `cache`, x is the newest position alone and attends to all cached ones."""
        query, key, value = (_heads(part, self.num_heads) for part in torch.split(self.query_key_value(x), self.sizes, -1))
        if cache is not None:
            key, value = cache.append(key, value)
        return self.output(_joined(attend(query, key, value, mask, causal)))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Target positions attend to the encoder's output ("encoder-decoder attention")."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values]
        self.query = _projection(config.d_model, [keys])
        self.key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory (B, S, D), once a sentence: (B, H, S, K) and (B, H, S, W)."""
        key, value = torch.split(self.key_value(memory), self.sizes, -1)
        return _heads(key, self.num_heads), _heads(value, self.num_heads)

    def forward(self, x: Tensor, projected: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """x (B, T, D), `projected` from `project` -> (B, T, D)."""
        query = _heads(self.query(x), self.num_heads)
        return self.output(_joined(attend(query, *projected, mask)))  # type: ignore[no-any-return]
