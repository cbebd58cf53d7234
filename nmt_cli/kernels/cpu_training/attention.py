"""Attention over packed sentences (equation 1) by the engine, on a CPU.

    query (N, H * K) or queries, keys and values side by side ──attention──▶ (N, H * V) ──output──▶ (N, D)
    memory (N', H * K + H * V): keys and values ───────────────────┘

The sentences stay one after another: no rows are gathered, no padding is computed, and there is no mask. Biases of the
projections are added, and queries and keys are rotated, when they are read. Spare rows get 0.

    N rows of queries   N' rows of keys   H heads   K d_k   V d_v
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...engine.library import library
from ...model.packing import Packing
from ...model.positions import rotated
from .calls import DTYPES, Address, Dropout, Int, address, pointer, structure, sums_like

CAttention = structure(
    "CAttention",
    (Int, "dtype rows key_rows sentences heads key value causal"),
    (Address, "starts key_starts q k v q_bias k_bias v_bias"),
    (Int, "q_stride k_stride v_stride grad_stride"),
    (Address, "rotation"),
    (Int, "positions"),
    (Address, "dropout out normalizers"),
)


@dataclass(frozen=True)
class AttentionForm:
    """What an attention computes. `rotation`, unless None, is that of `rotation`; `sizes` are K and V."""

    heads: int
    sizes: tuple[int, int]
    causal: bool = False
    rotation: Tensor | None = None


def rotation(positions: int, key_size: int) -> Tensor:
    """Return the cosine and the sine by which `rotated` rotates each pair of numbers, fp32 (positions, K / 2, 2)."""
    ones = torch.tensor([1.0, 0.0]).repeat(positions, key_size // 2)
    return rotated(ones, torch.arange(positions)).view(positions, -1, 2)


def attention(
    form: AttentionForm,
    query: Tensor,
    query_bias: Tensor | None,
    memory: Tensor | None,
    memory_bias: Tensor | None,
    queries: Packing,
    keys: Packing,
    dropout: Dropout | None = None,
) -> Tensor:
    """Return equation (1) for each sentence of two packings by itself, (N, H * V).

    Self-attention has no memory: `query` (N, 2 * H * K + H * V) has queries, keys and values side by side. Otherwise
    `query` is (N, H * K), and `memory` (N', H * K + H * V) may be some columns of a wider tensor. Biases are as wide as
    what they are added to.
    """
    given: tuple[Any, ...] = query, query_bias, memory, memory_bias, form, queries, keys, dropout
    return _Attention.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


class _Attention(torch.autograd.Function):
    """nmt_attention_forward and nmt_attention_backward."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        query_bias: Tensor | None,
        memory: Tensor | None,
        memory_bias: Tensor | None,
        form: AttentionForm,
        queries: Packing,
        keys: Packing,
        dropout: Dropout | None,
    ) -> Tensor:
        out = query.new_empty(len(query), form.heads * form.sizes[1])
        normalizers = torch.empty(len(query), form.heads)
        query, memory = _rows(query), None if memory is None else _rows(memory)
        inputs = query, query_bias, memory, memory_bias
        ctx.save_for_backward(*inputs, normalizers)
        ctx.rest = form, queries, keys, dropout
        masks = None if dropout is None else dropout.form()
        call = _call(inputs, normalizers, form, queries, keys, masks, out)
        library().nmt_attention_forward(pointer(call))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        query, query_bias, memory, memory_bias, normalizers = ctx.saved_tensors
        form, queries, keys, dropout = ctx.rest
        width = form.heads * form.sizes[0]
        query_grad = torch.empty_like(query)
        query_sums = sums_like(query_bias, ctx.needs_input_grad[1])
        if memory is None:
            memory_grad = memory_sums = None
            parts, sums = query_grad[:, width:], None if query_sums is None else query_sums[width:]
        else:
            parts = memory_grad = memory.new_empty(memory.shape)
            sums = memory_sums = sums_like(memory_bias, ctx.needs_input_grad[3])
        masks = None if dropout is None else dropout.form()
        call = _call((query, query_bias, memory, memory_bias), normalizers, form, queries, keys, masks)
        library().nmt_attention_backward(
            pointer(call),
            address(grads[0].contiguous()),
            address(query_grad),
            address(parts),
            address(parts[:, width:]),
            address(query_sums),
            address(sums),
            address(None if sums is None else sums[width:]),
        )
        return query_grad, query_sums, memory_grad, memory_sums, None, None, None, None


def _rows(x: Tensor) -> Tensor:
    """Return x (N, W) with numbers of a row side by side."""
    return x if x.stride(1) == 1 else x.contiguous()


def _call(
    inputs: tuple[Tensor | None, ...],
    normalizers: Tensor,
    form: AttentionForm,
    queries: Packing,
    keys: Packing,
    masks: Any,
    out: Tensor | None = None,
) -> Any:
    """Return nmt_attention."""
    query, query_bias, memory, memory_bias = inputs
    assert query is not None
    width = form.heads * form.sizes[0]
    k, k_bias = (query[:, width:], query_bias) if memory is None else (memory, memory_bias)
    if memory is None and query_bias is not None:
        k_bias = query_bias[width:]
    return CAttention(
        DTYPES[query.dtype],
        len(query),
        len(k),
        queries.sentences,
        form.heads,
        *form.sizes,
        form.causal,
        address(queries.starts),
        address(keys.starts),
        address(query),
        address(k),
        address(k[:, width:]),
        address(query_bias),
        address(k_bias),
        address(None if k_bias is None else k_bias[width:]),
        query.stride(0),
        k.stride(0),
        k.stride(0),
        query.stride(0) if memory is None else memory.size(1),
        address(form.rotation),
        0 if form.rotation is None else len(form.rotation),
        pointer(masks),
        address(out),
        address(normalizers),
    )
