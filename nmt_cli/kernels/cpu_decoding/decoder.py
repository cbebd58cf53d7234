"""The compiled decoder: everything except matrix products is compiled C++ (sources/); `whole_steps` compiles the products too.

    B sentences   W beam   N rows of a step   D d_model   H heads   K d_k   V d_v   P slots

    sources ──▶ encode: packed rows ──▶ states (tokens, D) ──▶ memory: keys and values, rows (H * K + H * V), per sub-batch
    step: embed ──▶ x (N, D) ──▶ for each sub-layer: [norm] ──▶ rows for a product ──▶ product ──▶ attention ──▶ product
                     └─────────── + ◀──────────────────────────────────────────────────────────────────────────┘

x, the residual stream, is fp32 and written in place. The operation before a matrix product writes the input of the product
(fp32, bf16, or int8). Each layer has one cache: its slots hold the keys and values of the generated tokens of all sentences.
A hypothesis is the list of the slots of its ancestors (`BeamHistory`, in sources/history.hpp). Reordering copies these lists
and frees the slots that no hypothesis descends from. Sentences may be at different steps, and they are not padded to one length.

A row's result depends on its own sentence only, bit for bit: see sources/kernels.cpp, and `min_rows` in linear.py.
`decoding.cached_decoder.CachedDecoder` is the reference implementation in plain torch.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...model.attention import CrossAttention, SelfAttention, attend
from ...model.embeddings import Embedding, Int8Embedding
from ...model.layers import DecoderLayer, EncoderLayer
from ...model.monotonic import NextWords
from ...model.positions import Learned, Rotary, Sinusoidal, rotated
from ...model.residuals import PostNorm, PreNorm
from ...model.transformer import Transformer
from ..rows import padded_rows
from .functions import library
from .linear import KernelFeedForward, KernelLinear, PackedInt8Linear, PackedLinear
from .on_tensors import DTYPES

FEW_TOKENS, MANY_TOKENS = 16, 64
"""The encoder's number of rows is a multiple of MANY_TOKENS, or of FEW_TOKENS for fewer tokens: matrix products are prepared for each number of rows."""
FIRST_SLOTS = 256
"""Slots of a new cache. The number doubles when more slots are needed."""
NORMS = (nn.LayerNorm, nn.RMSNorm)


def supports(model: Transformer) -> str:
    """Return "" if the compiled decoder supports this model, else the reason why not.

    `model` comes from `linear.replace_linear`. Every module is checked by its exact type.
    """
    if model.device.type != "cpu":
        return f"device {model.device.type!r} has no kernel"
    if type(model) is not Transformer:
        return f"model {type(model).__name__!r} has no kernel"
    for positions in (model.source_positions, model.target_positions):
        if type(positions) not in (Sinusoidal, Learned, Rotary):
            return f"positions {type(positions).__name__!r} have no kernel"
    if not isinstance(model.output_projection, KernelLinear):
        return f"output projection {type(model.output_projection).__name__!r} has no kernel"
    residuals: set[type] = set()
    for layer in (*model.encoder, *model.decoder):
        if reason := _unsupported_layer(layer, type(model.output_projection), residuals):
            return reason
    final = (nn.Identity,) if residuals == {PostNorm} else NORMS
    for norm in (model.encoder_norm, model.decoder_norm):
        if type(norm) not in final or _unsupported_norm(norm):
            return f"final norm {type(norm).__name__!r} has no kernel"
    return "" if library() is not None else "the compiled library is switched off or not available"


