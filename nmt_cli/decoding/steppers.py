"""The model as search sees it: B sentences, W hypotheses each, one token at a time.

    B sentences   W beam   S source length   T tokens generated   D d_model   H heads   K d_k or d_v   V vocabulary

    source ids ──▶ source_batch ──▶ src (B, S), mask ──▶ Stepper(model, src, mask, beam) ──▶ search

`ReferenceStepper` runs the decoder over all that was generated, each time: plain, slow, the twin that the other is
tested against. `CachedStepper` takes only the newest token through the decoder:

* The hypotheses of a sentence stand side by side where attention expects query positions, (B, W, D): they share the
  sentence's memory, and the memory exists once, not W times.
* They share their past, too. The keys and values of every step stay where they were written, T * W a sentence, and a
  hypothesis sees those of its own ancestors through a mask (B, W, T * W). When search reorders its hypotheses only
  this mask moves; the caches are copied when they are full and when sentences leave.

Invariance. What a sentence gets must not depend, in fp32 on a CPU, on those it is computed with: not in a single bit.
A matrix product may take another path for other shapes, so: (1) attention's shapes follow from the sentence alone:
sources are padded to multiples of 4, never to the longest of a batch, only sentences of equal padded length go together,
and they are masked even where nothing is padded; (2) attention has at least 4 query rows (`ROW_MULTIPLE`); (3) every
linear map has at least 16 rows (`FEWEST_ROWS`): smaller batches are filled up with copies. Measured with torch 2.13 on
an AMD EPYC (Zen 5), one and two threads: a row of a product is the same bit for bit from 12 rows on with MKL, from 2 on
with oneDNN (`packed`), up to the 4096 tried; fused attention from 4 query rows on, where their number is a multiple of
4. Below they are not. Everything else works row by row. On another processor the tests say whether it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..model.attention import attend
from ..model.layers import DecoderLayer
from ..model.transformer import Transformer

ROW_MULTIPLE = 4
FEWEST_ROWS = 16
HEADROOM = 16
"""Steps beyond the source's length that a cache has room for; when full it grows by half."""


