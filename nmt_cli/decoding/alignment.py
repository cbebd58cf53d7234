"""Alignments: which source token the decoder attends to most when it predicts each output token.

    source, output ──▶ one pass of the model ──▶ cross-attention, mean over layers and heads (T, S) ──▶ by column ──▶ argmax

The first of several layers is left out: it attends to what the token before was aligned to. Some source tokens, such as articles and
the full stop, get much attention from all output tokens; so each weight is divided by the sum of its column (S) before the largest in
a row (T) is taken. docs/documents.md has what this gains over the attention of one layer.

Maps of attention (`nmt attend`) show the last layer but one: of single layers its attention is nearest to alignments by people
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


SMOOTHING = 0.1
"""Added to the sum of each column, so that tokens which get hardly any attention do not win by chance."""


def aligned(model: Transformer, source: Sequence[int], output: Sequence[int], bos: int) -> list[int]:
    """Return for each token of `output` the index of the token of `source` (which ends with the end symbol) that it is aligned to."""
    if not output:
        return []
    layers = list(model.decoder)[1:] or list(model.decoder)
    _, records = record_pass(model, [cast(DecoderLayer, layer).cross_attention for layer in layers], source, [bos, *output[:-1]])
    weights = torch.stack([record.float().mean(0) for record in records]).mean(0)  # (T, S)
    return cast(list[int], (weights / (weights.sum(0) + SMOOTHING)).argmax(1).tolist())
