"""The compiled decoder in few functions: the encoder, the layers of a step, its output, and steps of beam search. All matrix products must be compiled.

    sources ──▶ nmt_stack_encode ──▶ the encoder's states (tokens, D) ──▶ nmt_stack_memory ──▶ keys and values of each layer
    step: tokens, open hypotheses ──▶ nmt_stack_step ──▶ rows that the output map reads (N, D)
                                        ├─ step: output map ──▶ logits (N, V)
                                        └─ best: nmt_best_outputs, a few rows at a time ──▶ the best candidates (B, C)
    search: nmt_search ──▶ these, the hypotheses that they finish and extend, and the next step

Python makes one call for several steps of plain beam search, and few calls for a step of other searches. So small models and single
sentences do not wait for Python. With `best` and `search`, the logits of a step, (N, V), are never all in memory. The results are equal
to those of `NativeDecoder`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ...model.attention import CrossAttention, SelfAttention
from ..protocols import BeamState
from .decoder import (
    NativeDecoder,
    NativeModel,
    SublayerStack,
    address,
    first_linear,
    last_linear,
    norm_parts,
    packed_rows,
)
from .functions import Beam, Norm, Stack, Sublayer
from .linear import (
    ACTIVATIONS,
    ActivatedFeedForward,
    KernelFeedForward,
    KernelLinear,
)
from .on_tensors import DTYPES
from .products import Product

KINDS = {SelfAttention: 0, CrossAttention: 1}
"""The kinds of sub-layers in the sources; the feed-forward network is 2."""


def supports(model: NativeModel) -> bool:
    """Return whether `WholeSteps` supports the model.

    All its linear maps must be compiled for any number of rows, and the encoder and the decoder must each have one activation.
    """
    return (
        all(isinstance(module, KernelLinear) and module.compiled for module in (*model.maps, *_memory_maps(model)))
        and len(_activations(model.encoder)) == len(_activations(model.decoder)) == 1
    )


class WholeSteps:
    """A model that `supports` accepts, in the form that the compiled functions read: with the addresses of its tensors."""

    def __init__(self, model: NativeModel) -> None:
        self.model = model
        self.output = cast(Product, model.output.product)
        self.encoder, self.decoder = (
            _Layers(model, 0, model.encoder, None),
            _Layers(model, 1, model.decoder, self.output),
        )
        products = [cast(Product, module.product) for module in _memory_maps(model)]
        self.memory_maps = (ctypes.c_void_p * len(products))(*(product.address for product in products))
        self.products = list(dict.fromkeys([*(cast(Product, module.product) for module in model.maps), *products]))

    def encode(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """See `NativeModel.encode`; the result has one row per token."""
        rows = packed_rows(sources, 0)
        states = torch.empty(len(rows[0]), self.encoder.size)
        self.model.library.nmt_stack_encode(
            self.encoder.address,
            len(states),
            *(tensor.data_ptr() for tensor in rows),
            torch.get_num_threads(),
            states.data_ptr(),
        )
        return states

    def memory(self, states: Tensor) -> list[Tensor]:
        """See `NativeModel.memory`."""
        layers = [torch.empty(len(states), self.model.width, dtype=self.model.cache_dtype) for _ in self.memory_maps]
        addresses = (ctypes.c_void_p * len(layers))(*(layer.data_ptr() for layer in layers))
        self.model.library.nmt_stack_memory(
            self.decoder.address,
            len(layers),
            self.memory_maps,
            len(states),
            states.data_ptr(),
            torch.get_num_threads(),
            addresses,
        )
        return layers


class _Layers:
    """The `Stack` (sources/stack.hpp) of the encoder (side 0) or the decoder (side 1). `output` is the matrix product that reads its result."""

    def __init__(self, model: NativeModel, side: int, layers: SublayerStack, output: Product | None) -> None:
        sublayers = [
            Sublayer(
                KINDS.get(type(module), 2),
                layer,
                first_linear(module).product.address,
                last_linear(module).product.address,
            )
            for layer, module in layers.sublayers
        ]
        norms = [Norm(*norm_parts(norm)) for norm in layers.norms]
        self.arrays = (Sublayer * len(sublayers))(*sublayers), (Norm * len(norms))(*norms)
        table, scales = model.tables[side]
        self.size = table.size(1)
        self.stack = Stack(
            self.size,
            model.heads,
            model.key,
            model.value,
            len(sublayers),
            model.factor,
            model.shape[3],
            layers.post,
            DTYPES[model.cache_dtype],
            *_activations(layers),
            *(address(tensor) for tensor in (table, scales, model.positions[side], model.rotations)),
            *(ctypes.addressof(array) for array in self.arrays),
            output.address if output else None,
        )
        self.address = ctypes.addressof(self.stack)


def _memory_maps(model: NativeModel) -> list[Any]:
    """Return the linear maps that compute each decoder layer's keys and values from the encoder's states."""
    return [cast(Any, layer).cross_attention.key_value for layer in model.model.decoder]


def _activations(layers: SublayerStack) -> set[int]:
    """Return the numbers of the feed-forward networks' activations in the sources; that of ReLU is 0."""
    networks = [module for _, module in layers.sublayers if isinstance(module, KernelFeedForward)]
    return {
        ACTIVATIONS[type(module.activation)] if isinstance(module, ActivatedFeedForward) else 0 for module in networks
    }


