"""How models and messages reach a process that is not a fork of this one (`spawned`).

    models ──▶ SharedModels ─┬─ modules, whose tensors have no memory ── pickled ── pipe ──▶ with_weights ──▶ the same models
                             └─ a file in memory without a name, as safetensors ── its descriptor ──▶ ▲

The weights are written once, and every process maps them. The file is not in /dev/shm, which is small in many containers. Tensors in
messages are copied through the host. No message refers to device memory of this process.
"""

from __future__ import annotations

import copy
import io
import os
import weakref
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ..model.transformer import Transformer


class SharedModels:
    """Models whose weights are in a file in memory. The file exists as long as this object or a process that has mapped it."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = [without_memory(model) for model in models]
        self.descriptor = os.memfd_create("nmt-weights")
        weakref.finalize(self, os.close, self.descriptor)
        weights = {
            f"{number}.{name}": tensor
            for number, model in enumerate(models)
            for name, tensor in tensors_of(model).items()
        }
        with open(self.descriptor, "wb", closefd=False) as file:
            file.write(save({name: tensor.detach().to("cpu").contiguous() for name, tensor in weights.items()}))


def tensors_of(model: Transformer) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def without_memory(model: Transformer) -> Transformer:
    """Return a copy of a model whose tensors have the same shapes but no memory."""
    return copy.deepcopy(model, {id(tensor): tensor.detach().to("meta") for tensor in tensors_of(model).values()})


def with_weights(models: Sequence[Transformer], descriptor: int) -> Sequence[Transformer]:
    """Set the weights of `SharedModels` in models that `without_memory` returned, and return the models."""
    tensors = load_file(_path(descriptor))
    for number, model in enumerate(models):
        weights = {
            id(empty): tensors[f"{number}.{name}"] for name, empty in tensors_of(model).items()
        }  # modules may share a tensor
        for module in model.modules():
            for key, empty in module._parameters.items():
                module._parameters[key] = (
                    None if empty is None else nn.Parameter(weights[id(empty)], requires_grad=False)
                )
            for key, buffer in module._buffers.items():
                module._buffers[key] = None if buffer is None else weights[id(buffer)]
    return models


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def pickled(message: object) -> bytes:
    """Return the message as bytes, which `Connection.recv` turns into a copy of it. Tensors are copied through the host, not shared."""
    buffer = io.BytesIO()
    pickler = ForkingPickler(buffer)
    pickler.dispatch_table = dict(pickler.dispatch_table) | dict.fromkeys((Tensor, nn.Parameter), _reduced)
    pickler.dump(message)
    return buffer.getvalue()


def _reduced(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.is_meta:
        return _without_numbers, (tuple(tensor.shape), tensor.dtype)
    return torch.from_numpy, (tensor.detach().to("cpu").numpy(),)


def _without_numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
