"""The model as search sees it, in compiled passes: matrix products are torch's, all between them is `kernels/`'s.

    B sentences   W beam   N rows of a step   D d_model   H heads   K d_k   V d_v   P places

    sources ──▶ Layers.encode: rows without padding ──▶ keys and values of the memory, rows (H * K + H * V), a cohort's
    step: embed ──▶ x (N, D) ──▶ for each sub-layer: [norm] ──▶ rows for a product ──▶ product ──▶ attention ──▶ product
                     └─────────── + ◀──────────────────────────────────────────────────────────────────────────┘

x, the residual, stays in fp32 and is written to in place. What a product takes (fp32, bf16, or steps of int8) is written
by the pass before it. Keys and values of generated tokens stand in places of one cache a layer, whichever sentence they
are of; a hypothesis is a list of places, those of its ancestors (`Past`, in kernels/past.hpp). Reordering copies these lists
and frees the places that nobody descends from. Sentences need not be at the same step, nor be padded to one length.

A row's result depends on nothing but its own sentence, bit for bit: see kernels/kernels.cpp, and `fewest_rows` of `precision`.
`fast.CachedDecoder` does the same where there are no kernels.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...decoding.cached_decoder import filled_up
from ...model.attention import CrossAttention, SelfAttention
from ...model.layers import DecoderLayer, EncoderLayer
from ...model.transformer import Transformer
from .functions import KINDS, kernels
from .linear import FEW_ROWS, FewRows, Int8Linear, few_rows_work

FEW_TOKENS, MANY_TOKENS = 16, 64
"""Rows of the encoder are a multiple of the second, or of the first where they are fewer: products are compiled for each number."""
FIRST_PLACES = 256
"""Of a cache; it doubles."""


class _Stack:
    """Layers as one row of sub-layers: `norms[i]` stands before the i-th, `norms[-1]` behind the last; None: there is none.

    `last` is the linear map that takes what comes out; without one it comes out in fp32.
    """

    def __init__(self, layers: nn.ModuleList, final: nn.Module, post: bool, last: Any = None) -> None:
        self.library = cast(ctypes.CDLL, kernels())
        self.post, self.sublayers = post, list[tuple[int, Any]]()
        norms: list[nn.Module] = []
        for number, layer in enumerate(cast(Sequence[EncoderLayer | DecoderLayer], layers)):
            around = [(layer.around_self_attention, layer.self_attention), (layer.around_feed_forward, layer.feed_forward)]
            if isinstance(layer, DecoderLayer):
                around.insert(1, (layer.around_cross_attention, layer.cross_attention))
            self.sublayers += [(number, module) for _, module in around]
            norms += [residual.norm for residual, _ in around]
        ordered: list[nn.Module | None] = [None, *norms] if post else [*norms, final]
        self.norms = [norm if isinstance(norm, nn.LayerNorm) else None for norm in ordered]
        self.takers = [*(_first(module) for _, module in self.sublayers), last]

    def norm(self, place: int, x: Tensor, given: Tensor | None) -> Tensor:
        """x (N, D) <- x + given, and LayerNorm; what the next product takes, (N, D)."""
        norm, taker = self.norms[place], self.takers[place]
        dtype, step = (torch.float32, 1.0) if taker is None else (taker.takes, taker.step)
        out = torch.empty(x.shape, dtype=dtype)
        self.library.nmt_norm(
            len(x), x.size(1), x.data_ptr(), given.data_ptr() if given is not None else None, KINDS[given.dtype] if given is not None else 0,
            norm.weight.data_ptr() if norm else None, norm.bias.data_ptr() if norm else None, norm.eps if norm else 0.0, self.post, out.data_ptr(), KINDS[dtype], step,
        )  # fmt: skip
        return out


def _first(module: Any) -> Any:
    """The linear map that takes a sub-layer's input."""
    if isinstance(module, SelfAttention):
        return module.query_key_value
    return module.query if isinstance(module, CrossAttention) else module.inner