class WholeStepDecoder(NativeDecoder):
    """A `SearchingDecoder` that makes few compiled calls per step."""

    def __init__(self, steps: WholeSteps, sources: Sequence[Sequence[int]], beam: int) -> None:
        self.steps, self._memories = steps, (ctypes.c_void_p * 0)()
        super().__init__(steps.model, sources, beam)

    def encode(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """See `NativeModel.encode`."""
        return self.steps.encode(sources)

    def memory(self, states: Tensor) -> list[Tensor]:
        """See `NativeModel.memory`."""
        return self.steps.memory(states)

    @torch.inference_mode()
    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        return self.steps.output(self._hidden(tokens, rows))

    @torch.inference_mode()
    def best(
        self,
        tokens: Tensor,
        rows: Tensor,
        log_probs: Tensor,
        count: int,
        banned_tokens: Sequence[int],
        only: Tensor | None,
        banned_counts: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """See `RankingDecoder`."""
        hidden, (batch, beam) = self._hidden(tokens, rows), log_probs.shape
        log_probs, rows, ids = log_probs.contiguous(), rows.contiguous(), torch.tensor(banned_tokens, dtype=torch.int64)
        values, flat = torch.empty(batch, count), torch.empty(batch, count, dtype=torch.int64)
        self.library.nmt_best_outputs(
            self.steps.output.address,
            hidden.data_ptr(),
            batch,
            beam,
            len(rows),
            rows.data_ptr(),
            log_probs.data_ptr(),
            len(ids),
            ids.data_ptr(),
            address(banned_counts),
            address(only),
            count,
            torch.get_num_threads(),
            values.data_ptr(),
            flat.data_ptr(),
        )
        return values, flat

    @property
    def searches(self) -> bool:
        """See `SearchingDecoder`."""
        return self.next_words is None

    @torch.inference_mode()
    def search(self, state: BeamState, steps: int, stay: float) -> None:
        """See `SearchingDecoder`."""
        beam, needed = Beam.of(state, 2 * self.beam if self.beam > 1 else 1), ctypes.c_int64(1)
        while needed.value:
            steps -= self.library.nmt_search(
                self.steps.decoder.address,
                self.history,
                ctypes.addressof(beam),
                self._cache_addresses(),
                self._memories,
                self.caches[0].size(0),
                torch.get_num_threads(),
                steps,
                stay,
                ctypes.addressof(needed),
            )
            self._reserve(needed.value)

    @property
    def vocabulary(self) -> int:
        """See `RankingDecoder`."""
        return self.steps.output.d_out

    def _hidden(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Take a step. Return the rows that the output map reads, (N, D)."""
        count, rows = len(rows), rows.contiguous()
        positions, ids = torch.empty(count, dtype=torch.int64), tokens.flatten().index_select(0, rows)
        self._reserve(self.library.nmt_history_step(self.history, count, rows.data_ptr(), positions.data_ptr()))
        read = self.next_words.read(tokens, rows) if self.next_words else None
        hidden = torch.empty(count, self.steps.decoder.size, dtype=self.model.output.input_dtype)
        self.library.nmt_stack_step(
            self.steps.decoder.address,
            self.history,
            count,
            ids.data_ptr(),
            positions.data_ptr(),
            address(read),
            self._cache_addresses(),
            self._memories,
            torch.get_num_threads(),
            hidden.data_ptr(),
        )
        return hidden

    def _cache_addresses(self) -> Any:
        return (ctypes.c_void_p * len(self.caches))(*(cache.data_ptr() for cache in self.caches))

    def _update_addresses(self) -> None:
        super()._update_addresses()
        arrays: list[Any] = self._addresses
        self._memories = (ctypes.c_void_p * len(arrays))(*(ctypes.addressof(array) for array in arrays))
