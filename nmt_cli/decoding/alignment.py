"""Alignments: for each output token, the source token to which the decoder attends most when it predicts this token.

    source, output ──▶ one pass of the model ──▶ cross-attention, mean over layers and heads (T, S) ──▶ by column ──▶ argmax

The first of several layers is left out: it attends to the source token that is aligned to the token before. Some source tokens,
such as articles and the full stop, get much attention from all output tokens. So each weight is divided by the sum of its column (S)
before the largest weight in a row (T) is taken. docs/documents.md compares this with the attention of one layer.

`alignment_layer` is the last layer but one: among single layers, its attention is nearest to alignments by people
(Garg et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ..model.layers import DecoderLayer
from ..model.transformer import Transformer
from .attention_record import record_pass


def alignment_layer(model: Transformer) -> int:
    """Return the index of the decoder layer whose attention is nearest to an alignment: the last but one."""
    return max(len(model.decoder) - 2, 0)


def cross_attention(
    model: Transformer, source: Sequence[int], target: Sequence[int], layer: int | None = None
) -> Tensor:
    """Return the mean weights over the heads of a decoder layer, (T, S).

    `source` are ids with the end symbol (S,), `target` ids that start with the begin symbol (T,). `layer` is an index from 0;
    None: the last but one. Row t belongs to the token that is predicted after target token t, and sums to 1.
    """
    layer = alignment_layer(model) if layer is None else layer
    _, [weights] = record_pass(model, [cast(DecoderLayer, model.decoder[layer]).cross_attention], source, target)
    return weights.mean(0)


SMOOTHING = 0.1
"""Added to the sum of each column, so that tokens with hardly any attention are not chosen by chance."""


def aligned(model: Transformer, source: Sequence[int], output: Sequence[int], bos: int) -> list[int]:
    """Return for each token of `output` the index of the token of `source` to which it is aligned. `source` ends with the end symbol."""
    if not output:
        return []
    layers = list(model.decoder)[1:] or list(model.decoder)
    _, records = record_pass(
        model, [cast(DecoderLayer, layer).cross_attention for layer in layers], source, [bos, *output[:-1]]
    )
    weights = torch.stack([record.float().mean(0) for record in records]).mean(0)  # (T, S)
    return cast(list[int], (weights / (weights.sum(0) + SMOOTHING)).argmax(1).tolist())
