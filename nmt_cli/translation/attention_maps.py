"""Attention maps: the attention weights of all layers and heads, from one pass over a sentence and its translation.

    source ids (S), target ids ──▶ a forced pass (`forced`)
        ──▶ encoder (L, H, S, S), decoder (L, H, T, T), cross (L, H, T, S), log P

The pass is in fp32 (int8 for a model that is stored in int8), over all target tokens at once (teacher forcing). A row
is a query, a column a key, and a row sums to 1. The rows of the target are steps: step t reads the begin symbol and t
tokens, and predicts token t + 1; the last step predicts the end symbol. So a row of `decoder` and `cross` is labelled
with the token that it predicts, and a column of `decoder` with the token that it reads.

    L layers   H heads   S source tokens, end symbol counted   T target tokens, end symbol counted
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from ..data.tokenizer import BOS, EOS, Vocabulary, ended
from ..errors import DataError, UsageError, check_choice
from ..recipe import ModelSection
from .forced import ForcedModel

Array = npt.NDArray[Any]

KINDS = {
    "encoder": "the source reads itself",
    "decoder": "the translation reads what it has written",
    "cross": "the translation reads the source",
}
"""The three uses of attention (section 3.2.3): encoder self-attention, decoder self-attention, encoder-decoder
attention. A decoder with SSRUs has no self-attention."""


def kinds_of(config: ModelSection) -> list[str]:
    """Return the kinds of attention that a model has."""
    return [kind for kind in KINDS if kind != "decoder" or config.decoder == "self_attention"]


@dataclass(frozen=True)
class View:
    """Weights of one kind, for all or some of its layers and heads. Layers and heads are counted from 1."""

    kind: str
    rows: tuple[str, ...]
    """Pieces of the queries; for decoder and cross, the predicted pieces."""
    columns: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Array
    """(layers, heads, rows, columns), fp32."""

    @property
    def causal(self) -> bool:
        """Whether row t has weights for columns 0 to t only."""
        return self.kind == "decoder"

    def select(self, layer: int | None = None, head: int | None = None) -> View | None:
        """Return a view of one layer, one head or both; None if this kind has no such layer or head."""
        if layer not in (None, *self.layers) or head not in (None, *self.heads):
            return None
        layers = self.layers if layer is None else (layer,)
        heads = self.heads if head is None else (head,)
        weights = self.weights[[self.layers.index(one) for one in layers]][:, [self.heads.index(one) for one in heads]]
        return replace(self, layers=layers, heads=heads, weights=weights)


@dataclass(frozen=True)
class AttentionRecord:
    """A sentence, its translation, and the weights that were computed for them."""

    model: str
    source: str
    translation: str
    log_prob: float
    """log P of the translation with its end symbol, a natural logarithm."""
    score: float
    """log P / ((5 + T) / 6) ^ alpha, as in beam search."""
    views: tuple[View, ...]


def compute_attention(
    model: ForcedModel, vocabulary: Vocabulary, source: Sequence[int], target: Sequence[int]
) -> tuple[tuple[View, ...], float]:
    """Return a view of each kind, and log P, given the ids of a sentence and of its translation without begin and end
    symbols.

    Raises DataError if a side is longer than the model can take.
    """
    longest = model.config.max_positions - 1
    for side, ids in (("sentence", source), ("translation", target)):
        if len(ids) > longest:
            raise DataError(
                f"the {side} has {len(ids):,} pieces; the model takes {longest:,} at once "
                "(model.max_positions, less one for the end symbol). Give a shorter one."
            )
    read_source = ended(source, model.config.source_end)
    [log_probs], weights = model.forced(
        [read_source], [[BOS, *target]], [[*target, EOS]], attention=kinds_of(model.config)
    )
    source_table, target_table = vocabulary.source.table, vocabulary.target.table
    source_pieces = [source_table[i] for i in read_source]
    read, output = [target_table[i] for i in (BOS, *target)], [target_table[i] for i in (*target, EOS)]
    labels = {"encoder": (source_pieces, source_pieces), "decoder": (output, read), "cross": (output, source_pieces)}
    views: list[View] = []
    for kind in weights:
        rows, columns = labels[kind]
        layers, heads = (tuple(range(1, size + 1)) for size in weights[kind].shape[:2])
        views.append(View(kind, tuple(rows), tuple(columns), layers, heads, weights[kind]))
    return tuple(views), math.fsum(log_probs.tolist())


def check_selection(config: ModelSection, kind: str | None, layer: int | None, head: int | None) -> None:
    """Raise UsageError if a model of this size does not have this kind, layer or head."""
    if kind is not None:
        check_choice("--kind", kind, kinds_of(config))
    counts = {"encoder": config.encoder_layers, "decoder": config.decoder_layers, "cross": config.decoder_layers}
    layers = counts[kind] if kind else max(counts.values())
    for name, value, count in (("layer", layer, layers), ("head", head, config.num_heads)):
        if value is not None and not 1 <= value <= count:
            raise UsageError(f"--{name} {value}: expected 1 to {count}; {name}s are counted from 1.")


def select_views(
    views: Sequence[View], kind: str | None = None, layer: int | None = None, head: int | None = None
) -> tuple[View, ...]:
    """Return the views of this kind, layer and head; None selects all."""
    return tuple(part for view in views if kind in (None, view.kind) and (part := view.select(layer, head)))