def _unsupported_layer(layer: nn.Module, linear: type, residuals: set[type]) -> str:
    """Return why a layer has no kernel, or "". Add the types of its residuals to `residuals`."""
    if type(layer) not in (EncoderLayer, DecoderLayer):
        return f"layer {type(layer).__name__!r} has no kernel"
    for residual, module in _sublayers(cast(Any, layer)):
        residuals.add(type(residual))
        if type(residual) not in (PostNorm, PreNorm) or len(residuals) > 1:
            return f"residual {type(residual).__name__!r} has no kernel"
        if reason := _unsupported_norm(cast(PostNorm | PreNorm, residual).norm):
            return reason
        if isinstance(module, KernelFeedForward):
            if not isinstance(module.inner, linear):
                return f"feed-forward network of {type(module.inner).__name__!r} has no kernel"
            continue
        if type(module) not in (SelfAttention, CrossAttention):
            activation = getattr(module, "activation", module)
            return f"activation {type(activation).__name__!r} has no kernel"
        if cast(SelfAttention, module).attend is not attend:
            return f"attention function {getattr(module.attend, '__name__', module.attend)!r} has no kernel"
        if not all(isinstance(child, linear) for child in module.children()):
            return f"linear maps of {type(module).__name__!r} have no kernel"
    return ""


def _unsupported_norm(norm: nn.Module) -> str:
    if type(norm) is nn.Identity:
        return ""
    if type(norm) not in NORMS or norm.weight is None or (type(norm) is nn.LayerNorm and norm.bias is None):
        return f"norm {type(norm).__name__!r} has no kernel"
    return ""


def _sublayers(layer: EncoderLayer | DecoderLayer) -> list[tuple[nn.Module, nn.Module]]:
    """Return the residuals of a layer with their sub-layers, in order."""
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (layer.around_self_attention, layer.self_attention),
        (layer.around_feed_forward, layer.feed_forward),
    ]
    if isinstance(layer, DecoderLayer):
        pairs.insert(1, (layer.around_cross_attention, layer.cross_attention))
    return pairs


class SublayerStack:
    """The sub-layers of all layers in one list. `norms[i]` is the norm before sub-layer i, `norms[-1]` the one after the last; None: no norm.

    `last` is the linear map that reads the result; without one the result is fp32.
    """

    def __init__(self, layers: nn.ModuleList, final: nn.Module, last: Any = None) -> None:
        self.library = cast(ctypes.CDLL, library())
        self.sublayers = list[tuple[int, Any]]()
        norms: list[nn.Module] = []
        for number, layer in enumerate(cast(Sequence[EncoderLayer | DecoderLayer], layers)):
            pairs = _sublayers(layer)
            self.sublayers += [(number, module) for _, module in pairs]
            norms += [cast(PostNorm | PreNorm, residual).norm for residual, _ in pairs]
        self.post = type(_sublayers(cast(EncoderLayer, layers[0]))[0][0]) is PostNorm
        ordered: list[nn.Module | None] = [None, *norms] if self.post else [*norms, final]
        self.norms = [norm if isinstance(norm, NORMS) else None for norm in ordered]
        self.readers = [*(first_linear(module) for _, module in self.sublayers), last]

    def norm(self, index: int, x: Tensor, y: Tensor | None) -> Tensor:
        """Add y to x (N, D) in place, and apply norm `index`. Return the input of the next matrix product, (N, D)."""
        norm, reader = self.norms[index], self.readers[index]
        dtype, scale = (torch.float32, 1.0) if reader is None else (reader.input_dtype, reader.input_scale)
        out = torch.empty(x.shape, dtype=dtype)
        self.library.nmt_norm(
            len(x),
            x.size(1),
            x.data_ptr(),
            y.data_ptr() if y is not None else None,
            DTYPES[y.dtype] if y is not None else 0,
            *norm_parts(norm),
            self.post,
            out.data_ptr(),
            DTYPES[dtype],
            scale,
        )
        return out


def first_linear(module: Any) -> Any:
    """Return the linear map that reads a sub-layer's input."""
    if isinstance(module, SelfAttention):
        return module.query_key_value
    return module.query if isinstance(module, CrossAttention) else module.inner