def _fed_forward(module: Any, rows: Tensor) -> Tensor:
    """What `FeedForward` gives for rows that its inner map takes."""
    return cast(Tensor, module.product(rows) if hasattr(module, "product") else module.outer.product(module.inner.product(rows)))


class Layers:
    """A model from `precision.prepared`, on a CPU, laid out for the kernels; raises nothing."""

    @staticmethod
    def of(model: Transformer) -> Layers | None:
        """None: the kernels are not there, or not for this model."""
        if model.output_weight.device.type != "cpu" or not hasattr(model.logits, "product") or kernels() is None:
            return None
        return Layers(model)

    def __init__(self, model: Transformer) -> None:
        self.model, self.library = model, cast(ctypes.CDLL, kernels())
        config, self.logits = model.config, cast(Any, model.logits)
        self.keeps: torch.dtype = self.logits.keeps
        post = config.norm == "post"
        self.encoder = _Stack(model.encoder, model.encoder_norm, post)
        self.decoder = _Stack(model.decoder, model.decoder_norm, post, self.logits)
        wide = all(FewRows.takes(size) for size in (config.d_model, config.d_ff, config.num_heads * config.value_size))
        self.few = FEW_ROWS if wide and isinstance(self.logits, Int8Linear) and few_rows_work() else 0  # rows that need no filling up
        self.heads, self.key, self.value = config.num_heads, config.key_size, config.value_size
        self.shape = (self.heads, self.key, self.value, self.key**-0.5)
        self.width = self.heads * (self.key + self.value)  # of one place
        self.factor = math.sqrt(config.d_model)
        self.positions = [positions(config.max_positions, 0).detach().float().contiguous() for positions in (model.source_positions, model.target_positions)]
        self.tables = [model.matrix(use).detach() for use in ("source", "target")]

    def embed(self, side: int, ids: Tensor, at: Tensor) -> Tensor:
        """Embeddings and positions of the source (0) or the target (1): ids (N,) at (N,) -> (N, D)."""
        x = torch.empty(len(ids), self.tables[side].size(1))
        self.library.nmt_embed(len(ids), x.size(1), self.tables[side].data_ptr(), ids.data_ptr(), self.factor, self.positions[side].data_ptr(), at.data_ptr(), x.data_ptr())
        return x

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Tensor]:
        """The memory of sentences one behind the other, projected for each decoder layer: (tokens or more, H * K + H * V)."""
        lengths = torch.tensor([len(source) for source in sources])
        tokens = int(lengths.sum())
        spare = -tokens % (MANY_TOKENS if tokens > MANY_TOKENS else FEW_TOKENS)
        ids = torch.tensor([token for source in sources for token in source] + [0] * spare)
        ends = lengths.cumsum(0)
        first = torch.cat([(ends - lengths).repeat_interleave(lengths), ends.new_zeros(spare)])
        count = torch.cat([lengths.repeat_interleave(lengths), ends.new_zeros(spare)])
        x = self.embed(0, ids, torch.cat([torch.arange(tokens), ends.new_zeros(spare)]) - first)
        stack, keys, values = self.encoder, self.heads * self.key, self.heads * self.value
        h = stack.norm(0, x, None)
        for place, (_, module) in enumerate(stack.sublayers):
            if isinstance(module, SelfAttention):
                rows, output = cast(Any, module.query_key_value).product(h), cast(Any, module.output)
                context, size = torch.zeros(len(x), values, dtype=output.takes), rows.element_size()
                self.library.nmt_attend_range(
                    tokens, *self.shape, rows.data_ptr(), rows.data_ptr() + keys * size, rows.data_ptr() + 2 * keys * size, KINDS[rows.dtype],
                    rows.size(1), rows.size(1), first.data_ptr(), count.data_ptr(), context.data_ptr(), KINDS[output.takes], output.step,
                )  # fmt: skip
                given = output.product(context)
            else:
                given = _fed_forward(module, h)
            h = stack.norm(place + 1, x, given)
        return [layer.cross_attention.key_value(h).to(self.keeps) for layer in cast(Sequence[DecoderLayer], self.model.decoder)]


