"""The model as search sees it, fast: one token a step, over the open hypotheses alone, with caches that do not move.

    B sentences   W beam   N open hypotheses   S source length   C places of a sentence's cache   D d_model
    H heads   K d_k or d_v   V vocabulary

    sources ──▶ encoder over rows without padding ──▶ keys and values of the memory (B * H, S, K), once a sentence
    step: (N, D) rows through every linear map and norm ─┬─ attention over (B * H, W, K) ─┬─ (N, D) ──▶ logits (N, V)
                                                         └── caches (B * H, C, K) ────────┘

Sentences that enter together are a cohort: at the same step, in the same caches. A step takes the rows of all cohorts
through the linear maps at once, and through attention one cohort after the other; so new sentences join while the last
hypotheses of earlier ones, which are few, come to their end.

* The hypotheses of a sentence stand side by side where attention expects query positions: they share the sentence's
  memory, which exists once, and attention is two batched matrix products and a softmax.
* They share their past, too. Keys and values stay where they were written, and a hypothesis sees those of its own
  ancestors through a mask (B, W, C). When search reorders its hypotheses only this mask moves; what nobody descends
  from any more is written over. A cache holds little more than one hypothesis: beams differ in their last tokens.
* What costs most, the linear maps, sees open hypotheses only; attention alone has a place for closed ones too.
* Where the model computes in bf16 or int8, keys and values are kept in bf16, and all heads of a sentence go through one
  product: queries stand on the diagonal of a matrix of heads x heads blocks, zeros elsewhere. That is H times the
  arithmetic, which is cheap in matrix registers, and an H-th of the products, each of which costs most by its beginning.
  In fp32 each head has its own. The softmax is in fp32 always.

Invariance. What a sentence gets must not depend, in fp32 and int8 on a CPU, on those it is computed with: not in a
single bit. Rows of a linear map do not, from `fewest_rows` on (see `precision`). In attention, S and C are those that
the cohort needs, and what a sentence does not have is masked: exact zeros among its sums. A sum of many numbers in
vector registers goes by places modulo 16, in matrix registers of bf16 by places modulo 32, so S and C are multiples of
`LANES`: zeros at the end change nothing. Where in its cache a sentence writes follows from its own hypotheses. On
another processor the tests say whether it holds.
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

from ..model.layers import DecoderLayer
from ..model.packing import Packing
from ..model.transformer import Transformer

LANES = {torch.float32: 16, torch.bfloat16: 32}
"""Attended places are a multiple of it, by what keys and values are kept in."""
OCTAVE = 3
"""Rows come in 2 ** OCTAVE different numbers from one power of two to the next."""
FEWEST_ROWS = 16
"""Of a linear map that does not say (torch's own), so that a row's bits do not depend on their number."""
COMPACT_BELOW = 0.6
"""A cohort's caches are copied once no more than this share of its sentences is left."""
FEWEST_QUERIES = 4
"""Of one sentence in attention: with fewer, products with narrow heads depend on the places beyond the sentence's own."""


class Caches:
    """Memory for the keys and values of decoders, which serves one cohort after another: for each layer rows (R, K).

    What was never written holds numbers of earlier cohorts, or zeros: masked, but never NaN.
    """

    def __init__(self) -> None:
        self.free: list[list[Tensor]] = []

    def take(self, layers: int, numbers: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Memory for that many numbers, or more, in each layer."""
        fitting = [memory for memory in self.free if len(memory) == layers and memory[0].dtype == dtype and memory[0].numel() >= numbers]
        if fitting:
            best = min(fitting, key=lambda memory: memory[0].numel())
            self.free = [memory for memory in self.free if memory is not best]
            return best
        self.free = self.free[1:]  # what was too small goes, by and by
        zeros = [np.zeros(numbers * dtype.itemsize, dtype=np.uint8) for _ in range(layers)]  # pages that nobody writes to cost nothing
        return [torch.from_numpy(zero).view(dtype).to(device) for zero in zeros]

    def give_back(self, memory: list[Tensor]) -> None:
        self.free.append(memory)


@dataclass(frozen=True)
class _Places:
    """Where the rows of one step go and come from, the same in every layer; rows are numbered over heads."""

    first: int  # of the step's N hypotheses
    count: int  # n, this cohort's hypotheses
    queries: Tensor  # (n * H,) of rows (N * 3 * H)
    new: Tensor  # (n * H * 2,) of rows (N * 3 * H): keys, then values
    cached: Tensor  # (n * H * 2,) of the cache's rows: where they are written
    blocks: Tensor  # (n * H,) of the blocks of the diagonals: where queries go, and what is attended to comes from
    fill: int  # times that the last hypothesis is given back besides
    seen: Tensor  # (B * G, R * W, C) additive


class _Cohort:
    """Sentences that entered together: B of them in the caches, of which those at `present` are still searched for.

    Heads go through attention in G groups of R: each group is one product of (R * W, R * K) with (R * K, C).
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int, store: Caches) -> None:
        self.device = model.output_weight.device
        lengths = torch.tensor([len(source) for source in sources])
        self.dtype: torch.dtype = getattr(model.logits, "keeps", torch.float32)  # of keys and values
        self.lanes = LANES[self.dtype]
        packing = Packing(lengths, self.lanes)
        ids = torch.zeros(packing.size, dtype=torch.long)
        ids[: packing.tokens] = torch.tensor([token for source in sources for token in source])
        source = packing.to(str(self.device))
        memory = model.encode_rows(ids.to(self.device), source)
        layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        projected = [[part.to(self.dtype) for part in layer.cross_attention.project(memory, source)] for layer in layers]
        own = layers[0].self_attention
        self.heads, self.size, self.layers, self.beam, self.store = own.num_heads, max(own.sizes) // own.num_heads, len(layers), beam, store
        self.together = 1 if self.dtype == torch.float32 else self.heads  # R
        self.groups = self.heads // self.together  # G
        self.memory = [(self._grouped(keys).transpose(1, 2).contiguous(), self._grouped(values)) for keys, values in projected]
        self.queries = max(beam, FEWEST_QUERIES)  # of a sentence; those beyond the beam mean nothing
        self.batch, self.steps = len(sources), 0
        self.present = torch.arange(self.batch, device=self.device)
        self.source = torch.arange(packing.longest, device=self.device) < lengths.to(self.device)[:, None]  # (B, S)
        self.seen_source = self._for_heads(self.source[:, None].expand(-1, beam, -1))  # (B * H, W, S)
        self.ancestors = torch.zeros(self.batch, beam, self.lanes, dtype=torch.bool, device=self.device)  # (B, W, C)
        self.itself = torch.eye(beam, dtype=torch.bool, device=self.device)  # (W, W)
        self.taken: list[Tensor] = []
        self.diagonals = self._diagonals()
        self._make_room()

    @property
    def caches(self) -> list[Tensor]:
        """(2, B * G, C, R * K) for each layer: keys, then values; without gaps, as products copy what has any."""
        shape = (2, self.batch * self.groups, self.room, self.together * self.size)
        return [memory[: math.prod(shape)].view(shape) for memory in self.taken]

    def _grouped(self, x: Tensor) -> Tensor:
        """(B, H, S, K) -> (B * G, S, R * K)"""
        return x.reshape(-1, self.together, x.size(2), x.size(3)).transpose(1, 2).flatten(2)

    def _diagonals(self) -> dict[int, Tensor]:
        """Zeros for the queries' matrices, (B * G * R * W * R, K); blocks beside the diagonal are never written to."""
        rows = self.batch * self.groups * self.together * self.queries * self.together
        sizes = {self.size, self.memory[0][0].size(1) // self.together}  # of self-attention, and to the source
        return {size: torch.zeros(rows, size, dtype=self.dtype, device=self.device) for size in sizes}

    def places(self, rows: Tensor, first: int, fill: int) -> _Places:
        """Choose where the step is written, and tell the mask.

        `rows` (n,) are the open hypotheses, b * W + w with b counting those present; they stand at rows `first` and
        following of the step's. The last is given back `fill` times more.
        """
        batch, beam, heads, device = self.batch, self.beam, self.heads, self.device
        head, count = torch.arange(heads, device=device), len(rows)
        sentence, hypothesis = self.present[rows // beam], rows % beam
        opened = sentence * beam + hypothesis
        alive = torch.zeros(batch * beam, 1, dtype=torch.bool, device=device).index_fill_(0, opened, True)
        taken = (self.ancestors & alive.view(batch, beam, 1)).any(1)  # (B, C)
        if int(taken.sum(1).max()) > taken.size(1) - beam:
            more, before = -(-beam // self.lanes) * self.lanes, [cache.clone() for cache in self.caches]
            self.ancestors, taken = (F.pad(x, (0, more)) for x in (self.ancestors, taken))
            self._make_room(before)
        slots = taken.byte().sort(dim=1, stable=True).indices[:, :beam]  # (B, W): the first that are free
        self.ancestors.scatter_(2, slots[:, None].expand(-1, beam, -1), self.itself.expand(batch, -1, -1))

        group, inner = head // self.together, head % self.together
        groups = (sentence * self.groups)[:, None] + group  # (n, H)
        row = torch.arange(first, first + count, device=device)[:, None] * (3 * heads) + head  # (n, H)
        cached = (groups * self.room + slots.flatten().index_select(0, opened)[:, None]) * self.together + inner
        blocks = ((groups * self.together + inner) * self.queries + hypothesis[:, None]) * self.together + inner
        return _Places(
            first=first,
            count=count,
            queries=row.flatten(),
            new=torch.cat([row.flatten() + heads, row.flatten() + 2 * heads]),
            cached=torch.cat([cached.flatten(), cached.flatten() + batch * heads * self.room]),
            blocks=blocks.flatten(),
            fill=fill,
            seen=self._for_heads(self.ancestors),
        )

    def _for_heads(self, mask: Tensor) -> Tensor:
        """(B, W, C) of what may be attended to -> (B * G, R * W, C) to be added: 0 or -inf."""
        added = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))
        if missing := self.queries - mask.size(1):
            added = torch.cat([added, added[:, -1:].expand(-1, missing, -1)], 1)
        return added[:, None].expand(-1, self.heads, -1, -1).reshape(-1, self.together * self.queries, added.size(2))

    def to_themselves(self, layer: int, rows: Tensor, places: _Places, scale: float, value_size: int) -> Tensor:
        """Self-attention: rows (N * 3 * H, K) of queries, keys and values -> (n, H * value_size)."""
        cache, rows = self.caches[layer], rows.to(self.dtype)
        cache.view(-1, self.size).index_copy_(0, places.cached, rows.index_select(0, places.new))
        keys, values = cache
        return self._attended(rows.index_select(0, places.queries), keys.transpose(1, 2), values, places.seen, places, scale)[:, :, :value_size].flatten(1)

    def to_the_source(self, layer: int, rows: Tensor, places: _Places, scale: float) -> Tensor:
        """Encoder-decoder attention: rows (N * H, K) of queries -> (n, H * value_size)."""
        own = rows[places.first * self.heads : (places.first + places.count) * self.heads].to(self.dtype)
        return self._attended(own, *self.memory[layer], self.seen_source, places, scale).flatten(1)

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, places: _Places, scale: float) -> Tensor:
        """Equation (1): queries (n * H, K), keys (B * G, R * K, C), values (B * G, C, R * K) -> (n, H, K) in fp32."""
        diagonal = self.diagonals[queries.size(1)].index_copy_(0, places.blocks, queries)
        matrices = diagonal.view(seen.size(0), seen.size(1), -1)  # (B * G, R * W, R * K)
        if self.dtype == torch.float32:
            scores = torch.baddbmm(seen, matrices, keys, alpha=scale)  # (B * G, R * W, C)
        else:
            scores = torch.add(seen, torch.bmm(matrices, keys), alpha=scale)
        attended = torch.bmm(scores.softmax(-1).to(self.dtype), values).view(-1, values.size(2) // self.together)
        found = attended.index_select(0, places.blocks).float().view(places.count, self.heads, -1)
        return torch.cat([found, found[-1:].expand(places.fill, -1, -1)]) if places.fill else found

    def reorder(self, parents: Tensor) -> None:
        """parents (b, W) of the sentences present: only the mask of ancestors moves."""
        if len(parents) < self.batch:
            every = torch.zeros(self.batch, self.beam, dtype=torch.long, device=self.device)
            parents = every.index_copy_(0, self.present, parents)
        self.ancestors = self.ancestors.gather(1, parents[:, :, None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """Of those present, the sentences that stay; the caches are copied when enough have left."""
        self.present = self.present[sentences]
        if not len(sentences):
            self.store.give_back(self.taken)
        elif len(sentences) <= COMPACT_BELOW * self.batch:
            kept, before = self.present, self.batch
            groups = (kept[:, None] * self.groups + torch.arange(self.groups, device=self.device)).flatten()
            longest = -(-int(self.source[kept].sum(1).max()) // self.lanes) * self.lanes
            self.memory = [(keys[:, :, :longest].index_select(0, groups), values[:, :longest].index_select(0, groups)) for keys, values in self.memory]
            caches = [cache.index_select(1, groups) for cache in self.caches]
            self.ancestors, self.source = self.ancestors[kept], self.source[kept, :longest]
            self.batch, self.present = len(kept), torch.arange(len(kept), device=self.device)
            self.seen_source = self._for_heads(self.source[:, None].expand(-1, self.beam, -1))
            self.diagonals = {size: zeros[: len(zeros) // before * self.batch] for size, zeros in self.diagonals.items()}
            self._make_room(caches)

    @property
    def room(self) -> int:
        """C, the places of a sentence."""
        return self.ancestors.size(2)

    def _make_room(self, kept: Sequence[Tensor] = ()) -> None:
        """Caches of C places a sentence, holding what is `kept`: (2, B * G, C or fewer, R * K) for each layer."""
        numbers = 2 * self.batch * self.heads * self.room * self.size
        if not self.taken or self.taken[0].numel() < numbers:
            before, self.taken = self.taken, self.store.take(self.layers, numbers, self.dtype, self.device)
            if before:
                self.store.give_back(before)
        for cache, old in zip(self.caches, kept, strict=False):
            cache[:, :, : old.size(2)] = old


class CachedDecoder:
    """`sources` are the ids of sentences, end symbols included; `model` best comes from `precision.prepared`.

    `caches` may serve one decoder after another, not two at once.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int, caches: Caches | None = None) -> None:
        self.model, self.beam, self.store = model, beam, caches or Caches()
        self.layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        own = self.layers[0].self_attention
        self.heads, self.scale = own.num_heads, math.sqrt(own.num_heads / own.sizes[0])
        self.fewest = getattr(model.logits, "fewest_rows", FEWEST_ROWS)
        self.cohorts: list[_Cohort] = []
        self.add(sources)

    @torch.inference_mode()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """More sentences, behind those that are here; none is no fault."""
        if sources:
            self.cohorts.append(_Cohort(self.model, sources, self.beam, self.store))

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        count = len(rows)
        fill = filled_up(count, self.fewest) - count
        bounds = self._bounds(rows)
        parts = [(cohort, rows[left:right] - offset * self.beam, left) for (cohort, offset), (left, right) in zip(self._offsets(), bounds, strict=True) if left < right]
        asked = [(cohort, cohort.places(own, first, fill if number == len(parts) - 1 else 0)) for number, (cohort, own, first) in enumerate(parts)]
        steps = torch.cat([torch.full((len(own),), cohort.steps, device=rows.device) for cohort, own, _ in parts] + [rows.new_zeros(fill)])
        ids = F.pad(tokens.flatten().index_select(0, rows), (0, fill))
        x = self.model.embed_rows(ids, self.model.matrix("target"), self.model.target_positions, steps)
        for number, layer in enumerate(self.layers):
            x = self._layer(number, layer, x, asked)
        for cohort in self.cohorts:
            cohort.steps += 1
        return self.model.logits(self.model.decoder_norm(x))[:count]

    def _offsets(self) -> list[tuple[_Cohort, int]]:
        """Each cohort and the number of its first sentence."""
        sizes = [len(cohort.present) for cohort in self.cohorts]
        return [(cohort, sum(sizes[:number])) for number, cohort in enumerate(self.cohorts)]

    def _bounds(self, rows: Tensor) -> list[tuple[int, int]]:
        """For each cohort, where its own stand among `rows`, ascending b * W + w."""
        if len(self.cohorts) == 1:
            return [(0, len(rows))]
        ends = torch.tensor([(offset + len(cohort.present)) * self.beam for cohort, offset in self._offsets()], device=rows.device)
        places = torch.searchsorted(rows, ends).tolist()
        return list(zip([0, *places[:-1]], places, strict=True))

    def _layer(self, number: int, layer: DecoderLayer, x: Tensor, asked: Sequence[tuple[_Cohort, _Places]]) -> Tensor:
        """`DecoderLayer.forward` for one token of each hypothesis; x (N, D) -> (N, D)."""
        own, other = layer.self_attention, layer.cross_attention
        value_size = own.sizes[2] // self.heads

        def self_attention(h: Tensor) -> Tensor:
            rows = self._rows(own.query_key_value(h), own.sizes)  # (N * 3 * H, K)
            return cast(Tensor, own.output(_joined([cohort.to_themselves(number, rows, places, self.scale, value_size) for cohort, places in asked])))

        def cross_attention(h: Tensor) -> Tensor:
            rows = other.query(h).view(len(h) * self.heads, -1)  # (N * H, K)
            return cast(Tensor, other.output(_joined([cohort.to_the_source(number, rows, places, self.scale) for cohort, places in asked])))

        x = layer.around_self_attention(x, self_attention)
        x = layer.around_cross_attention(x, cross_attention)
        return cast(Tensor, layer.around_feed_forward(x, layer.feed_forward))

    def _rows(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Projections side by side, (N, their `sizes`), as rows (N * 3 * H, K); where sizes differ, K is the largest and
        zeros fill up the others: they add nothing to a product."""
        if len(set(sizes)) == 1:
            return x.view(-1, sizes[0] // self.heads)
        parts = [part.view(len(x), self.heads, -1) for part in torch.split(x, sizes, -1)]
        widest = max(sizes) // self.heads
        return torch.stack([F.pad(part, (0, widest - part.size(2))) for part in parts], 1).view(-1, widest)

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        if self.beam > 1:
            for cohort, offset in self._offsets():
                cohort.reorder(parents[offset : offset + len(cohort.present)])

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        for cohort, offset in self._offsets():
            inside = sentences[(sentences >= offset) & (sentences < offset + len(cohort.present))] - offset
            if len(inside) < len(cohort.present):
                cohort.keep(inside)
        self.cohorts = [cohort for cohort in self.cohorts if len(cohort.present)]


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def filled_up(count: int, fewest: int) -> int:
    """The rows that `count` hypotheses take: one of few numbers, as products are compiled anew for each."""
    step = 1 << max(0, count.bit_length() - 1 - OCTAVE)
    return max(fewest, -(-count // step) * step)