def last_linear(module: Any) -> Any:
    """Return the linear map that computes a sub-layer's result."""
    return module.output if isinstance(module, SelfAttention | CrossAttention) else module.outer


def norm_parts(norm: nn.Module | None) -> tuple[int | None, int | None, float]:
    """Return the addresses of a norm's weight and bias, and its epsilon. No bias means RMSNorm; no weight means no norm."""
    if norm is None:
        return None, None, 0.0
    known = cast(Any, norm)
    return address(known.weight), address(getattr(known, "bias", None)), known.eps


def address(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's numbers, for a compiled function; None if `tensor` is None."""
    return None if tensor is None else tensor.data_ptr()


def _table(embedding: Embedding) -> tuple[Tensor, Tensor | None]:
    """Return embeddings (V, D), fp32 or int8, and the scales (V,) of int8."""
    return (embedding.weight, embedding.scales) if isinstance(embedding, Int8Embedding) else (embedding.detach(), None)


def _encodings(positions: nn.Module, length: int) -> Tensor | None:
    """Return the encodings to add to the embeddings, (P, D) for `length` positions; None for rotary positions, which add nothing."""
    return None if isinstance(positions, Rotary) else positions(length).detach().float().contiguous()


def _rotations(length: int, size: int) -> Tensor:
    """Return cosine and sine of the angle by which each pair of numbers is rotated at each position, (P, K)."""
    return rotated(torch.tensor([1.0, 0.0]).repeat(length, size // 2), torch.arange(length))


def packed_rows(sources: Sequence[Sequence[int]], spare: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four tensors with an entry for each token of packed sentences, and for `spare` more rows.

    They are the token's id, its position, the first row of its sentence, and the number of rows of its sentence.
    """
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.tensor([token for source in sources for token in source] + [0] * spare)
    ends, nothing = lengths.cumsum(0), lengths.new_zeros(spare)
    first = torch.cat([(ends - lengths).repeat_interleave(lengths), nothing])
    count = torch.cat([lengths.repeat_interleave(lengths), nothing])
    return ids, torch.cat([torch.arange(len(ids) - spare), nothing]) - first, first, count


class NativeModel:
    """A model that `supports` accepts, ready for the compiled functions; it may serve several decoders."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.library = model, cast(ctypes.CDLL, library())
        config, self.output = model.config, cast(Any, model.output_projection)
        self.cache_dtype: torch.dtype = self.output.cache_dtype
        self.encoder = SublayerStack(model.encoder, model.encoder_norm)
        self.decoder = SublayerStack(model.decoder, model.decoder_norm, self.output)
        products = [
            module.product if isinstance(module, PackedLinear | PackedInt8Linear) else None for module in self.maps
        ]
        few = [product.most_rows for product in products if product and product.most_rows]
        self.few = min(few, default=0) if all(products) else 0  # up to this number, rows need no padding
        self.heads, self.key, self.value = config.num_heads, config.key_size, config.value_size
        self.shape = (self.heads, self.key, self.value, self.key**-0.5)
        self.width = self.heads * (self.key + self.value)  # numbers in one slot
        self.factor = math.sqrt(config.d_model)
        self.positions = [
            _encodings(positions, config.max_positions)
            for positions in (model.source_positions, model.target_positions)
        ]
        self.rotations = (
            _rotations(config.max_positions, self.key) if isinstance(model.source_positions, Rotary) else None
        )
        self.tables = [_table(model.embedding(use)) for use in ("source", "target")]

    @property
    def maps(self) -> list[Any]:
        """Return the linear maps of all layers, and the output's."""
        return [
            get(module)
            for stack in (self.encoder, self.decoder)
            for _, module in stack.sublayers
            for get in (first_linear, last_linear)
        ] + [self.output]

    def embed(self, side: int, ids: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings plus positional encodings of the source (0) or the target (1): ids (N,), positions (N,) -> (N, D)."""
        table, scales = self.tables[side]
        x = torch.empty(len(ids), table.size(1))
        self.library.nmt_embed(
            len(ids),
            x.size(1),
            table.data_ptr(),
            address(scales),
            ids.data_ptr(),
            self.factor,
            address(self.positions[side]),
            positions.data_ptr(),
            x.data_ptr(),
        )
        return x

    def encode(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Return the encoder's states of packed sentences, (tokens or more, D)."""
        tokens = sum(map(len, sources))
        ids, positions, first, count = packed_rows(
            sources, -tokens % (MANY_TOKENS if tokens > MANY_TOKENS else FEW_TOKENS)
        )
        x = self.embed(0, ids, positions)
        h = self.encoder.norm(0, x, None)
        for index, (_, module) in enumerate(self.encoder.sublayers):
            y = (
                self._attend_within(module, h, positions, tokens, first, count)
                if isinstance(module, SelfAttention)
                else module.matmul(h)
            )
            h = self.encoder.norm(index + 1, x, y)
        return h

    def memory(self, states: Tensor) -> list[Tensor]:
        """Return the encoder's states, projected for each decoder layer: keys and values, (tokens or more, H * K + H * V)."""
        return [
            layer.cross_attention.key_value(states).to(self.cache_dtype)
            for layer in cast(Sequence[DecoderLayer], self.model.decoder)
        ]

    def project(self, attention: SelfAttention, h: Tensor, positions: Tensor) -> Tensor:
        """Return the result of `SelfAttention.project` for rows h (N, D) at positions (N,)."""
        rows = cast(Tensor, cast(Any, attention.query_key_value).matmul(h))
        if self.rotations is not None:
            self.library.nmt_rotate(
                len(rows),
                rows.size(1),
                2 * self.heads,
                self.key,
                self.rotations.data_ptr(),
                positions.data_ptr(),
                rows.data_ptr(),
                DTYPES[rows.dtype],
            )
        return rows

    def _attend_within(
        self, attention: SelfAttention, h: Tensor, positions: Tensor, tokens: int, first: Tensor, count: Tensor
    ) -> Tensor:
        """Return the self-attention of packed rows: row n attends to the `count[n]` rows from `first[n]` on."""
        rows, output = self.project(attention, h, positions), cast(Any, attention.output)
        keys, size = self.heads * self.key, rows.element_size()
        context = torch.zeros(len(h), self.heads * self.value, dtype=output.input_dtype)
        self.library.nmt_attend_range(
            tokens,
            *self.shape,
            rows.data_ptr(),
            rows.data_ptr() + keys * size,
            rows.data_ptr() + 2 * keys * size,
            DTYPES[rows.dtype],
            rows.size(1),
            rows.size(1),
            first.data_ptr(),
            count.data_ptr(),
            context.data_ptr(),
            DTYPES[output.input_dtype],
            output.input_scale,
        )
        return cast(Tensor, output.matmul(context))


class NativeDecoder:
    """A `Decoder` over sentences whose ids, end symbols included, are `sources`."""

    def __init__(self, model: NativeModel, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.model, self.beam, self.library = model, beam, model.library
        self.history = self.library.nmt_history_new(beam)
        weakref.finalize(self, self.library.nmt_history_delete, self.history)
        self.memories: list[
            list[Tensor]
        ] = []  # one per sub-batch (sentences that were added together); empty: all its sentences have left
        self.caches = [torch.empty(FIRST_SLOTS, model.width, dtype=model.cache_dtype) for _ in model.model.decoder]
        self._addresses: list[Any] = []  # of the memories: per layer, then per sub-batch
        tables = model.model.next_word
        self.next_words = NextWords(tables, beam) if tables is not None else None
        self.add(sources)

    @torch.inference_mode()
    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences after those that the decoder holds; an empty list is allowed."""
        if not sources:
            return
        sub_batch, first = (
            next((number for number, memory in enumerate(self.memories) if not memory), len(self.memories)),
            0,
        )
        states = self.encode(sources)
        self.memories[sub_batch : sub_batch + 1] = [self.memory(states)]
        if self.next_words:
            self.next_words.add(sources, states)
        for source in sources:
            self.library.nmt_history_add(self.history, sub_batch, first, len(source))
            first += len(source)
        self._update_addresses()

    def encode(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """See `NativeModel.encode`."""
        return self.model.encode(sources)

    def memory(self, states: Tensor) -> list[Tensor]:
        """See `NativeModel.memory`."""
        return self.model.memory(states)

    def _update_addresses(self) -> None:
        array = ctypes.c_void_p * len(self.memories)
        self._addresses = [
            array(*(memory[layer].data_ptr() if memory else None for memory in self.memories))
            for layer in range(len(self.caches))
        ]

    @torch.inference_mode()
    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        model, count = self.model, len(rows)
        size = count if count <= model.few else padded_rows(count, model.output.min_rows)
        positions, ids = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
        torch.index_select(tokens.flatten(), 0, rows, out=ids[:count])
        self._reserve(self.library.nmt_history_step(self.history, count, rows.data_ptr(), positions.data_ptr()))
        x, stack = model.embed(1, ids, positions), model.decoder
        if self.next_words:
            x[:count] += self.next_words.read(tokens, rows)
        context = torch.zeros(
            size, model.heads * model.value, dtype=model.output.input_dtype
        )  # one for all layers: rows beyond `count` stay zero
        h = stack.norm(0, x, None)
        for index, (number, module) in enumerate(stack.sublayers):
            y = (
                self._attend(module, number, h, positions, context)
                if isinstance(module, SelfAttention | CrossAttention)
                else module.matmul(h)
            )
            h = stack.norm(index + 1, x, y)
        return cast(Tensor, model.output.matmul(h)[:count].float())

    def _attend(
        self, attention: SelfAttention | CrossAttention, layer: int, h: Tensor, positions: Tensor, context: Tensor
    ) -> Tensor:
        """Return the attention of the open hypotheses to their own tokens, or to the memory."""
        output, history, shape = cast(Any, attention.output), self.history, self.model.shape
        rows = (
            self.model.project(attention, h, positions)
            if isinstance(attention, SelfAttention)
            else cast(Tensor, cast(Any, attention.query).matmul(h))
        )
        kept, result = DTYPES[self.model.cache_dtype], (context.data_ptr(), DTYPES[context.dtype], output.input_scale)
        if isinstance(attention, SelfAttention):
            self.library.nmt_attend_history(
                history, *shape, rows.data_ptr(), DTYPES[rows.dtype], self.caches[layer].data_ptr(), kept, *result
            )
        else:
            self.library.nmt_attend_memory(
                history, *shape, rows.data_ptr(), DTYPES[rows.dtype], self._addresses[layer], kept, *result
            )
        return cast(Tensor, output.matmul(context))

    def _reserve(self, slots: int) -> None:
        """Grow the caches to at least `slots` slots."""
        have = self.caches[0].size(0)
        if slots > have:
            for number, cache in enumerate(self.caches):
                self.caches[number] = torch.empty(max(slots, 2 * have), cache.size(1), dtype=cache.dtype)
                self.caches[number][:have] = cache

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        if self.next_words:
            self.next_words.reorder(parents)
        if self.beam > 1:
            self.library.nmt_history_reorder(self.history, parents.contiguous().data_ptr())

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        if self.next_words:
            self.next_words.keep(sentences)
        left = torch.empty(len(self.memories), dtype=torch.int64)
        self.library.nmt_history_keep(
            self.history, len(sentences), sentences.contiguous().data_ptr(), len(left), left.data_ptr()
        )
        self.memories = [
            memory if still_here else [] for memory, still_here in zip(self.memories, left.tolist(), strict=True)
        ]
        self._update_addresses()
