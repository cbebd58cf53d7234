"""The decoder of search, in plain torch on any device: one token per step, with caches of keys and values.

    B sentences   W beam   N open hypotheses   S source length   C slots of a sentence's cache   D d_model
    H heads   K d_k or d_v   V vocabulary

    sources ──▶ encoder over packed rows ──▶ keys and values of the memory (B * H, S, K), once per sentence
    step: (N, D) rows through every linear map and norm ─┬─ attention over (B * H, W, K) ─┬─ (N, D) ──▶ logits (N, V)
                                                         └── caches (B * H, C, K) ────────┘

In a layer, the queries of a step and the caches are parts of one tensor (`_parts`): all new rows are written at once.

Sentences that are added together form a sub-batch: they are at the same step and use the same caches. A step takes the
rows of all sub-batches through the linear maps at once, and through attention one sub-batch after the other. So new
sentences can join while the last few hypotheses of earlier ones finish.

* The hypotheses of a sentence lie side by side where attention expects query positions. They share the sentence's
  memory, which exists once; attention is two batched matrix products and a softmax, which sums in fp32.
* They share their past, too. Keys and values stay where they were written, and a mask (B, W, C) lets a hypothesis see
  the slots of its own ancestors. When search reorders its hypotheses, only this mask moves. A slot from which no
  hypothesis descends is written again. Beams differ in their last tokens, so a cache holds little more than one
  hypothesis.
* The linear maps, which take most of the time, process open hypotheses only.

A step does not wait for the device. The host itself knows which hypotheses are open, and it knows an upper bound of the
slots in use; it asks the device only when this bound is too high (`_SubBatch._reserve`).

Invariance. In fp32 and int8 on a CPU, the result for a sentence must not depend on the other sentences, not in a single
bit. The rows of a linear map do not depend on each other from MIN_ROWS rows on. In attention, S and C are the
sizes that the sub-batch needs. Positions that a sentence does not have are masked: they add exact zeros to its sums.
Vector registers sum numbers by their index modulo 16 or 32, so S and C are multiples of `LANES`: zeros at the end
change nothing. The tests check whether this holds on a processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..device.torch_device import is_host
from ..model.layers import DecoderLayer
from ..model.monotonic import NextWords
from ..model.packing import Packing
from ..model.transformer import Transformer
from ..search.torch_arrays import TorchArrays

LANES = {torch.float32: 16, torch.bfloat16: 32, torch.float16: 32}
"""S and C are multiples of this number, by the dtype of keys and values."""
MIN_ROWS = 16
"""Smallest number of rows in a step. From this number on, the bits of a row do not depend on it."""
COMPACT_BELOW = 0.6
"""A sub-batch's caches are compacted when at most this share of its sentences is left."""
AHEAD = 8
"""Number of steps for which the free slots suffice, after a device was asked for their number."""
OCTAVE = 3
"""The number of rows takes 2 ** OCTAVE different values from one power of two to the next: matrix products are prepared
for each."""
MIN_QUERIES = 4
"""Smallest number of queries per sentence in attention: with fewer, products with narrow heads depend on the slots
beyond the sentence's own."""


@dataclass(frozen=True)
class _StepIndex:
    """The positions where the rows of one step are read and written, the same in every layer."""

    first: int  # of the step's N hypotheses
    count: int  # n, this sub-batch's hypotheses
    slots: Tensor  # (n * H,) rows of (B * H * W), where the queries are written
    results: Tensor  # the same rows, where results are read; the last one again for rows that only pad the step
    padding: int  # the number of these rows
    written: Tensor  # (n * 3 * H,) rows of `_parts`, where queries, keys and values are written; of SSRUs, (n,)
    visible: Tensor  # (B * H, W, C), 0 or -inf, added to the scores


