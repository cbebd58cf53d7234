"""Multi-head scaled dot-product attention (sections 3.2.1 and 3.2.2).

    B batch   S source length   T target length   D d_model   H heads   K d_k   W d_v
    masks are boolean, True = may attend, and broadcast to (B, H, T, S)

`attend` is equation (1), computed by torch's own function; `attention_weights` is its softmax. Projections that read
the same input are one matrix product: queries, keys and values in self-attention, keys and values of the memory in
encoder-decoder attention. Projections have biases, as in torch's `nn.Transformer` and fairseq. The paper's formula
shows no biases; they are 0.06 % of base's parameters. Attention weights get dropout only if `model.attention_dropout`
is set: the paper mentions none there (section 5.4).

A `Layout` describes the sequences in x: padded (B, T, D), or packed (N, D) without padding. With a `Cache`, a decoder
computes one position at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection
from ..registry import POSITIONS, load
from .packing import PADDED, Layout, Packing
from .positions import rotated


class Cache(Protocol):
    """Keys and values of the target positions seen so far, for one decoder layer."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest keys (B, H, 1, K) and values (B, H, 1, W).

        Return those of all positions, (B, H, T, K) and (B, H, T, W).
        """
        ...


AttentionFunction = Callable[[Tensor, Tensor, Tensor, "Tensor | None", bool], Tensor]
"""query (B, H, T, K), key (B, H, S, K), value (B, H, S, W), mask or None, causal -> (B, H, T, W)."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Return softmax(QK^T / sqrt(d_k)) V (equation 1), (B, H, T, W); arguments as in `AttentionFunction`.

    `causal` hides the positions after the query's own. `dropout` is the dropout rate of the attention weights.
    """
    if causal and mask is not None:  # torch accepts only one of them
        mask, causal = allowed(query, key, mask, causal), False
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=dropout)


def attend_plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return the same as `attend`, written out: the reference implementation of equation (1)."""
    return attention_weights(query, key, mask, causal) @ value  # (B, H, T, W)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return softmax(QK^T / sqrt(d_k)), (B, H, T, S): the share of each key in each query's result. A row sums to 1."""
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, H, T, S)
    may_attend = allowed(query, key, mask, causal)
    if may_attend is not None:
        scores = scores.masked_fill(~may_attend, float("-inf"))
    return scores.softmax(-1)


def allowed(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Return the mask, which also hides the future if `causal`. None: every query may attend to every key."""
    if not causal:
        return mask
    past = torch.ones(query.size(2), key.size(2), dtype=torch.bool, device=query.device).tril()  # (T, S)
    return past if mask is None else mask & past


def _projection(d_in: int, sizes: list[int]) -> nn.Linear:
    """Return one linear map for several projections.

    Each projection is initialised as a separate matrix (Glorot and Bengio 2010).
    """
    linear = nn.Linear(d_in, sum(sizes))
    for part in torch.split(linear.weight.data, sizes):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


class _Attention(nn.Module):
    """The common part of self-attention and cross-attention."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        self.attend: AttentionFunction = attend

    def attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Return the result of `attend`, in training with dropout on the attention weights."""
        if self.dropout and self.training:
            return attend(query, key, value, mask, causal, self.dropout)
        return self.attend(query, key, value, mask, causal)


class SelfAttention(_Attention):
    """Every position attends to positions of the same sequence."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__(config)
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        self.rotates = bool(getattr(load(POSITIONS, config.positions, "model.positions"), "rotates", False))
        self.query_key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def project(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries, keys and values side by side, (…, sum of `sizes`), for x (…, D).

        Its `positions` are broadcast to (…,).
        """
        rows: Tensor = self.query_key_value(x)
        if not self.rotates:
            return rows
        heads = rows[..., : 2 * self.sizes[0]].reshape(*rows.shape[:-1], 2 * self.num_heads, -1)  # (…, 2 * H, K)
        return torch.cat((rotated(heads, positions[..., None]).flatten(-2), rows[..., 2 * self.sizes[0] :]), -1)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool = False,
        cache: Cache | None = None,
        layout: Layout = PADDED,
        start: int = 0,
    ) -> Tensor:
        """Map x (B, T, D), at positions from `start` on, to (B, T, D).

        With a `cache`, x is only the newest position, which attends to all cached ones.
        """
        positions = (
            layout.positions if isinstance(layout, Packing) else torch.arange(start, start + x.size(1), device=x.device)
        )
        query, key, value = layout.split_heads(self.project(x, positions), self.sizes, self.num_heads)
        if cache is not None:
            key, value = cache.append(key, value)
        return self.output(layout.merge_heads(self.attended(query, key, value, mask, causal)))  # type: ignore[no-any-return]


class CrossAttention(_Attention):
    """Target positions attend to the encoder's output ("encoder-decoder attention")."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__(config)
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values]
        self.query = _projection(config.d_model, [keys])
        self.key_value = _projection(config.d_model, self.sizes)
        self.output = _projection(values, [config.d_model])

    def project(self, memory: Tensor, layout: Layout = PADDED) -> tuple[Tensor, Tensor]:
        """Return keys and values of the memory (B, S, D), once per sentence: (B, H, S, K) and (B, H, S, W)."""
        key, value = layout.split_heads(self.key_value(memory), self.sizes, self.num_heads)
        return key, value

    def forward(
        self,
        x: Tensor,
        projected: tuple[Tensor, Tensor],
        mask: Tensor | None,
        layout: Layout = PADDED,
        memory_layout: Layout = PADDED,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D).

        `projected` comes from `project`; `layout` is the target's, `memory_layout` the source's.
        """
        query = self.query(x)
        [query] = layout.split_heads(query, [query.size(-1)], self.num_heads)
        return self.output(layout.merge_heads(self.attended(query, *projected, mask)))  # type: ignore[no-any-return]


@contextmanager
def record_attention(module: SelfAttention | CrossAttention) -> Iterator[list[Tensor]]:
    """Yield a list to which `module` appends its attention weights, (B, H, T, S), at each call while the block runs.

    No other thread may use the module during that time.
    """
    record: list[Tensor] = []
    usual = module.attend

    def attend_and_record(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        record.append(attention_weights(query, key, mask, causal))
        return record[-1] @ value

    module.attend = attend_and_record
    try:
        yield record
    finally:
        module.attend = usual
