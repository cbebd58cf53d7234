"""What every head looks at: the attention weights of the model's own pass over a sentence and its translation.

    source ids (S), target ids ──▶ one pass, every attention `watched` ──▶ encoder (L, H, S, S), decoder (L, H, T, T),
                                                                          cross (L, H, T, S), logits (T, V)

The pass is the model's: `encode`, `project_memory` and `decode` in fp32, all target tokens at once (teacher forcing).
A row is a query, a column a key, and a row sums to 1. The target's rows are steps: step t has read the begin symbol and
t tokens, and writes token t + 1, at last the end symbol. So a row of `decoder` and `cross` bears the token that is
written there, a column of `decoder` the token that was read.

    L layers   H heads   S source tokens, end symbol counted   T target tokens, end symbol counted   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ..data.tokenizer import BOS, EOS, Vocabulary
from ..errors import DataError, UsageError
from ..model.attention import CrossAttention, SelfAttention, watched
from ..model.transformer import Transformer
from ..recipe import ModelSection

KINDS = {"encoder": "the source reads itself", "decoder": "the translation reads what it has written", "cross": "the translation reads the source"}
"""The three uses of attention (section 3.2.3): encoder self-attention, decoder self-attention, encoder-decoder attention."""

Attention = SelfAttention | CrossAttention


@dataclass(frozen=True)
class Maps:
    """Weights by kind, (L, H, rows, columns), and the pass's logits (T, V); on the CPU, in fp32."""

    weights: dict[str, Tensor]
    logits: Tensor


@dataclass(frozen=True)
class View:
    """Attention of one kind, or some of its layers and heads, which are counted from 1."""

    kind: str
    rows: tuple[str, ...]
    """The pieces that look; of decoder and cross those that are written."""
    columns: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Tensor
    """(layers, heads, rows, columns)."""

    @property
    def causal(self) -> bool:
        """Whether row t has weights for columns 0 to t alone."""
        return self.kind == "decoder"

    def only(self, layer: int | None = None, head: int | None = None) -> View | None:
        """One layer, one head or both; None where this kind has no such layer or head."""
        if layer not in (None, *self.layers) or head not in (None, *self.heads):
            return None
        layers = self.layers if layer is None else (layer,)
        heads = self.heads if head is None else (head,)
        chosen = self.weights[[self.layers.index(one) for one in layers]][:, [self.heads.index(one) for one in heads]]
        return replace(self, layers=layers, heads=heads, weights=chosen)


@dataclass(frozen=True)
class Seen:
    """A sentence, its translation and what was looked at."""

    model: str
    source: str
    translation: str
    log_prob: float
    """Natural, of the translation with its end symbol."""
    score: float
    """log P / ((5 + T) / 6) ^ alpha, by which beam search ranks."""
    views: tuple[View, ...]


@torch.inference_mode()
def attention_maps(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Maps:
    """Ids of a source with its end symbol, and of a target behind its begin symbol -> all weights.

    `model` is in evaluation mode and nobody else uses it meanwhile.
    """
    encoder = [cast(Attention, layer.self_attention) for layer in model.encoder]
    decoder = [cast(Attention, layer.self_attention) for layer in model.decoder]
    cross = [cast(Attention, layer.cross_attention) for layer in model.decoder]
    device = model.output_weight.device
    with ExitStack() as stack:
        seen = {kind: [stack.enter_context(watched(one)) for one in several] for kind, several in zip(KINDS, (encoder, decoder, cross), strict=True)}
        hidden = model(torch.tensor([list(source)], device=device), None, torch.tensor([list(target)], device=device))
    weights = {kind: torch.cat([one for [one] in several]).float().cpu() for kind, several in seen.items()}  # B = 1 is where layers go
    return Maps(weights, model.logits(hidden)[0].float().cpu())


def look(model: Transformer, vocabulary: Vocabulary, source: Sequence[int], target: Sequence[int]) -> tuple[tuple[View, ...], float]:
    """Ids of a sentence and of its translation, without begin and end symbols -> the three kinds' views, and log P.

    Raises DataError where a side is longer than the model can take.
    """
    longest = model.config.max_positions - 1
    for side, ids in (("sentence", source), ("translation", target)):
        if len(ids) > longest:
            raise DataError(f"the {side} has {len(ids):,} pieces; the model takes {longest:,} at once (model.max_positions, less one for the end symbol). Give a shorter one.")
    maps = attention_maps(model, [*source, EOS], [BOS, *target])
    written = torch.tensor([*target, EOS])
    log_prob = maps.logits.double().log_softmax(-1).gather(1, written[:, None]).sum().item()
    sources, targets = vocabulary.source.table, vocabulary.target.table
    read, heard = [targets[i] for i in (BOS, *target)], [sources[i] for i in (*source, EOS)]
    output = [*read[1:], targets[EOS]]
    labels = {"encoder": (heard, heard), "decoder": (output, read), "cross": (output, heard)}
    return tuple(_view(kind, *labels[kind], maps.weights[kind]) for kind in KINDS), log_prob


def _view(kind: str, rows: Sequence[str], columns: Sequence[str], weights: Tensor) -> View:
    layers, heads = (tuple(range(1, size + 1)) for size in weights.shape[:2])
    return View(kind, tuple(rows), tuple(columns), layers, heads, weights)


def check_choice(config: ModelSection, kind: str | None, layer: int | None, head: int | None) -> None:
    """Raise UsageError where a model of this size has nothing that --kind, --layer and --head name."""
    if kind not in (None, *KINDS):
        raise UsageError(f"--kind {kind!r}: expected encoder, decoder or cross.")
    layers = config.encoder_layers if kind == "encoder" else config.decoder_layers if kind else max(config.encoder_layers, config.decoder_layers)
    for name, value, count in (("layer", layer, layers), ("head", head, config.num_heads)):
        if value is not None and not 1 <= value <= count:
            raise UsageError(f"--{name} {value}: expected 1 to {count}; {name}s are counted from 1.")


def chosen(views: Sequence[View], kind: str | None = None, layer: int | None = None, head: int | None = None) -> tuple[View, ...]:
    """The views that are left of these: of one kind, layer, head, or of several or all where None is given."""
    return tuple(left for view in views if kind in (None, view.kind) and (left := view.only(layer, head)))
