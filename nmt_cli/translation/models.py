"""Loaded models that translators search with, and the workers that do it.

    model folders, or models of torch ─┬─▶ EngineModels: packed once, for a CPU
                                       ├─▶ TorchModels: converted once, for GPUs, and for what the engine declines
                                       └─▶ DeviceModels: of torch, on each of several GPUs

    Models ─┬─ new_search: the engine's own beam search, or a search in Python over decoders
            ├─ pool: threads, for everybody who uses the models (`pool`)
            └─ client(options): the workers of one stream of sentences: threads, or processes (`device_processes`)

All threads share the weights. Torch is loaded for its models alone.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.model import EngineModel, unsupported
from ..search.constraints.prefix import Prefix
from ..search.engine import EngineDecoder, EngineSearch
from ..search.ensemble import EnsembleDecoder
from ..search.running import DecoderSearch
from ..search.search import Search, SearchOptions
from .alignment import aligned
from .device_processes import DeviceProcesses, Devices, Forks
from .pool import Client, Pool

if TYPE_CHECKING:
    from ..model.transformer import Transformer
    from ..search.protocols import GrowingDecoder
    from .forced import ForcedModel

CPU_ROWS = 512
"""Largest number of hypotheses in one step on a CPU. More hypotheses are not faster and need more memory."""
LOGITS_AT_ONCE = 1 << 26
"""Largest number of logits (rows x vocabulary) of one step: 256 MiB. An accelerator with much memory takes more, see
LOGITS_SHARE."""
LOGITS_SHARE = 1 / 40
"""Share of an accelerator's memory for the logits of one step. Each operation has a fixed cost, so a few large steps
are faster."""
FP32_BYTES = 4


class Models(ABC):
    """A model, or an ensemble, and its workers. See `SearchModels` for the methods that searches use."""

    def __init__(self, workers: int, cores: int) -> None:
        """`workers` search at once; `cores` are those of a CPU that they share."""
        self.pool = Pool(workers, cores)

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()

    on_host: bool
    """Whether they compute on a CPU."""
    rows = CPU_ROWS
    computing: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """The largest number of positions that all models have."""

    @property
    @abstractmethod
    def aligning(self) -> ForcedModel:
        """The model whose attention aligns."""

    @abstractmethod
    def decoders(self, beam: int) -> list[GrowingDecoder]:
        """Return a decoder of each model, without sentences."""

    @abstractmethod
    def use_threads(self, count: int) -> None: ...

    def in_engine(self, options: SearchOptions) -> bool:
        return False

    def new_search(self, options: SearchOptions, in_engine: bool) -> Search:
        decoders = self.decoders(options.beam)
        return DecoderSearch(decoders[0] if len(decoders) == 1 else EnsembleDecoder(decoders), options)

    def aligned(self, source: Sequence[int], output: Sequence[int]) -> list[int]:
        return aligned(self.aligning, source, output)

    def client(self, options: SearchOptions) -> Client:
        """Return a client for one stream of sentences, to be closed at the end. Raises UsageError, see `Devices`."""
        if self.pool.workers > 1 and self.on_host and not self.in_engine(options) and sys.platform == "linux":
            return Forks(self.pool, self, options)
        return Client(self.pool, self, options)

    def close(self) -> None:
        """End the workers."""
        self.pool.close()


class EngineModels(Models):
    """A model of the engine, or an ensemble."""

    on_host = True

    def __init__(self, models: Sequence[EngineModel], workers: int, cores: int) -> None:
        super().__init__(workers, cores)
        self.models = models

    @property
    def max_positions(self) -> int:
        return min(model.max_positions for model in self.models)

    @property
    def aligning(self) -> EngineModel:
        return self.models[0]

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        return [EngineDecoder(model, beam) for model in self.models]

    def use_threads(self, count: int) -> None:
        self.models[0].library.nmt_use_threads(count)

    def in_engine(self, options: SearchOptions) -> bool:
        """See `SearchModels`: beam search of one model, with no other rule than prefixes of some sentences."""
        is_plain = not options.coverage_penalty and all(type(rule) is Prefix for rule in options.constraints)
        return is_plain and options.search is None and len(self.models) == 1

    def new_search(self, options: SearchOptions, in_engine: bool) -> Search:
        return EngineSearch(self.models[0], options) if in_engine else super().new_search(options, in_engine)


class TorchModels(Models):
    """A model of torch, or an ensemble, in one precision on the device where it is.

    Raises UsageError for an unknown precision.
    """

    def __init__(self, models: Sequence[Transformer], precision: str, workers: int, cores: int) -> None:
        from ..device import accelerator_memory, is_host, let_forks_compute
        from ..model.precision import convert

        super().__init__(workers, cores)
        let_forks_compute()
        self.models, self.device = [convert(model, precision) for model in models], models[0].device
        self.on_host = is_host(self.device)
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // FP32_BYTES)
        fitting = max(1, logits // self.models[0].target_vocab)
        self.rows = min(fitting, CPU_ROWS) if self.on_host else fitting

    @property
    def max_positions(self) -> int:
        return min(model.config.max_positions for model in self.models)

    @property
    def aligning(self) -> ForcedModel:
        from .torch_forced import TorchForced

        return TorchForced(self.models[0])

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        from .cached_decoder import CachedDecoder

        return [CachedDecoder(model, [], beam) for model in self.models]

    def use_threads(self, count: int) -> None:
        import torch

        if self.on_host and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    @contextmanager
    def computing(self) -> Iterator[None]:
        import torch

        from ..device import current

        with torch.inference_mode(), current(self.device):
            yield


class DeviceModels(TorchModels):
    """The models of folders on several devices: on the first one in this process, on each one in a process of its
    own.
    """

    def __init__(self, folders: Sequence[Path], precision: str, devices: Sequence[str]) -> None:
        super().__init__(_transformers(folders, devices[0]), precision, 1, 1)
        self.processes = DeviceProcesses(partial(models_on, folders, precision), devices)

    def client(self, options: SearchOptions) -> Client:
        return Devices(self.pool, self, options, self.processes)

    def close(self) -> None:
        super().close()
        self.processes.close()


def _transformers(folders: Sequence[Path], device: str) -> list[Transformer]:
    from ..model.folder import load_model

    return [load_model(folder, quantized=True).model.to(device) for folder in folders]


def models_on(folders: Sequence[Path], precision: str, device: str) -> TorchModels:
    """Load models in a process that has this device for itself."""
    return TorchModels(_transformers(folders, device), precision, 1, 1)


def models_of(models: Sequence[Transformer], precision: str, workers: int, cores: int) -> Models:
    """Return models in this precision, where they are: the engine's on a CPU, if it takes them.

    Raises UsageError for an unknown precision.
    """
    from ..device import is_host
    from ..model.precision import in_int8

    declined = any(unsupported(model.config, precision) or (in_int8(model) and precision != "int8") for model in models)
    if declined or not is_host(models[0].device):
        return TorchModels(models, precision, workers, cores)
    return EngineModels([engine_model(model, precision) for model in models], workers, cores)


def engine_model(model: Transformer, precision: str) -> EngineModel:
    """Return a model of the engine with the present weights of a model in fp32 or int8."""
    from ..model.folder import weights_of
    from ..model.precision import integers_of

    arrays = {name: tensor.numpy() for name, tensor in {**weights_of(model), **integers_of(model)}.items()}
    return EngineModel(model.config, (model.matrix("source").size(0), model.target_vocab), arrays, precision)
