"""Alignments: which source token the decoder attends to most when it predicts each output token.

    source, output ──▶ one pass of the model ──▶ cross-attention of one layer, mean over heads (T, S) ──▶ argmax

The layer is the last but one (of several): its attention is nearest to alignments by people (Garg et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from ..model.layers import DecoderLayer
from ..model.transformer import Transformer
from .attention_record import record_pass


def alignment_layer(model: Transformer) -> int:
    """Return the number of the decoder layer whose attention is read, counted from 0."""
    return max(len(model.decoder) - 2, 0)


def cross_attention(model: Transformer, source: Sequence[int], target: Sequence[int], layer: int | None = None) -> Tensor:
    """Return the mean weights over the heads of a decoder layer, (T, S).

    `source` are ids with the end symbol (S,), `target` ids behind the begin symbol (T,). `layer` counts from 0; None: the
    last but one. Row t belongs to what is predicted after target token t, and sums to 1.
    """
    layer = alignment_layer(model) if layer is None else layer
    _, [weights] = record_pass(model, [cast(DecoderLayer, model.decoder[layer]).cross_attention], source, target)
    return weights.mean(0)


def aligned(model: Transformer, source: Sequence[int], output: Sequence[int], bos: int) -> list[int]:
    """Return for each token of `output` the index of the token of `source` (which ends with the end symbol) with the largest weight."""
    if not output:
        return []
    return cast(list[int], cross_attention(model, source, [bos, *output[:-1]]).argmax(1).tolist())
