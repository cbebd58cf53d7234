"""The decoder of search, in plain torch on any device: one token per step, with caches of keys and values.

    B sentences   W beam   N open hypotheses   S source length   C slots of a sentence's cache   D d_model
    H heads   K d_k or d_v   V vocabulary

    sources ──▶ encoder over packed rows ──▶ keys and values of the memory (B * H, S, K), once per sentence
    step: (N, D) rows through every linear map and norm ─┬─ attention over (B * H, W, K) ─┬─ (N, D) ──▶ logits (N, V)
                                                         └── caches (B * H, C, K) ────────┘

Sentences that are added together are a sub-batch: at the same step, in the same caches. A step takes the rows of all
sub-batches through the linear maps at once, and through attention one sub-batch after the other. So new sentences can
join while the last few hypotheses of earlier ones finish.

* The hypotheses of a sentence lie side by side where attention expects query positions. They share the sentence's memory,
  which exists once; attention is two batched matrix products and a softmax, which is in fp32 always.
* They share their past, too. Keys and values stay where they were written, and a mask (B, W, C) lets a hypothesis see
  those of its own ancestors. When search reorders its hypotheses, only this mask moves; a slot that no hypothesis
  descends from is written again. Beams differ in their last tokens, so a cache holds little more than one hypothesis.
* The linear maps, which take most of the time, see open hypotheses only.

Invariance. In fp32 and int8 on a CPU, the result for a sentence must not depend on the other sentences, not in a single
bit. The rows of a linear map do not depend on each other from `min_rows` rows on. In attention, S and C are those that the
sub-batch needs, and what a sentence does not have is masked: exact zeros in its sums. Vector registers sum numbers by
their index modulo 16 or 32, so S and C are multiples of `LANES`: zeros at the end change nothing. The tests say whether
this holds on a processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..device import is_host, widest_float
from ..kernels.rows import padded_rows
from ..model.layers import DecoderLayer
from ..model.monotonic import NextWords
from ..model.packing import Packing
from ..model.transformer import Transformer
from .alignment import alignment_layer

LANES = {torch.float32: 16, torch.bfloat16: 32, torch.float16: 32}
"""S and C are a multiple of it, by the dtype of keys and values."""
MIN_ROWS = 16
"""Rows of a step at least, for linear maps that do not name their own number: a row's bits then do not depend on it."""
COMPACT_BELOW = 0.6
"""A sub-batch's caches are copied when no more than this share of its sentences is left."""
MIN_QUERIES = 4
"""Queries per sentence in attention: with fewer, products with narrow heads depend on the slots beyond the sentence's own."""


