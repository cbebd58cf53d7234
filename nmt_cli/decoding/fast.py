"""The model as search sees it, fast: one token a step, over the open hypotheses alone, with caches that do not move.

    B sentences   W beam   N open hypotheses   S source length   C places of a sentence's cache   D d_model
    H heads   K d_k or d_v   V vocabulary

    sources ──▶ encoder over rows without padding ──▶ keys and values of the memory (B * H, S, K), once a sentence
    step: (N, D) rows through every linear map and norm ─┬─ attention over (B * H, W, K) ─┬─ (N, D) ──▶ logits (N, V)
                                                         └── caches (B * H, C, K) ────────┘

* The hypotheses of a sentence stand side by side where attention expects query positions: they share the sentence's
  memory, which exists once, and attention is two batched matrix products and a softmax.
* They share their past, too. Keys and values stay where they were written, and a hypothesis sees those of its own
  ancestors through a mask (B, W, C). When search reorders its hypotheses only this mask moves; what nobody descends
  from any more is written over. A cache holds little more than one hypothesis: beams differ in their last tokens.
* What costs most, the linear maps, sees open hypotheses only; attention alone has a place for closed ones too.

Invariance. What a sentence gets must not depend, in fp32 and int8 on a CPU, on those it is computed with: not in a
single bit. Rows of a linear map do not, from `fewest_rows` on (see `precision`). In attention, S and C are those that
the batch needs, and what a sentence does not have is masked: exact zeros among its sums. A sum of many numbers in
vector registers goes by places modulo 16, so S and C are multiples of `LANES`: zeros at the end change nothing. Where
in its cache a sentence writes follows from its own hypotheses. On another processor the tests say whether it holds.
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

LANES = 16
"""Attended places are a multiple of it."""
OCTAVE = 3
"""Rows come in 2 ** OCTAVE different numbers from one power of two to the next."""
FEWEST_ROWS = 16
"""Of a linear map that does not say (torch's own), so that a row's bits do not depend on their number."""
FEWEST_QUERIES = 4
"""Of one sentence in attention: with fewer, products with narrow heads depend on the places beyond the sentence's own."""


class Caches:
    """Memory for the keys and values of a decoder, which serves one batch after another: for each layer rows (R, K).

    What was never written holds numbers of earlier batches, or zeros: masked, but never NaN.
    """

    def __init__(self) -> None:
        self.rows: list[Tensor] = []

    def take(self, layers: int, rows: int, size: int, device: torch.device) -> list[Tensor]:
        """Rows (R, K) for each layer."""
        if len(self.rows) != layers or self.rows[0].numel() < rows * size:
            zeros = [np.zeros(rows * size, dtype=np.float32) for _ in range(layers)]  # pages that nobody writes to cost nothing
            self.rows = [torch.from_numpy(zero).to(device) for zero in zeros]
        return [memory[: rows * size].view(rows, size) for memory in self.rows]


@dataclass(frozen=True)
class _Places:
    """Where the rows of one step go and come from, the same in every layer; rows are numbered over heads."""

    queries: Tensor  # (B * H * W,) of rows (N * 3 * H): the query of each place (b, h, w)
    crossing: Tensor  # (B * H * W,) of rows (N * H): the same for encoder-decoder attention
    new: Tensor  # (N * H * 2,) of rows (N * 3 * H): keys, then values
    cached: Tensor  # (N * H * 2,) of the cache's rows: where they are written
    back: Tensor  # (N * H,) of places (B * H * W): what attention gives to each open hypothesis
    seen: Tensor  # (B * H, W, C) additive


class FastStepper:
    """`sources` are the ids of B sentences, end symbols included; `model` best comes from `precision.prepared`.

    `caches` may serve one stepper after another, not two at once.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int, caches: Caches | None = None) -> None:
        device = model.output_weight.device
        lengths = torch.tensor([len(source) for source in sources])
        packing = Packing(lengths, LANES)
        ids = torch.zeros(packing.size, dtype=torch.long)
        ids[: packing.tokens] = torch.tensor([token for source in sources for token in source])
        source = packing.to(str(device))
        memory = model.encode_rows(ids.to(device), source)
        layers = [cast(DecoderLayer, layer) for layer in model.decoder]
        projected = [layer.cross_attention.project(memory, source) for layer in layers]
        self.memory = [(k.flatten(0, 1).transpose(1, 2).contiguous(), v.flatten(0, 1)) for k, v in projected]  # (B * H, K, S), (B * H, S, K)
        self.model, self.layers, self.beam, self.steps = model, layers, beam, 0
        self.queries = max(beam, FEWEST_QUERIES)  # of a sentence; those beyond the beam mean nothing
        own = layers[0].self_attention
        self.heads, self.widest, self.scale = own.num_heads, max(own.sizes) // own.num_heads, math.sqrt(own.num_heads / own.sizes[0])
        self.source = torch.arange(packing.longest, device=device) < lengths.to(device)[:, None]  # (B, S)
        self.seen_source = self._for_heads(self.source[:, None].expand(-1, beam, -1))  # (B * H, W, S)
        self.store, self.batch = caches or Caches(), len(sources)
        self.caches: list[Tensor] = []  # for each layer (2 * B * H * room, K): keys, then values
        self.room = 0
        self._make_room(4 * LANES)
        self.ancestors = torch.zeros(self.batch, beam, LANES, dtype=torch.bool, device=device)  # (B, W, C)
        self.itself = torch.eye(beam, dtype=torch.bool, device=device)  # (W, W)
        self.fewest = getattr(model.logits, "fewest_rows", FEWEST_ROWS)

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Stepper`."""
        count = len(rows)
        rows = torch.cat([rows, rows[-1:].expand(filled_up(count, self.fewest) - count)])
        places = self._places(rows, count)
        ids = tokens.flatten().index_select(0, rows)
        x = self.model.embed(ids[:, None], self.model.matrix("target"), self.model.target_positions, self.steps)[:, 0]
        for layer, memory, cache in zip(self.layers, self.memory, self.caches, strict=True):
            x = self._layer(layer, x, memory, cache, places)
        self.steps += 1
        return self.model.logits(self.model.decoder_norm(x))[:count]

    def _places(self, rows: Tensor, count: int) -> _Places:
        """Choose where the step is written, and tell the mask; the first `count` of `rows` are open hypotheses."""
        batch, beam, heads, device = self.batch, self.beam, self.heads, rows.device
        head, opened = torch.arange(heads, device=device), rows[:count]
        alive = torch.zeros(batch * beam, 1, dtype=torch.bool, device=device).index_fill_(0, opened, True)
        taken = (self.ancestors & alive.view(batch, beam, 1)).any(1)  # (B, C)
        if int(taken.sum(1).max()) > taken.size(1) - beam:
            more = -(-beam // LANES) * LANES
            self.ancestors, taken = (F.pad(x, (0, more)) for x in (self.ancestors, taken))
            if taken.size(1) > self.room:
                self._make_room(2 * taken.size(1))
        slots = taken.byte().sort(dim=1, stable=True).indices[:, :beam]  # (B, W): the first that are free
        self.ancestors.scatter_(2, slots[:, None].expand(-1, beam, -1), self.itself.expand(batch, -1, -1))

        numbers = torch.zeros(batch * beam, dtype=torch.long, device=device)  # closed hypotheses take the row of some open one
        numbers.index_copy_(0, opened, torch.arange(count, device=device))
        number = F.pad(numbers.view(batch, 1, beam), (0, self.queries - beam))
        sentence, hypothesis = opened // beam, opened % beam
        group = (sentence * heads)[:, None] + head  # (N, H): b * H + h
        key = torch.arange(count, device=device)[:, None] * (3 * heads) + heads + head  # (N, H)
        cached = group * self.room + slots.flatten().index_select(0, opened)[:, None]
        return _Places(
            queries=(number * (3 * heads) + head[:, None]).flatten(),
            crossing=(number * heads + head[:, None]).flatten(),
            new=torch.cat([key.flatten(), key.flatten() + heads]),
            cached=torch.cat([cached.flatten(), cached.flatten() + batch * heads * self.room]),
            back=self._filled(group * self.queries + hypothesis[:, None], len(rows)).flatten(),
            seen=self._for_heads(self.ancestors),
        )

    def _filled(self, x: Tensor, count: int) -> Tensor:
        """(N, H), its last row repeated until there are `count`."""
        return x if len(x) == count else torch.cat([x, x[-1:].expand(count - len(x), -1)])

    def _for_heads(self, mask: Tensor) -> Tensor:
        """(B, W, C) of what may be attended to -> (B * H, queries, C) to be added: 0 or -inf."""
        added = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))
        if missing := self.queries - mask.size(1):
            added = torch.cat([added, added[:, -1:].expand(-1, missing, -1)], 1)
        return added[:, None].expand(-1, self.heads, -1, -1).flatten(0, 1)

    def _layer(self, layer: DecoderLayer, x: Tensor, memory: tuple[Tensor, Tensor], cache: Tensor, places: _Places) -> Tensor:
        """`DecoderLayer.forward` for one token of each hypothesis; x (N, D) -> (N, D)."""
        own, other = layer.self_attention, layer.cross_attention

        def self_attention(h: Tensor) -> Tensor:
            rows = self._rows(own.query_key_value(h), own.sizes)  # (N * 3 * H, K)
            cache.index_copy_(0, places.cached, rows.index_select(0, places.new))
            keys, values = cache.view(2, -1, self.room, cache.size(1))[:, :, : places.seen.size(2)]
            values = values[:, :, : own.sizes[2] // self.heads]
            return cast(Tensor, own.output(self._attended(rows.index_select(0, places.queries), keys.transpose(1, 2), values, places.seen, places.back)))

        def cross_attention(h: Tensor) -> Tensor:
            rows = other.query(h).view(-1, memory[0].size(1))  # (N * H, K)
            return cast(Tensor, other.output(self._attended(rows.index_select(0, places.crossing), *memory, self.seen_source, places.back)))

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

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, back: Tensor) -> Tensor:
        """Equation (1): query (B * H * W, K), keys (B * H, K, C), values (B * H, C, K) -> (N, H * K)."""
        scores = torch.baddbmm(seen, query.view(-1, self.queries, query.size(1)), keys, alpha=self.scale)  # (B * H, W, C)
        attended = torch.bmm(scores.softmax(-1), values).view(-1, values.size(2))  # (B * H * W, K)
        return attended.index_select(0, back).view(-1, self.heads * values.size(2))

    def reorder(self, parents: Tensor) -> None:
        """See `Stepper`: only the mask of ancestors moves."""
        if self.beam > 1:
            self.ancestors = self.ancestors.gather(1, parents[:, :, None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """See `Stepper`."""
        heads, used = torch.arange(self.heads, device=sentences.device), self.ancestors.size(2)
        groups = (sentences[:, None] * self.heads + heads).flatten()
        longest = -(-int(self.source[sentences].sum(1).max()) // LANES) * LANES
        self.memory = [(keys[:, :, :longest].index_select(0, groups), values[:, :longest].index_select(0, groups)) for keys, values in self.memory]
        self.ancestors, self.source = self.ancestors[sentences], self.source[sentences, :longest]
        self.seen_source = self._for_heads(self.source[:, None].expand(-1, self.beam, -1))
        kept = [cache.view(2, -1, self.room, cache.size(1))[:, :, :used].index_select(1, groups) for cache in self.caches]
        self.batch = len(sentences)
        self._make_room(self.room, kept)

    def _make_room(self, room: int, kept: Sequence[Tensor] | None = None) -> None:
        """Caches of `room` places a sentence, holding what they hold, or what is `kept` of it, (2, B * H, C, K) a layer."""
        if kept is None and self.steps:
            kept = [cache.view(2, -1, self.room, cache.size(1)).clone() for cache in self.caches]
        self.room, groups, size = room, self.batch * self.heads, self.widest
        self.caches = self.store.take(len(self.layers), 2 * groups * room, size, self.model.output_weight.device)
        for cache, old in zip(self.caches, kept or [], strict=False):
            cache.view(2, groups, room, size)[:, :, : old.size(2)] = old


def filled_up(count: int, fewest: int) -> int:
    """The rows that `count` hypotheses take: one of few numbers, as products are compiled anew for each."""
    step = 1 << max(0, count.bit_length() - 1 - OCTAVE)
    return max(fewest, -(-count // step) * step)
