"""Alignments: for each output token, the source token to which the decoder attends most when it predicts this token.

    source, output ──▶ one pass of the model ──▶ cross-attention, mean over layers and heads (T, S)
        ──▶ by column ──▶ argmax

The first of several layers is left out: it attends to the source token that is aligned to the token before. Some source
tokens, such as articles and the full stop, get much attention from all output tokens. So each weight is divided by the
sum of its column (S) before the largest weight in a row (T) is taken. docs/documents.md compares this with the
attention of one layer.

If a head was trained to align (`model.guided_alignment_layer`), its weights are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.tokenizer import BOS
from ..recipe import ModelSection
from ..search.protocols import alignment_layer
from .forced import ForcedModel


def cross_attention(
    model: ForcedModel, source: Sequence[int], target: Sequence[int], layer: int | None = None
) -> npt.NDArray[Any]:
    """Return weights of attention to the source, (T, S), fp32: of the head that was trained to align, or the mean over
    the heads of a decoder layer.

    `source` are ids with the end symbol (S,), `target` ids that start with the begin symbol (T,). `layer` is an index
    from 0; None: the trained head, else the last layer but one. Row t belongs to the token that is predicted after
    target token t, and sums to 1.
    """
    _, weights = model.forced([source], [target], attention=["cross"])
    if layer is None and model.config.guided_alignment_layer:
        return _guided(model.config, weights["cross"])
    of_layer: npt.NDArray[Any] = weights["cross"][alignment_layer(model.config) if layer is None else layer]
    return of_layer.mean(0)  # type: ignore[no-any-return]


def _guided(config: ModelSection, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the weights (T, S) of the head that was trained to align, of those of all layers and heads."""
    head: npt.NDArray[Any] = weights[config.guided_alignment_layer - 1][0]
    return head


SMOOTHING = 0.1
"""Added to the sum of each column, so that tokens with hardly any attention are not chosen by chance."""


def aligned(model: ForcedModel, source: Sequence[int], output: Sequence[int]) -> list[int]:
    """Return for each token of `output` the index of the token of `source` to which it is aligned.

    `source` ends with the end symbol.
    """
    if not output:
        return []
    _, weights = model.forced([source], [[BOS, *output[:-1]]], attention=["cross"])
    if model.config.guided_alignment_layer:
        guided: list[int] = _guided(model.config, weights["cross"]).argmax(1).tolist()
        return guided
    layers = weights["cross"][1:] if len(weights["cross"]) > 1 else weights["cross"]
    mean = layers.astype(np.float64).mean((0, 1))  # (T, S)
    indices: list[int] = (mean / (mean.sum(0) + SMOOTHING)).argmax(1).tolist()
    return indices