class NativeDecoder:
    """`sources` are the ids of sentences, end symbols included; `layers` may serve several decoders."""

    def __init__(self, layers: Layers, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.layers, self.beam, self.library = layers, beam, layers.library
        self.past = layers.library.nmt_past_new(beam)
        weakref.finalize(self, layers.library.nmt_past_delete, self.past)
        self.fewest: int = layers.logits.fewest_rows
        self.few = layers.few
        self.memories: list[list[Tensor]] = []  # of each cohort, those that entered together; empty: it has left
        self.caches = [torch.empty(FIRST_PLACES, layers.width, dtype=layers.keeps) for _ in layers.model.decoder]
        self._addresses: list[Any] = []  # of the memories: for each layer, of each cohort
        self.add(sources)

    @torch.inference_mode()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """More sentences, behind those that are here; none is no fault."""
        if not sources:
            return
        cohort, first = next((number for number, memory in enumerate(self.memories) if not memory), len(self.memories)), 0
        self.memories[cohort : cohort + 1] = [self.layers.encode(sources)]
        for source in sources:
            self.library.nmt_past_enter(self.past, cohort, first, len(source))
            first += len(source)
        self._point()

    def _point(self) -> None:
        """Tell where the memories stand."""
        kind = ctypes.c_void_p * len(self.memories)
        self._addresses = [kind(*(memory[layer].data_ptr() if memory else None for memory in self.memories)) for layer in range(len(self.caches))]

    @torch.inference_mode()
    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        layers, library, count = self.layers, self.library, len(rows)
        size = count if count <= self.few else filled_up(count, self.fewest)
        positions, ids = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
        torch.index_select(tokens.flatten(), 0, rows, out=ids[:count])
        self._make_room(library.nmt_past_step(self.past, count, rows.data_ptr(), positions.data_ptr()))
        x, stack = layers.embed(1, ids, positions), layers.decoder
        takes: torch.dtype = layers.logits.takes
        context = torch.zeros(size, layers.heads * layers.value, dtype=takes)  # one for all layers: rows beyond `count` stay zero
        h = stack.norm(0, x, None)
        for place, (number, module) in enumerate(stack.sublayers):
            if isinstance(module, SelfAttention | CrossAttention):
                output = cast(Any, module.output)
                to = (context.data_ptr(), KINDS[takes], output.step)
                given = stack.takers[place].product(h)
                if isinstance(module, SelfAttention):
                    library.nmt_attend_past(self.past, *layers.shape, given.data_ptr(), KINDS[given.dtype], self.caches[number].data_ptr(), KINDS[layers.keeps], *to)
                else:
                    library.nmt_attend_memory(self.past, *layers.shape, given.data_ptr(), KINDS[given.dtype], self._addresses[number], KINDS[layers.keeps], *to)
                given = output.product(context)
            else:
                given = _fed_forward(module, h)
            h = stack.norm(place + 1, x, given)
        return cast(Tensor, layers.logits.product(h)[:count].float())

    def _make_room(self, places: int) -> None:
        """Caches of P places at least."""
        have = self.caches[0].size(0)
        if places > have:
            for number, cache in enumerate(self.caches):
                self.caches[number] = torch.empty(max(places, 2 * have), cache.size(1), dtype=cache.dtype)
                self.caches[number][:have] = cache

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        if self.beam > 1:
            self.library.nmt_past_reorder(self.past, parents.contiguous().data_ptr())

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        left = torch.empty(len(self.memories), dtype=torch.int64)
        self.library.nmt_past_keep(self.past, len(sentences), sentences.contiguous().data_ptr(), len(left), left.data_ptr())
        self.memories = [memory if there else [] for memory, there in zip(self.memories, left.tolist(), strict=True)]
        self._point()