class CacheMemory:
    """Memory for the keys and values of decoders, which serves one sub-batch after another.

    What was never written holds numbers of earlier sub-batches, or zeros: masked, but never NaN.
    """

    def __init__(self) -> None:
        self.free: list[list[Tensor]] = []

    def take(self, layers: int, numbers: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Return memory for at least so many numbers in each layer."""
        fitting = [memory for memory in self.free if len(memory) == layers and memory[0].dtype == dtype and memory[0].numel() >= numbers]
        if fitting:
            best = min(fitting, key=lambda memory: memory[0].numel())
            self.free = [memory for memory in self.free if memory is not best]
            return best
        self.free = self.free[1:]  # memory that was too small is freed step by step
        if not is_host(device):
            return [torch.zeros(numbers, dtype=dtype, device=device) for _ in range(layers)]
        zeros = [np.zeros(numbers * dtype.itemsize, dtype=np.uint8) for _ in range(layers)]  # pages that nobody writes to cost nothing
        return [torch.from_numpy(zero).view(dtype) for zero in zeros]

    def give_back(self, memory: list[Tensor]) -> None:
        """Let the memory serve another sub-batch."""
        self.free.append(memory)


@dataclass(frozen=True)
class _StepIndex:
    """Where the rows of one step are read and written, the same in every layer; rows are counted per head."""

    first: int  # of the step's N hypotheses
    count: int  # n, this sub-batch's hypotheses
    queries: Tensor  # (n * H,) rows of (N * 3 * H)
    keys_values: Tensor  # (n * H * 2,) rows of (N * 3 * H): keys, then values
    cached: Tensor  # (n * H * 2,) rows of the cache, where they are written
    slots: Tensor  # (n * H,) rows of (B * H * W): where the queries go, and the results come from
    padding: int  # copies of the last result, for the rows that only fill up the step
    visible: Tensor  # (B * H, W, C), 0 or -inf, added to the scores


class _SubBatch:
    """Sentences that were added together: B of them in the caches, of which those at `present` are still searched for."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int, store: CacheMemory) -> None:
        self.device, self.beam, self.store = model.output_weight.device, beam, store
        self.dtype: torch.dtype = getattr(model.output_projection, "attention_dtype", torch.float32)
        self.lanes, self.queries = LANES[self.dtype], max(beam, MIN_QUERIES)
        self.batch, self.steps = len(sources), 0
        lengths = torch.tensor([len(source) for source in sources])
        packing = Packing(lengths, self.lanes)
        self.memory = self._encode(model, sources, packing)
        own = cast(DecoderLayer, model.decoder[0]).self_attention
        self.heads, self.size, self.layers = own.num_heads, max(own.sizes) // own.num_heads, len(model.decoder)
        self.present = torch.arange(self.batch, device=self.device)
        self.source = torch.arange(packing.longest, device=self.device) < lengths.to(self.device)[:, None]  # (B, S)
        self.visible_source = self._additive(self.source[:, None].expand(-1, beam, -1))  # (B * H, W, S)
        self.ancestors = torch.zeros(self.batch, beam, self.lanes, dtype=torch.bool, device=self.device)  # (B, W, C)
        self.itself = torch.eye(beam, dtype=torch.bool, device=self.device)  # (W, W)
        self.memory_pages: list[Tensor] = []
        self.query_buffers = {size: self._zeros(size) for size in {self.size, self.memory[0][0].size(1)}}  # of self-attention, and to the source
        self._reserve()

    def _encode(self, model: Transformer, sources: Sequence[Sequence[int]], packing: Packing) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer the memory's keys (B * H, K, S) and values (B * H, S, K)."""
        ids = torch.zeros(packing.size, dtype=torch.long)
        ids[: packing.tokens] = torch.tensor([token for source in sources for token in source])
        source = packing.to(str(self.device))
        memory = model.encode_packed(ids.to(self.device), source)
        self.states = memory if model.next_word is not None else memory[:0]  # for hard monotonic attention
        projected = [cast(DecoderLayer, layer).cross_attention.project(memory, source) for layer in model.decoder]
        pairs = [(keys.to(self.dtype).flatten(0, 1), values.to(self.dtype).flatten(0, 1)) for keys, values in projected]
        return [(keys.transpose(1, 2).contiguous(), values.contiguous()) for keys, values in pairs]

    def _zeros(self, size: int) -> Tensor:
        """Return (B * H * W, K) for queries; rows of closed hypotheses keep old numbers, which nobody reads."""
        return torch.zeros(self.batch * self.heads * self.queries, size, dtype=self.dtype, device=self.device)

    @property
    def caches(self) -> list[Tensor]:
        """(2, B * H, C, K) for each layer: keys, then values; contiguous, because products copy what is not."""
        shape = (2, self.batch * self.heads, self.capacity, self.size)
        return [memory[: math.prod(shape)].view(shape) for memory in self.memory_pages]

    @property
    def capacity(self) -> int:
        """C, the slots of a sentence."""
        return self.ancestors.size(2)

    def begin_step(self, rows: Tensor, first: int, padding: int) -> _StepIndex:
        """Choose where the step is written, and let each hypothesis see itself.

        `rows` (n,) are the open hypotheses, b * W + w with b counting those present; they are the rows from `first` on of
        the step's. The result of the last is repeated `padding` times.
        """
        heads, device = self.heads, self.device
        sentence, hypothesis = self.present[rows // self.beam], rows % self.beam
        opened = sentence * self.beam + hypothesis
        slots = self._free_slots(opened)  # (B, W)
        self.ancestors.scatter_(2, slots[:, None].expand(-1, self.beam, -1), self.itself.expand(self.batch, -1, -1))

        head = torch.arange(heads, device=device)
        matrix = sentence[:, None] * heads + head  # (n, H), of B * H
        row = torch.arange(first, first + len(rows), device=device)[:, None] * (3 * heads) + head  # (n, H)
        cached = matrix * self.capacity + slots.flatten().index_select(0, opened)[:, None]
        return _StepIndex(
            first=first,
            count=len(rows),
            queries=row.flatten(),
            keys_values=torch.cat([row.flatten() + heads, row.flatten() + 2 * heads]),
            cached=torch.cat([cached.flatten(), cached.flatten() + self.batch * heads * self.capacity]),
            slots=(matrix * self.queries + hypothesis[:, None]).flatten(),
            padding=padding,
            visible=self._additive(self.ancestors),
        )

    def _free_slots(self, opened: Tensor) -> Tensor:
        """Return W slots for each sentence, (B, W), that no open hypothesis descends from; grow the caches if there are too few."""
        alive = torch.zeros(self.batch * self.beam, 1, dtype=torch.bool, device=self.device).index_fill_(0, opened, True)
        used = (self.ancestors & alive.view(self.batch, self.beam, 1)).any(1)  # (B, C)
        if int(used.sum(1).max()) > used.size(1) - self.beam:
            more, before = -(-self.beam // self.lanes) * self.lanes, [cache.clone() for cache in self.caches]
            self.ancestors, used = (F.pad(x, (0, more)) for x in (self.ancestors, used))
            self._reserve(before)
        return used.byte().sort(dim=1, stable=True).indices[:, : self.beam]

    def _additive(self, mask: Tensor) -> Tensor:
        """(B, W, C) of what may be attended to -> (B * H, W, C) to be added to scores: 0 or -inf."""
        added = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))
        if missing := self.queries - mask.size(1):
            added = torch.cat([added, added[:, -1:].expand(-1, missing, -1)], 1)
        return added[:, None].expand(-1, self.heads, -1, -1).flatten(0, 1)

    def self_attention(self, layer: int, rows: Tensor, step: _StepIndex, scale: float, value_size: int) -> Tensor:
        """rows (N * 3 * H, K) of queries, keys and values -> (n, H * value_size)."""
        cache, rows = self.caches[layer], rows.to(self.dtype)
        cache.view(-1, self.size).index_copy_(0, step.cached, rows.index_select(0, step.keys_values))
        keys, values = cache
        return self._attend(rows.index_select(0, step.queries), keys.transpose(1, 2), values, step.visible, step, scale)[:, :, :value_size].flatten(1)

    def cross_attention(self, layer: int, rows: Tensor, step: _StepIndex, scale: float, weights: list[Tensor] | None = None) -> Tensor:
        """rows (N * H, K) of queries -> (n, H * value_size). Appends the weights (n, S) to `weights`, see `AttentionDecoder`."""
        own = rows[step.first * self.heads : (step.first + step.count) * self.heads].to(self.dtype)
        return self._attend(own, *self.memory[layer], self.visible_source, step, scale, weights).flatten(1)

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, step: _StepIndex, scale: float, mean_weights: list[Tensor] | None = None
    ) -> Tensor:
        """Equation (1): queries (n * H, K), keys (B * H, K, C), values (B * H, C, K) -> (n, H, K) in fp32."""
        buffer = self.query_buffers[queries.size(1)].index_copy_(0, step.slots, queries)
        matrices = buffer.view(len(visible), self.queries, -1)  # (B * H, W, K)
        if len(matrices) == 1:  # one matrix alone may be split among threads, which changes the last bits
            matrices, keys, values, visible = (x.expand(2, -1, -1) for x in (matrices, keys, values, visible))
        if self.dtype == torch.float32:
            scores = torch.baddbmm(visible, matrices, keys, alpha=scale)  # (B * H, W, C)
        else:
            scores = torch.add(visible, torch.bmm(matrices, keys), alpha=scale)
        weights = scores.softmax(-1)
        if mean_weights is not None:
            of_heads = weights.flatten(0, 1).index_select(0, step.slots).view(step.count, self.heads, -1)
            mean_weights.append(mean_of_heads(of_heads))
        attended = torch.bmm(weights.to(self.dtype), values).view(-1, values.size(2))
        result = attended.index_select(0, step.slots).float().view(step.count, self.heads, -1)
        return torch.cat([result, result[-1:].expand(step.padding, -1, -1)]) if step.padding else result

    def reorder(self, parents: Tensor) -> None:
        """parents (b, W) of the sentences present: only the mask of ancestors moves."""
        if len(parents) < self.batch:
            every = torch.zeros(self.batch, self.beam, dtype=torch.long, device=self.device)
            parents = every.index_copy_(0, self.present, parents)
        self.ancestors = self.ancestors.gather(1, parents[:, :, None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """Keep these of the sentences present; the caches are copied once enough sentences have left."""
        self.present = self.present[sentences]
        if not len(sentences):
            self.store.give_back(self.memory_pages)
        elif len(sentences) <= COMPACT_BELOW * self.batch:
            self._compact()

    def _compact(self) -> None:
        """Drop the sentences that have left from the caches and the memory."""
        kept = self.present
        matrices = (kept[:, None] * self.heads + torch.arange(self.heads, device=self.device)).flatten()
        longest = -(-int(self.source[kept].sum(1).max()) // self.lanes) * self.lanes
        self.memory = [(keys[:, :, :longest].index_select(0, matrices), values[:, :longest].index_select(0, matrices)) for keys, values in self.memory]
        caches = [cache.index_select(1, matrices) for cache in self.caches]
        self.ancestors, self.source = self.ancestors[kept], self.source[kept, :longest]
        self.batch, self.present = len(kept), torch.arange(len(kept), device=self.device)
        self.visible_source = self._additive(self.source[:, None].expand(-1, self.beam, -1))
        self.query_buffers = {size: self._zeros(size) for size in self.query_buffers}
        self._reserve(caches)

    def _reserve(self, kept: Sequence[Tensor] = ()) -> None:
        """Take caches of C slots per sentence, holding what is `kept`: (2, B * H, C or fewer, K) for each layer."""
        numbers = 2 * self.batch * self.heads * self.capacity * self.size
        if not self.memory_pages or self.memory_pages[0].numel() < numbers:
            before, self.memory_pages = self.memory_pages, self.store.take(self.layers, numbers, self.dtype, self.device)
            if before:
                self.store.give_back(before)
        for cache, old in zip(self.caches, kept, strict=False):
            cache[:, :, : old.size(2)] = old


class CachedDecoder:
    """A `Decoder` over sentences whose ids, end symbols included, are `sources`.

    `model` comes from `model.precision.convert`. `memory` may serve one decoder after another, not two at once.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int, memory: CacheMemory | None = None) -> None:
        self.model, self.beam, self.store = model, beam, memory or CacheMemory()
        self.layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        own = self.layers[0].self_attention
        self.heads, self.scale = own.num_heads, math.sqrt(own.num_heads / own.sizes[0])
        self.min_rows = getattr(model.output_projection, "min_rows", MIN_ROWS)
        self.sub_batches: list[_SubBatch] = []
        self.next_words = NextWords(model.next_word, beam) if model.next_word is not None else None
        self.recorded_layer: int | None = None
        self.weights: list[Tensor] = []  # of the last step, (n, S) of each sub-batch
        self.add(sources)

    @torch.inference_mode()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences behind those that are here; an empty list is allowed."""
        if sources:
            self.sub_batches.append(_SubBatch(self.model, sources, self.beam, self.store))
            if self.next_words:
                self.next_words.add(sources, self.sub_batches[-1].states)

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        count = len(rows)
        padding = padded_rows(count, self.min_rows) - count
        parts = [
            (sub_batch, rows[left:right] - offset * self.beam, left)
            for (sub_batch, offset), (left, right) in zip(self._offsets(), self._bounds(rows), strict=True)
            if left < right
        ]
        steps = [(sub_batch, sub_batch.begin_step(own, first, padding if number == len(parts) - 1 else 0)) for number, (sub_batch, own, first) in enumerate(parts)]
        positions = torch.cat([torch.full((len(own),), sub_batch.steps, device=rows.device) for sub_batch, own, _ in parts] + [rows.new_zeros(padding)])
        ids = F.pad(tokens.flatten().index_select(0, rows), (0, padding))
        self.weights = []
        encoded = self.model.target_positions.at(positions)  # type: ignore[operator]
        if self.next_words:
            encoded = encoded + F.pad(self.next_words.read(tokens, rows), (0, 0, 0, padding))
        x = self.model.embed(ids, self.model.matrix("target"), encoded)
        for number, layer in enumerate(self.layers):
            x = self._layer(number, layer, x, steps, positions)
        for sub_batch in self.sub_batches:
            sub_batch.steps += 1
        return self.model.logits(self.model.decoder_norm(x))[:count]

    def record_attention(self) -> None:
        """See `AttentionDecoder`."""
        self.recorded_layer = alignment_layer(self.model)

    def attention(self) -> Tensor:
        """See `AttentionDecoder`."""
        longest = max(weights.size(1) for weights in self.weights)
        return _concat([F.pad(weights, (0, longest - weights.size(1))) for weights in self.weights])

    def _offsets(self) -> list[tuple[_SubBatch, int]]:
        """Return each sub-batch and the number of its first sentence."""
        sizes = [len(sub_batch.present) for sub_batch in self.sub_batches]
        return [(sub_batch, sum(sizes[:number])) for number, sub_batch in enumerate(self.sub_batches)]

    def _bounds(self, rows: Tensor) -> list[tuple[int, int]]:
        """Return for each sub-batch the range of its own among `rows`, which are ascending b * W + w."""
        if len(self.sub_batches) == 1:
            return [(0, len(rows))]
        ends = torch.tensor([(offset + len(sub_batch.present)) * self.beam for sub_batch, offset in self._offsets()], device=rows.device)
        bounds = torch.searchsorted(rows, ends).tolist()
        return list(zip([0, *bounds[:-1]], bounds, strict=True))

    def _layer(self, number: int, layer: DecoderLayer, x: Tensor, steps: Sequence[tuple[_SubBatch, _StepIndex]], positions: Tensor) -> Tensor:
        """Apply a decoder layer to one token of each hypothesis, x (N, D) at `positions` (N,) -> (N, D)."""
        own, other = layer.self_attention, layer.cross_attention
        value_size = own.sizes[2] // self.heads

        def self_attention(h: Tensor) -> Tensor:
            rows = self._rows(own.project(h, positions), own.sizes)  # (N * 3 * H, K)
            return cast(Tensor, own.output(_concat([sub_batch.self_attention(number, rows, step, self.scale, value_size) for sub_batch, step in steps])))

        def cross_attention(h: Tensor) -> Tensor:
            rows = other.query(h).view(len(h) * self.heads, -1)  # (N * H, K)
            weights = self.weights if number == self.recorded_layer else None
            return cast(Tensor, other.output(_concat([sub_batch.cross_attention(number, rows, step, self.scale, weights) for sub_batch, step in steps])))

        return layer.sublayers(x, self_attention, cross_attention)

    def _rows(self, x: Tensor, sizes: list[int]) -> Tensor:
        """(N, sum of `sizes`), projections side by side -> rows (N * 3 * H, K).

        If sizes differ, K is the largest and zeros fill up the others: they add nothing to a product.
        """
        if len(set(sizes)) == 1:
            return x.view(-1, sizes[0] // self.heads)
        parts = [part.view(len(x), self.heads, -1) for part in torch.split(x, sizes, -1)]
        widest = max(sizes) // self.heads
        return torch.stack([F.pad(part, (0, widest - part.size(2))) for part in parts], 1).view(-1, widest)

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        if self.next_words:
            self.next_words.reorder(parents)
        if self.beam > 1:
            for sub_batch, offset in self._offsets():
                sub_batch.reorder(parents[offset : offset + len(sub_batch.present)])

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        if self.next_words:
            self.next_words.keep(sentences)
        for sub_batch, offset in self._offsets():
            inside = sentences[(sentences >= offset) & (sentences < offset + len(sub_batch.present))] - offset
            if len(inside) < len(sub_batch.present):
                sub_batch.keep(inside)
        self.sub_batches = [sub_batch for sub_batch in self.sub_batches if len(sub_batch.present)]


def mean_of_heads(weights: Tensor) -> Tensor:
    """Return the mean of weights (n, H, S) over the heads, (n, S) in the device's widest dtype. Heads are added in order: the bits do not depend on S."""
    first, *others = weights.to(widest_float(weights.device)).unbind(1)
    return sum(others, first) / (1 + len(others))


def _concat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