def padded_length(length: int) -> int:
    """S for a source of `length` ids: a function of the sentence alone."""
    return -(-length // ROW_MULTIPLE) * ROW_MULTIPLE


def source_batch(sources: Sequence[Sequence[int]], pad: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Ids of sources of equal `padded_length` -> src (B, S) and its mask (B, 1, 1, S)."""
    size = padded_length(len(sources[0]))
    rows = torch.tensor([[*source, *[pad] * (size - len(source))] for source in sources], device=device)
    lengths = torch.tensor([len(source) for source in sources], device=device)
    return rows, (torch.arange(size, device=device) < lengths[:, None])[:, None, None, :]


class ReferenceStepper:
    """No caches: each step decodes every hypothesis from its beginning."""

    def __init__(self, model: Transformer, src: Tensor, mask: Tensor, beam: int) -> None:
        self.model, self.beam = model, beam
        memory = model.encode(src, mask).repeat_interleave(beam, 0)  # (B * W, S, D)
        self.memory, self.mask = model.project_memory(memory), mask.repeat_interleave(beam, 0)
        self.tokens = src.new_empty(src.size(0), beam, 0)  # (B, W, T)

    def step(self, tokens: Tensor) -> Tensor:
        """See `Stepper`."""
        self.tokens = torch.cat([self.tokens, tokens[:, :, None]], dim=2)
        hidden = self.model.decode(self.tokens.flatten(0, 1), self.memory, self.mask)  # (B * W, T, D)
        return self.model.logits(hidden[:, -1]).view(*tokens.shape, -1)

    def reorder(self, parents: Tensor) -> None:
        """See `Stepper`."""
        self.tokens = self.tokens.gather(1, parents[:, :, None].expand_as(self.tokens))

    def keep(self, sentences: Tensor) -> None:
        """See `Stepper`."""
        rows = (sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device)).flatten()
        self.tokens, self.mask = self.tokens[sentences], self.mask[rows]
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]


class _Grown:
    """Keys and values of one decoder layer, (B, H, T * W, K), in buffers that grow by half when they are full."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used = capacity, 0  # of T * W
        self.keys = self.values = torch.empty(0)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add a step's (B, H, W, K); return those of all steps."""
        start, self.used = self.used, self.used + keys.size(2)
        if start == 0:
            self.keys, self.values = self._room(keys), self._room(values)
        elif self.used > self.capacity:
            self.capacity += max(self.capacity // 2, keys.size(2))
            for name, old in (("keys", self.keys), ("values", self.values)):
                setattr(self, name, self._room(old))
                getattr(self, name)[:, :, :start] = old[:, :, :start]
        self.keys[:, :, start : self.used] = keys
        self.values[:, :, start : self.used] = values
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def _room(self, like: Tensor) -> Tensor:
        return like.new_empty(*like.shape[:2], self.capacity, like.size(3))

    def keep(self, rows: Tensor) -> None:
        """Those sentences alone; only what is used is copied."""
        for name, old in (("keys", self.keys), ("values", self.values)):
            new = old.new_empty(rows.size(0), *old.shape[1:])
            torch.index_select(old[:, :, : self.used], 0, rows, out=new[:, :, : self.used])
            setattr(self, name, new)


class CachedStepper:
    """One token a step, caches that are not moved; see the module's head."""

    def __init__(self, model: Transformer, src: Tensor, mask: Tensor, beam: int) -> None:
        self.model, self.beam, self.steps = model, beam, 0
        self.fewest = -(-FEWEST_ROWS // min(beam, src.size(1)))
        self.rows = src.size(0)  # sentences asked for; the copies that fill up stand behind them
        src, mask = self._fill(src), self._fill(mask)
        memory = model.encode(src, mask)
        self.memory = model.project_memory(memory)
        self.mask = _additive(mask, memory.dtype)
        self.caches = [_Grown((src.size(1) + HEADROOM) * beam) for _ in self.memory]
        self.ancestors = torch.zeros(src.size(0), beam, 0, dtype=torch.bool, device=src.device)  # (B, W, T * W)
        self.itself = torch.eye(beam, dtype=torch.bool, device=src.device)  # (W, W)

    def _fill(self, x: Tensor) -> Tensor:
        """Copies of the last row behind the others, until there are `fewest`."""
        missing = self.fewest - x.size(0)
        return x if missing <= 0 else torch.cat([x, x[-1:].expand(missing, *x.shape[1:])])

    def step(self, tokens: Tensor) -> Tensor:
        """See `Stepper`."""
        model, tokens = self.model, self._fill(tokens)
        self.ancestors = torch.cat([self.ancestors, self.itself.expand(tokens.size(0), -1, -1)], dim=2)
        x = model.embed(tokens.reshape(-1, 1), model.matrix("target"), model.target_positions, self.steps)
        x = x.view(*tokens.shape, -1)  # (B, W, D)
        seen = _additive(self.ancestors[:, None], x.dtype)
        for layer, memory, cache in zip(model.decoder, self.memory, self.caches, strict=True):
            x = _decoder_layer(cast(DecoderLayer, layer), x, cache, seen, memory, self.mask)
        self.steps += 1
        return model.logits(model.decoder_norm(x))[: self.rows]

    def reorder(self, parents: Tensor) -> None:
        """See `Stepper`: only the mask of ancestors moves."""
        if self.beam > 1:
            self.ancestors = self.ancestors.gather(1, self._fill(parents)[:, :, None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """See `Stepper`."""
        self.rows, rows = sentences.size(0), self._fill(sentences)
        self.ancestors, self.mask = self.ancestors[rows], self.mask[rows]
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]
        for cache in self.caches:
            cache.keep(rows)


def _decoder_layer(
    layer: DecoderLayer, x: Tensor, cache: _Grown, seen: Tensor, memory: tuple[Tensor, Tensor], memory_mask: Tensor
) -> Tensor:
    """`DecoderLayer.forward` with the W hypotheses in the place of positions; x (B, W, D) -> (B, W, D)."""
    own, other = layer.self_attention, layer.cross_attention

    def self_attention(h: Tensor) -> Tensor:
        query, key, value = (_heads(part, own.num_heads) for part in torch.split(own.query_key_value(h), own.sizes, -1))
        return cast(Tensor, own.output(_attended(query, *cache.append(key, value), seen)))

    def cross_attention(h: Tensor) -> Tensor:
        return cast(Tensor, other.output(_attended(_heads(other.query(h), other.num_heads), *memory, memory_mask)))

    x = layer.around_self_attention(x, self_attention)
    x = layer.around_cross_attention(x, cross_attention)
    return cast(Tensor, layer.around_feed_forward(x, layer.feed_forward))


def _heads(x: Tensor, num_heads: int) -> Tensor:
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)  # (B, H, W, K)


def _attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention with the rows of `query` (B, H, W, K) filled up to a multiple of ROW_MULTIPLE -> (B, W, H * K)."""
    width = query.size(2)
    if missing := -width % ROW_MULTIPLE:
        query = F.pad(query, (0, 0, 0, missing))
        mask = mask if mask.size(2) == 1 else torch.cat([mask, mask[:, :, -1:].expand(-1, -1, missing, -1)], dim=2)
    return attend(query, keys, values, mask)[:, :, :width].transpose(1, 2).flatten(2)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, -inf elsewhere: what the kernel makes of a boolean mask in every layer anew."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
