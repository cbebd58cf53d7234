"""Models of torch, in one precision: on GPUs, and on a CPU what the engine declines.

    models ──▶ ConvertedModels: converted once ──▶ searches over CachedDecoder, of one model or an ensemble
    model folders ──▶ DeviceModels: on the first of several GPUs here, on each GPU in a process of its own (`processes`)

All threads share the models' weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..device import accelerator_memory, current, is_host, let_forks_compute
from ..engine.model import EngineModel, unsupported
from ..model.folder import load_model, weights_of
from ..model.precision import convert, in_int8, integers_of
from ..model.transformer import Transformer
from .cached_decoder import CachedDecoder
from .engine_models import EngineModels
from .pool import Session
from .processes import DeviceProcesses, SearchableModels, SpawnedSession
from .searchers import Searcher
from .torch_forced import TorchForced

if TYPE_CHECKING:
    from ..search.protocols import GrowingDecoder

LOGITS_AT_ONCE = 1 << 26
"""Largest number of logits (rows x vocabulary) of one step: 256 MiB. An accelerator with much memory takes more, see
LOGITS_SHARE."""
LOGITS_SHARE = 1 / 40
"""Share of an accelerator's memory for the logits of one step. Each operation has a fixed cost, so a few large steps
are faster."""


class ConvertedModels(SearchableModels):
    """A model, or an ensemble, in one precision on the device where it is.

    Raises UsageError for an unknown precision.
    """

    def __init__(self, models: Sequence[Transformer], precision: str, workers: int, cores: int) -> None:
        super().__init__(workers, cores)
        let_forks_compute()
        self.models, self.device = [convert(model, precision) for model in models], models[0].device
        self.on_host = is_host(self.device)

    @property
    def max_positions(self) -> int:
        return min(model.config.max_positions for model in self.models)

    @property
    def rows(self) -> int:
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // torch.float32.itemsize)
        fitting = max(1, logits // self.models[0].target_vocab)
        return min(fitting, super().rows) if self.on_host else fitting

    @property
    def aligning(self) -> TorchForced:
        return TorchForced(self.models[0])

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        return [CachedDecoder(model, [], beam) for model in self.models]

    def use_threads(self, count: int) -> None:
        if self.on_host and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    @contextmanager
    def computing(self) -> Iterator[None]:
        with torch.inference_mode(), current(self.device):
            yield


class DeviceModels(ConvertedModels):
    """The models of folders on several devices: on the first one in this process, on each one in a process of its
    own.
    """

    def __init__(self, folders: Sequence[Path], precision: str, devices: Sequence[str]) -> None:
        super().__init__(_models_of(folders, devices[0]), precision, 1, 1)
        self.processes = DeviceProcesses(partial(_converted, folders, precision), devices)

    def session(self, searcher: Searcher) -> Session:
        """See `SearchableModels`. Raises UsageError, see `SpawnedSession`."""
        return SpawnedSession(self.pool, searcher, self.processes)

    def close(self) -> None:
        super().close()
        self.processes.close()


def _models_of(folders: Sequence[Path], device: str) -> list[Transformer]:
    return [load_model(folder, quantized=True).model.to(device) for folder in folders]


def _converted(folders: Sequence[Path], precision: str, device: str) -> ConvertedModels:
    """Load models in a process that has this device for itself."""
    return ConvertedModels(_models_of(folders, device), precision, 1, 1)


def searchable(models: Sequence[Transformer], precision: str, workers: int, cores: int) -> SearchableModels:
    """Return models in this precision, where they are: the engine's on a CPU, if it takes them.

    Raises UsageError for an unknown precision.
    """
    declined = any(unsupported(model.config, precision) or (in_int8(model) and precision != "int8") for model in models)
    if declined or not is_host(models[0].device):
        return ConvertedModels(models, precision, workers, cores)
    return EngineModels([engine_model(model, precision) for model in models], workers, cores)


def engine_model(model: Transformer, precision: str) -> EngineModel:
    """Return a model of the engine with the present weights of a model in fp32 or int8."""
    arrays = {name: tensor.numpy() for name, tensor in {**weights_of(model), **integers_of(model)}.items()}
    return EngineModel(model.config, (model.matrix("source").size(0), model.target_vocab), arrays, precision)