class _SubBatch:
    """Sentences that were added together.

    B of them are in the caches; those at the indices `present` are still in the search.

    `present`, `lengths` and the open hypotheses of a step are on the host.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.device, self.beam = model.device, beam
        self.dtype: torch.dtype = getattr(model.output_projection, "attention_dtype", torch.float32)
        self.lanes, self.queries = LANES[self.dtype], max(beam, MIN_QUERIES)
        self.batch, self.steps = len(sources), 0
        self.present, self.lengths = torch.arange(self.batch), torch.tensor([len(source) for source in sources])
        packing = Packing(self.lengths, self.lanes)
        self.memory = self._encode(model, sources, packing)
        config = model.config
        self.heads, self.value_size = config.num_heads, config.value_size
        self.size, self.scale = max(config.key_size, config.value_size), 1 / math.sqrt(config.key_size)
        self.visible_source = self._visible_source(packing.longest)  # (B * H, W, S)
        self.queries_to_memory = self._zeros(self.queries, self.memory[0][0].size(1))
        self._begin(model)

    def _begin(self, model: Transformer) -> None:
        """Make room for what the hypotheses remember of their own tokens."""
        shape = self.batch, self.beam, self.lanes
        self.ancestors = torch.zeros(shape, dtype=torch.bool, device=self.device)  # (B, W, C)
        self.itself = torch.eye(self.beam, dtype=torch.bool, device=self.device)  # (W, W)
        self.used = 0  # upper bound of the slots of a sentence that are in use
        self.caches = [self._zeros(self.queries + 2 * self.lanes, self.size).flatten(0, 1) for _ in model.decoder]

    def _encode(
        self, model: Transformer, sources: Sequence[Sequence[int]], packing: Packing
    ) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer the memory's keys (B * H, K, S) and values (B * H, S, K)."""
        ids = torch.zeros(packing.size, dtype=torch.long)
        ids[: packing.tokens] = torch.tensor([token for source in sources for token in source])
        source = packing.to(str(self.device))
        memory = model.encode_packed(ids.to(self.device), source)
        self.states = memory if model.next_word is not None else memory[:0]  # for hard monotonic attention
        pairs: list[tuple[Tensor, Tensor]] = []
        for layer in model.decoder:
            both = cast(DecoderLayer, layer).cross_attention.project(memory, source)
            keys, values = (one.to(self.dtype).flatten(0, 1) for one in both)
            pairs.append((keys.transpose(1, 2).contiguous(), values.contiguous()))
        return pairs

    def _zeros(self, slots: int, size: int) -> Tensor:
        """Return zeros (B * H, slots, size) for queries, keys or values.

        Unwritten entries are masked or not read, but they must not be NaN.
        """
        return torch.zeros(self.batch * self.heads, slots, size, dtype=self.dtype, device=self.device)

    @property
    def capacity(self) -> int:
        """C, the number of slots per sentence."""
        return self.ancestors.size(2)

    def _parts(self, cache: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B * H, W, K), keys and values (B * H, C, K) of a layer: views of its rows."""
        matrices = self.batch * self.heads
        parts = torch.split(cache, [matrices * size for size in (self.queries, self.capacity, self.capacity)])
        queries, keys, values = (part.view(matrices, -1, self.size) for part in parts)
        return queries, keys, values

    def begin_step(self, rows: Tensor, first: int, padding: int) -> _StepIndex:
        """Choose the slots where the step is written, let each hypothesis see itself, and return the index of the step.

        `rows` (n,) are the numbers b * W + w of the open hypotheses, where b counts the sentences present. In the step
        they are the rows from `first` on. The result of the last row is repeated `padding` times.
        """
        sentence, hypothesis = self.present[rows // self.beam], rows % self.beam
        matrix = sentence[:, None] * self.heads + torch.arange(self.heads)  # (n, H), of B * H
        of_host = torch.stack(
            [
                matrix,
                matrix * self.queries + hypothesis[:, None],
                (sentence * self.beam + hypothesis)[:, None].expand(-1, self.heads),
            ]
        )
        matrix, queries, opened = of_host.to(self.device, non_blocking=True)
        results = torch.cat([queries, queries[-1:].expand(padding, -1)]) if padding else queries
        written, visible = self._place(matrix, queries, opened)
        return _StepIndex(first, len(rows), queries.flatten(), results.flatten(), padding, written, visible)

    def _place(self, matrix: Tensor, queries: Tensor, opened: Tensor) -> tuple[Tensor, Tensor]:
        """Return `written` and `visible` of a step, given the matrices, the rows of the queries, and those of the
        hypotheses, (n, H) each.
        """
        slots = self._free_slots(opened[:, 0])  # (B, W)
        self.ancestors.scatter_(2, slots[:, None].expand(-1, self.beam, -1), self.itself.expand(self.batch, -1, -1))
        keys = matrix * self.capacity + slots.flatten()[opened] + self.batch * self.heads * self.queries
        written = torch.stack([queries, keys, keys + self.batch * self.heads * self.capacity], 1)  # (n, 3, H)
        return written.flatten(), self._additive(self.ancestors)

    def _free_slots(self, opened: Tensor) -> Tensor:
        """Return W slots for each sentence, (B, W), from which no open hypothesis descends; `opened` (n,) are the rows
        of the open hypotheses in (B * W).
        """
        alive = torch.zeros(self.batch * self.beam, 1, dtype=torch.bool, device=self.device).index_fill_(
            0, opened, True
        )
        used = (self.ancestors & alive.view(self.batch, self.beam, 1)).any(1)  # (B, C)
        used = self._reserve(used)
        return used.byte().sort(dim=1, stable=True).indices[:, : self.beam]

    def _reserve(self, used: Tensor) -> Tensor:
        """Grow the caches if they may have too few free slots.

        `used` (B, C) says which slots are in use; return it for the new number of slots.

        A step takes W slots and frees some; only the device knows how many. It is asked only if the slots might not
        suffice when no slot was freed. Then the caches grow, unless they suffice for a few more steps.
        """
        if self.used + self.beam > self.capacity:
            self.used = int(used.sum(1).max())
            lacking = self.used + self.beam * (1 if is_host(self.device) else AHEAD) - self.capacity
            if lacking > 0:
                more = (0, -(-lacking // self.lanes) * self.lanes)
                self.caches = [
                    _joined(queries, F.pad(keys, (0, 0, *more)), F.pad(values, (0, 0, *more)))
                    for queries, keys, values in map(self._parts, self.caches)
                ]
                self.ancestors, used = F.pad(self.ancestors, more), F.pad(used, more)
        self.used += self.beam
        return used

    def _visible_source(self, longest: int) -> Tensor:
        """Return the mask of the source tokens that may be attended to, see `_additive`."""
        source = torch.arange(longest) < self.lengths[:, None]
        return self._additive(source.to(self.device)[:, None].expand(-1, self.beam, -1))

    def _additive(self, mask: Tensor) -> Tensor:
        """Turn a mask (B, W, C), True: may attend, into (B * H, W, C) to be added to scores: 0 or -inf."""
        added = mask.to(self.dtype).log_()
        if missing := self.queries - mask.size(1):
            added = torch.cat([added, added[:, -1:].expand(-1, missing, -1)], 1)
        return added[:, None].expand(-1, self.heads, -1, -1).flatten(0, 1)

    def self_attention(self, layer: int, rows: Tensor, step: _StepIndex) -> Tensor:
        """Return the result of self-attention: rows (N, 3, H, K) of queries, keys and values -> (n, H * value_size)."""
        own, cache = rows[step.first : step.first + step.count].to(self.dtype), self.caches[layer]
        cache.index_copy_(0, step.written, own.flatten(0, 2))
        queries, keys, values = self._parts(cache)
        result = self._attend(queries, keys.transpose(1, 2), values, step.visible, step)
        return result[:, :, : self.value_size].flatten(1)

    def cross_attention(self, layer: int, rows: Tensor, step: _StepIndex) -> Tensor:
        """Return the result of cross-attention: rows (N, H, K) of queries -> (n, H * value_size)."""
        own = rows[step.first : step.first + step.count].to(self.dtype).flatten(0, 1)
        self.queries_to_memory.flatten(0, 1).index_copy_(0, step.slots, own)
        return self._attend(self.queries_to_memory, *self.memory[layer], self.visible_source, step).flatten(1)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, step: _StepIndex) -> Tensor:
        """Compute equation (1): queries (B * H, W, K), keys (B * H, K, C), values (B * H, C, K) -> (n + padding, H, K).

        The queries of closed hypotheses are old; their results are not read.
        """
        if len(queries) == 1:  # one matrix alone may be split among threads, which changes the last bits
            queries, keys, values, visible = (x.expand(2, -1, -1) for x in (queries, keys, values, visible))
        if self.dtype == torch.float32:
            scores = torch.baddbmm(visible, queries, keys, alpha=self.scale)  # (B * H, W, C)
        else:
            scores = torch.add(visible, torch.bmm(queries, keys), alpha=self.scale)
        attended = torch.bmm(scores.softmax(-1), values).view(-1, values.size(2))
        return attended.index_select(0, step.results).view(step.count + step.padding, self.heads, -1)

    def reorder(self, parents: Tensor) -> None:
        """Reorder hypotheses by `parents` (b, W) of the sentences present: the mask of ancestors. No cache moves."""
        if len(parents) < self.batch:
            every = torch.zeros(self.batch, self.beam, dtype=torch.long, device=self.device)
            parents = every.index_copy_(0, self.present.to(self.device, non_blocking=True), parents)
        self._reorder(parents)

    def _reorder(self, parents: Tensor) -> None:
        self.ancestors = self.ancestors.gather(1, parents[:, :, None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """Keep only these of the sentences present. The caches are compacted once enough sentences have left."""
        self.present = self.present[sentences]
        if len(sentences) and len(sentences) <= COMPACT_BELOW * self.batch:
            self._compact()

    def _compact(self) -> None:
        """Remove the sentences that have left from the caches and the memory."""
        kept, self.lengths = self.present.to(self.device), self.lengths[self.present]
        matrices = (kept[:, None] * self.heads + torch.arange(self.heads, device=self.device)).flatten()
        longest = -(-int(self.lengths.max()) // self.lanes) * self.lanes
        self.memory = [
            (keys[:, :, :longest].index_select(0, matrices), values[:, :longest].index_select(0, matrices))
            for keys, values in self.memory
        ]
        self._keep(kept, matrices)
        self.batch, self.present = len(kept), torch.arange(len(kept))
        self.visible_source = self._visible_source(longest)
        self.queries_to_memory = self._zeros(self.queries, self.queries_to_memory.size(2))

    def _keep(self, kept: Tensor, matrices: Tensor) -> None:
        """Keep the past of these sentences (b,), whose `matrices` are those of (B * H)."""
        self.caches = [
            _joined(*(part.index_select(0, matrices) for part in self._parts(cache))) for cache in self.caches
        ]
        self.ancestors = self.ancestors[kept]


class _SsruSubBatch(_SubBatch):
    """Sentences of a model with SSRUs: each layer has one state of each hypothesis, (B, W, D), in fp32."""

    def _begin(self, model: Transformer) -> None:
        shape = self.batch, self.beam, model.config.d_model
        self.of_layers = [torch.zeros(shape, device=self.device) for _ in model.decoder]

    def _place(self, matrix: Tensor, queries: Tensor, opened: Tensor) -> tuple[Tensor, Tensor]:
        return opened[:, 0], opened

    def recur(self, layer: int, kept: Tensor, added: Tensor, step: _StepIndex) -> Tensor:
        """Return the new states (n, D), given the gates (N, D) of all rows."""
        states, rows = self.of_layers[layer].flatten(0, 1), slice(step.first, step.first + step.count)
        new = torch.addcmul(added[rows], kept[rows], states.index_select(0, step.written))
        states.index_copy_(0, step.written, new)
        return torch.cat([new, new[-1:].expand(step.padding, -1)])

    def _reorder(self, parents: Tensor) -> None:
        self.of_layers = [states.gather(1, parents[:, :, None].expand_as(states)) for states in self.of_layers]

    def _keep(self, kept: Tensor, matrices: Tensor) -> None:
        self.of_layers = [states[kept] for states in self.of_layers]


class CachedDecoder:
    """A `Decoder` with caches. `sources` are the ids of its sentences, end symbols included.

    `model` comes from `model.precision.convert`.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.model, self.beam, self.arrays = model, beam, TorchArrays(model.device)
        self.layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        self.heads = model.config.num_heads
        self.kind = _SsruSubBatch if model.config.decoder == "ssru" else _SubBatch
        self.sub_batches: list[_SubBatch] = []
        self.next_words = NextWords(model.next_word, beam) if model.next_word is not None else None
        self.add(sources)

    @torch.no_grad()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences behind the present ones; an empty list is allowed."""
        if sources:
            self.sub_batches.append(self.kind(self.model, sources, self.beam))
            if self.next_words:
                self.next_words.add(sources, self.sub_batches[-1].states)

    @torch.no_grad()
    def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
        on_host, count = torch.from_numpy(rows), len(rows)
        opened = on_host.to(tokens.device, non_blocking=True)
        padding, offsets = padded_rows(count) - count, self._offsets()
        ends = [(offset + len(sub_batch.present)) * self.beam for sub_batch, offset in offsets]
        bounds = pairwise([0, *np.searchsorted(rows, ends).tolist()])  # of each sub-batch's rows
        steps = [
            (
                sub_batch,
                sub_batch.begin_step(on_host[left:right] - offset * self.beam, left, padding * (right == count)),
            )
            for (sub_batch, offset), (left, right) in zip(offsets, bounds, strict=True)
            if left < right
        ]
        steps_taken = [sub_batch.steps for sub_batch, step in steps for _ in range(step.count)] + [0] * padding
        positions = torch.tensor(steps_taken).to(tokens.device, non_blocking=True)
        ids = F.pad(tokens.flatten().index_select(0, opened), (0, padding))
        encoded = self.model.target_positions.at(positions)  # type: ignore[operator]
        if self.next_words:
            encoded = encoded + F.pad(self.next_words.read(tokens, opened), (0, 0, 0, padding))
        x = self.model.embed(ids, "target", encoded)
        for number, layer in enumerate(self.layers):
            x = self._layer(number, layer, x, steps, positions)
        for sub_batch in self.sub_batches:
            sub_batch.steps += 1
        return self.model.logits(self.model.decoder_norm(x))[:count].float()

    def _offsets(self) -> list[tuple[_SubBatch, int]]:
        """Return each sub-batch and the number of its first sentence."""
        sizes = [len(sub_batch.present) for sub_batch in self.sub_batches]
        return [(sub_batch, sum(sizes[:number])) for number, sub_batch in enumerate(self.sub_batches)]

    def _layer(
        self,
        number: int,
        layer: DecoderLayer,
        x: Tensor,
        steps: Sequence[tuple[_SubBatch, _StepIndex]],
        positions: Tensor,
    ) -> Tensor:
        """Apply a decoder layer to one token of each hypothesis, x (N, D) at `positions` (N,) -> (N, D)."""
        other = layer.cross_attention

        def recur(h: Tensor) -> Tensor:
            gates = layer.ssru.gates(h)
            return F.relu(_concat([cast(_SsruSubBatch, one).recur(number, *gates, step) for one, step in steps]))

        def self_attention(h: Tensor) -> Tensor:
            own = layer.self_attention
            rows = self._rows(own.project(h, positions), own.sizes)  # (N, 3, H, K)
            parts = [one.self_attention(number, rows, step) for one, step in steps]
            return cast(Tensor, own.output(_concat(parts)))

        def cross_attention(h: Tensor) -> Tensor:
            rows = other.query(h).view(len(h), self.heads, -1)  # (N, H, K)
            parts = [one.cross_attention(number, rows, step) for one, step in steps]
            return cast(Tensor, other.output(_concat(parts)))

        return layer.sublayers(x, recur if self.kind is _SsruSubBatch else self_attention, cross_attention)

    def _rows(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Split projections that are side by side: (N, sum of `sizes`) -> (N, 3, H, K).

        If the sizes differ, K is the largest, and the others are padded with zeros, which do not change a product.
        """
        if len(set(sizes)) == 1:
            return x.view(len(x), len(sizes), self.heads, -1)
        parts = [part.view(len(x), self.heads, -1) for part in torch.split(x, sizes, -1)]
        widest = max(sizes) // self.heads
        return torch.stack([F.pad(part, (0, widest - part.size(2))) for part in parts], 1)

    def reorder(self, parents: Tensor) -> None:
        if self.next_words:
            self.next_words.reorder(parents)
        if self.beam > 1:
            for sub_batch, offset in self._offsets():
                sub_batch.reorder(parents[offset : offset + len(sub_batch.present)])

    def keep(self, sentences: np.ndarray) -> None:
        kept = torch.from_numpy(sentences)
        if self.next_words:
            self.next_words.keep(kept)
        for sub_batch, offset in self._offsets():
            inside = kept[(kept >= offset) & (kept < offset + len(sub_batch.present))] - offset
            if len(inside) < len(sub_batch.present):
                sub_batch.keep(inside)
        self.sub_batches = [sub_batch for sub_batch in self.sub_batches if len(sub_batch.present)]


def padded_rows(count: int) -> int:
    """Return the number of rows for `count` hypotheses, at least MIN_ROWS. It takes few different values."""
    step = 1 << max(0, count.bit_length() - 1 - OCTAVE)
    return max(MIN_ROWS, -(-count // step) * step)


def _joined(*parts: Tensor) -> Tensor:
    """Return the rows of parts (B * H, …, K) one after another, (…, K)."""
    return torch.cat([part.flatten(0, 1) for part in parts])


def _concat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
