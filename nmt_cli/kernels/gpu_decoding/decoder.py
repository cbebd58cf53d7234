"""A decoder whose steps have few different shapes, so that a CUDA graph can be kept for each shape (`graphs`).

    P sentences, of which B are in use   W beam   T steps   S source length   H heads   K d_k or d_v   V vocabulary

    sources ──▶ encoder ──▶ memory: keys and values (P * H, S, K) ─┐
    step: tokens (P, W), steps (P,), ancestors (P, W, T) ──────────┴──▶ Graphs(p, t, s) ──▶ logits (P * W, V) ──▶ of the open ones
                                         caches (P * H, T * W, K) ─┘

All inputs of a step are in an `Arena`, whose tensors keep their addresses. A step computes the arena's first p sentences, t steps
and s source positions. These numbers come from `bucket`, so they take few values. So a step also computes closed hypotheses, and
sentences that are not in use. Hypothesis w writes its key of step i to slot i * W + w. `ancestors` holds which hypothesis of step i
it descends from, and a mask hides the slots of the others. When search reorders hypotheses, only `ancestors` changes.

`decoding.cached_decoder.CachedDecoder` is the reference. Both decoders agree up to rounding; tests compare them on a CPU, where the
same operations run without a graph. This decoder has not been measured on a GPU, so it is used only if NMT_CUDA_GRAPHS=on is set.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ...model.attention import CrossAttention, SelfAttention, attend
from ...model.layers import DecoderLayer
from ...model.packing import Packing
from ...model.transformer import Transformer
from .graphs import Graphs

FIRST_STEPS, FIRST_SOURCE = 64, 64
"""T and S of a new arena."""
LANES = 16
"""T and S are multiples of LANES."""


def supports(model: Transformer) -> str:
    """Return "" if the decoder supports this model and the environment asks for it, else the reason why not. Every module is checked by its exact type."""
    if model.device.type != "cuda":
        return f"device {model.device.type!r} has no kernel"
    return unsupported(model) or ("" if wanted() else "CUDA graphs are not measured yet: NMT_CUDA_GRAPHS=on uses them")


def wanted() -> bool:
    """Return whether the environment asks for CUDA graphs."""
    return os.environ.get("NMT_CUDA_GRAPHS", "").lower() in ("on", "1", "yes")


def unsupported(model: Transformer) -> str:
    """Return why the model has no kernel, or ""."""
    if type(model) is not Transformer:
        return f"model {type(model).__name__!r} has no kernel"
    if model.next_word is not None:
        return "hard monotonic attention has no kernel"
    for layer in model.decoder:
        if type(layer) is not DecoderLayer:
            return f"layer {type(layer).__name__!r} has no kernel"
        for attention, known in ((layer.self_attention, SelfAttention), (layer.cross_attention, CrossAttention)):
            if type(attention) is not known or attention.attend is not attend:
                return f"attention {type(attention).__name__!r} has no kernel"
    return ""


def bucket(count: int) -> int:
    """Return the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, … that is at least `count`."""
    power = 1 << max(0, count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


class GraphModel:
    """A supported model, ready for decoders. An arena serves one decoder after another."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        own = self.layers[0].self_attention
        self.heads, self.sizes = (
            own.num_heads,
            [own.sizes[0] // own.num_heads, own.sizes[2] // own.num_heads],
        )  # of a key, of a value
        self.device, self.dtype = (
            model.device,
            cast(torch.dtype, getattr(model.output_projection, "attention_dtype", torch.float32)),
        )
        self.longest = model.config.max_positions
        self.free: list[Arena] = []
        self._lock = threading.Lock()

    def arena(self, sentences: int, beam: int) -> Arena:
        """Return an arena for a decoder."""
        with self._lock:  # several threads may call this
            fitting = [arena for arena in self.free if arena.beam == beam]
            if fitting:
                self.free.remove(fitting[0])
        if not fitting:
            return Arena(self, bucket(2 * sentences), beam, FIRST_STEPS, FIRST_SOURCE)
        fitting[0].clear()
        return fitting[0]


class Arena:
    """The tensors of a decoder, and the graphs that read and write them."""

    def __init__(self, of: GraphModel, sentences: int, beam: int, steps: int, source: int) -> None:
        device, heads = of.device, of.heads
        self.of, self.sentences, self.beam, self.most_steps, self.most_source = of, sentences, beam, steps, source

        def zeros(slots: int) -> list[tuple[Tensor, Tensor]]:
            """Return keys and values of each layer, filled with 0: slots that are never written are masked, and must not be NaN."""
            return [
                tuple(torch.zeros(sentences * heads, slots, size, dtype=of.dtype, device=device) for size in of.sizes)  # type: ignore[misc]
                for _ in of.layers
            ]

        self.caches, self.memory = zeros(steps * beam), zeros(source)
        self.tokens = torch.zeros(sentences, beam, dtype=torch.long, device=device)
        self.ancestors = torch.zeros(sentences, beam, steps, dtype=torch.long, device=device)
        self.steps = torch.zeros(sentences, dtype=torch.long, device=device)
        self.lengths = torch.ones(sentences, dtype=torch.long, device=device)  # of the sources
        self.step = Graphs(self._step, device)

    def clear(self) -> None:
        """Remove all sentences from the arena: each is at step 0."""
        self.steps.zero_()

    def grown(self, sentences: int, steps: int, source: int, count: int) -> Arena:
        """Return an arena with at least this number of sentences, steps and source positions, and the first `count` sentences of this one."""
        new = Arena(
            self.of,
            max(self.sentences, bucket(sentences)),
            self.beam,
            max(self.most_steps, bucket(steps)),
            max(self.most_source, bucket(source)),
        )
        rows = count * self.of.heads
        for pairs, others in ((new.caches, self.caches), (new.memory, self.memory)):
            for pair, other in zip(pairs, others, strict=True):
                for tensor, old in zip(pair, other, strict=True):
                    tensor[:rows, : old.size(1)] = old[:rows]
        new.ancestors[:count, :, : self.most_steps] = self.ancestors[:count]
        new.steps[:count], new.lengths[:count] = self.steps[:count], self.lengths[:count]
        return new

    def select(self, sentences: Tensor, count: int) -> None:
        """Move the sentences at these indices, (B',) ascending, to the front; `count` sentences were in use."""
        kept, heads = len(sentences), self.of.heads
        matrices = (sentences[:, None] * heads + torch.arange(heads, device=sentences.device)).flatten()
        for keys, values in (*self.caches, *self.memory):
            keys[: len(matrices)], values[: len(matrices)] = (
                keys.index_select(0, matrices),
                values.index_select(0, matrices),
            )
        for tensor in (self.ancestors, self.steps, self.lengths):
            tensor[:kept] = tensor.index_select(0, sentences)
        self.steps[kept:count] = 0

    def _step(self, sentences: int, steps: int, source: int) -> Tensor:
        """Return the logits (p * W, V) after the newest tokens of the first p = `sentences` sentences. A second call returns the same."""
        of, model, width, device = self.of, self.of.model, self.beam, self.of.device
        time, beam, now = torch.arange(steps, device=device), torch.arange(width, device=device), self.steps[:sentences]
        ancestors = torch.where(
            time == now[:, None, None], beam[:, None], self.ancestors[:sentences, :, :steps]
        )  # (p, W, t)
        self.ancestors[:sentences, :, :steps] = ancestors
        seen = (ancestors[..., None] == beam) & (time[:, None] <= now[:, None, None, None])  # (p, W, t, W)
        hidden_slots = _hidden(seen.flatten(2))  # (p, 1, W, t * W)
        hidden_source = _hidden(
            (torch.arange(source, device=device) < self.lengths[:sentences, None])[:, None]
        )  # (p, 1, 1, s)
        positions = now[:, None].expand(-1, width).flatten()
        x = model.embed(self.tokens[:sentences].flatten(), "target", model.target_positions.at(positions))  # type: ignore[operator]
        for number, layer in enumerate(of.layers):
            x = self._layer(number, layer, x, positions, hidden_slots, hidden_source)
        return model.logits(model.decoder_norm(x)).float()

    def _layer(
        self,
        number: int,
        layer: DecoderLayer,
        x: Tensor,
        positions: Tensor,
        hidden_slots: Tensor,
        hidden_source: Tensor,
    ) -> Tensor:
        """Compute decoder layer `number`: x (p * W, D) -> (p * W, D)."""
        own, other = layer.self_attention, layer.cross_attention
        sentences, heads, width, dtype = len(hidden_slots), self.of.heads, self.beam, self.of.dtype
        every, now = torch.arange(sentences, device=x.device), self.steps[:sentences]

        def split(rows: Tensor) -> Tensor:
            return rows.to(dtype).view(sentences, width, heads, -1).transpose(1, 2)  # (p, H, W, K)

        def self_attention(h: Tensor) -> Tensor:
            query, *new = (split(part) for part in torch.split(own.project(h, positions), own.sizes, -1))
            for cache, rows in zip(self.caches[number], new, strict=True):
                cache.view(self.sentences, heads, self.most_steps, width, -1)[every, :, now] = rows
            keys, values = (cache[: sentences * heads, : hidden_slots.size(-1)] for cache in self.caches[number])
            return cast(Tensor, own.output(_attend(query, keys, values, hidden_slots)))

        def cross_attention(h: Tensor) -> Tensor:
            keys, values = (memory[: sentences * heads, : hidden_source.size(-1)] for memory in self.memory[number])
            return cast(Tensor, other.output(_attend(split(other.query(h)), keys, values, hidden_source)))

        return layer.sublayers(x, self_attention, cross_attention)


def _hidden(seen: Tensor) -> Tensor:
    """Return the numbers to add to scores, 0 or -inf, (p, 1, W, C). `seen` (p, W, C) is True for positions that may be attended to."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, float("-inf"))[:, None]


def _attend(query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """Compute equation (1): query (p, H, W, K), keys and values (p * H, C, K), hidden (p, 1, W or 1, C) -> (p * W, H * K) in fp32, with the softmax in fp32."""
    sentences, heads, width, size = query.shape
    scores = torch.bmm(query.reshape(-1, width, size), keys.transpose(1, 2)).float() * size**-0.5
    weights = (scores.view(sentences, heads, width, -1) + hidden).softmax(-1)
    attended = torch.bmm(weights.to(values.dtype).flatten(0, 1), values).float()  # (p * H, W, K)
    return attended.view(sentences, heads, width, -1).transpose(1, 2).reshape(sentences * width, -1)


class GraphDecoder:
    """A `Decoder` over sentences whose ids, end symbols included, are `sources`."""

    def __init__(self, model: GraphModel, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.model, self.beam = model, beam
        self.steps, self.lengths = list[int](), list[int]()  # of each sentence
        self.holder = [model.arena(len(sources), beam)]
        weakref.finalize(self, _give_back, model.free, self.holder)
        self.add(sources)

    @property
    def arena(self) -> Arena:
        """The arena that holds the decoder's sentences."""
        return self.holder[0]

    @torch.inference_mode()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences after those that the decoder holds; an empty list is allowed."""
        if not sources:
            return
        first, lengths = len(self.steps), [len(source) for source in sources]
        self._reserve(first + len(sources), 1, max(lengths))
        packing = Packing(torch.tensor(lengths), LANES)
        ids = torch.zeros(packing.size, dtype=torch.long)
        ids[: packing.tokens] = torch.tensor([token for source in sources for token in source])
        packed, model, heads = packing.to(str(self.model.device)), self.model.model, self.model.heads
        states = model.encode_packed(ids.to(self.model.device), packed)
        for layer, memory in zip(self.model.layers, self.arena.memory, strict=True):
            for tensor, new in zip(memory, layer.cross_attention.project(states, packed), strict=True):
                tensor[first * heads : (first + len(sources)) * heads, : max(lengths)] = new.flatten(0, 1)[
                    :, : max(lengths)
                ]
        self.arena.lengths[first : first + len(sources)] = torch.tensor(lengths).to(self.model.device)
        self.arena.steps[first : first + len(sources)] = 0
        self.steps += [0] * len(sources)
        self.lengths += lengths

    @torch.inference_mode()
    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        count, last = len(self.steps), self.model.longest - 1
        steps, source = _lanes(max(self.steps) + 1), _lanes(max(self.lengths))
        self._reserve(count, steps, source)
        arena = self.arena
        arena.tokens[:count] = tokens
        logits = arena.step(bucket(count), steps, source)
        arena.steps[:count].add_(1).clamp_(max=last)  # finished sentences may stay for a while
        self.steps = [min(step + 1, last) for step in self.steps]
        return logits.index_select(0, rows.to(logits.device, non_blocking=True))

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        if self.beam > 1:
            ancestors = self.arena.ancestors[: len(self.steps), :, : max(self.steps)]
            ancestors.copy_(ancestors.gather(1, parents[:, :, None].expand_as(ancestors)))

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        kept = sentences.tolist()
        if kept:
            self.arena.select(sentences.to(self.model.device), len(self.steps))
        else:
            self.arena.clear()
        self.steps, self.lengths = [self.steps[number] for number in kept], [self.lengths[number] for number in kept]

    def _reserve(self, sentences: int, steps: int, source: int) -> None:
        """Grow the arena, if needed, to at least this number of sentences, steps and source positions."""
        arena = self.arena
        if sentences > arena.sentences or steps > arena.most_steps or source > arena.most_source:
            self.holder[0] = arena.grown(sentences, steps, source, len(self.steps))


def _lanes(count: int) -> int:
    """Return the bucket of `count`, a multiple of LANES."""
    return max(LANES, bucket(count))


def _give_back(free: list[Arena], holder: list[Arena]) -> None:
    free.append(holder[0])
