"""Which source token each output token looks at: attention of the decoder to the encoder.

    sources, outputs ──▶ the model reads both at once ──▶ weights of one decoder layer, mean over heads (T, S) ──▶ argmax

The layer is the last but one (of several): attention there is nearest to alignments by hand (Garg et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ..model.attention import attention_weights
from ..model.layers import DecoderLayer
from ..model.transformer import Transformer


@torch.inference_mode()
def cross_attention(model: Transformer, source: Sequence[int], target: Sequence[int], number: int | None = None) -> Tensor:
    """Ids of a source with its end symbol (S,), and of a target behind its begin symbol (T,) -> mean weights over the
    heads of decoder layer `number` (None: the last but one), (T, S): a row is of what is predicted after each target
    token, and sums to 1.
    """
    device = model.output_weight.device
    number = max(len(model.decoder) - 2, 0) if number is None else number
    memory = model.project_memory(model.encode(torch.tensor([list(source)], device=device), None))
    x = model.embed(torch.tensor([list(target)], device=device), model.matrix("target"), model.target_positions(len(target)))
    weights: list[Tensor] = []
    for layer, (keys, values) in zip(list(model.decoder)[: number + 1], memory, strict=False):
        weights.append(_through(cast(DecoderLayer, layer), x, keys, values))
        x = layer(x, (keys, values), None)
    return weights[-1]


def _through(layer: DecoderLayer, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The layer's attention to the memory for x (1, T, D), keys and values (1, H, S, K) -> (T, S)."""
    attention = layer.cross_attention
    seen: list[Tensor] = []

    def look(h: Tensor) -> Tensor:
        query = attention.query(h).view(*h.shape[:2], attention.num_heads, -1).transpose(1, 2)  # (1, H, T, K)
        seen.append(attention_weights(query, keys).mean(1)[0])
        return h

    layer.around_cross_attention(layer.around_self_attention(x, lambda h: layer.self_attention(h, None, causal=True)), look)
    return seen[0]


def aligned(model: Transformer, source: Sequence[int], output: Sequence[int], bos: int) -> list[int]:
    """For each token of `output` the place in `source` (which ends with the end symbol) that it looks at most."""
    if not output:
        return []
    return cast(list[int], cross_attention(model, source, [bos, *output[:-1]]).argmax(1).tolist())
