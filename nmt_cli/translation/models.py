"""Loaded models that translators search with, and the workers that do it.

    model folders (load_models), or models of torch (models_of)
        ─┬─▶ EngineModels: packed once, for a CPU
         ├─▶ TorchModels: converted once, for GPUs, and for what the engine declines
         └─▶ DeviceModels: of torch, on each of several GPUs

    Models ─┬─ new_search: the engine's own beam search, or a search in Python over decoders
            ├─ pool: threads, for everybody who uses the models (`pool`)
            └─ client(options): the workers of one stream of sentences: threads, or processes (`device_processes`)

All threads share the weights. Torch is loaded for its models alone.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import warn_once
from ..device.hardware import fast_precision, loading_torch
from ..device.torch_device import is_host
from ..engine.library import OFF, VARIABLE
from ..engine.model import PRECISIONS, EngineModel, unsupported, use_threads
from ..errors import ModelError, NmtError
from ..model.folder_files import REMEDY, WEIGHTS, check_int8, is_rounded, read_metrics
from ..search.constraints.prefix import Prefix
from ..search.engine import EngineDecoder, EngineSearch
from ..search.ensemble import EnsembleDecoder
from ..search.search import Search, SearchOptions
from .alignment import aligned
from .device_processes import DeviceProcesses, Devices, Forks
from .pool import Client, Pool

if TYPE_CHECKING:
    import torch

    from ..model.folder_files import ModelConfig
    from ..model.transformer import Transformer
    from ..recipe import ModelSection, Recipe
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
SLOWER = "translating with torch, which is slower: "
"""The beginning of a warning that the engine does not translate."""


class Models(ABC):
    """A model, or an ensemble, and its workers. See `SearchModels` for the methods that searches use."""

    def __init__(self, models: Sequence[Any], workers: int, cores: int) -> None:
        """`workers` search at once; `cores` are those of a CPU that they share."""
        self.models, self.pool = models, Pool(workers, cores)
        self.max_positions: int = min(model.config.max_positions for model in models)  # the number that all have
        self.source_end = bool(models[0].config.source_end)

    def __del__(self) -> None:
        pool = getattr(self, "pool", None)
        if pool and pool.threads and not pool.closed:  # when Python exits, it is closed, and modules may be gone
            pool.close()

    on_host: bool
    """Whether they compute on a CPU."""
    rows = CPU_ROWS
    computing: Callable[[], AbstractContextManager[object]] = nullcontext

    @abstractmethod
    def decoders(self, beam: int) -> list[GrowingDecoder]:
        """Return a decoder of each model, without sentences."""

    @abstractmethod
    def forced(self, batch_tokens: int = 4096) -> ForcedModel:
        """Return the first model, for forced passes. `batch_tokens`: see `TorchForced`."""

    @abstractmethod
    def use_threads(self, count: int) -> None: ...

    def in_engine(self, options: SearchOptions) -> bool:
        return False

    def new_search(self, options: SearchOptions, in_engine: bool) -> tuple[Search, GrowingDecoder | None]:
        from ..search.beam_search import BeamSearch

        first, *others = decoders = self.decoders(options.beam)
        decoder = EnsembleDecoder(decoders) if others else first
        return (options.search or BeamSearch)(decoder, options), decoder

    def aligned(self, source: Sequence[int], output: Sequence[int]) -> list[int]:
        return aligned(self.forced(), source, output)

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
    models: Sequence[EngineModel]

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        return [EngineDecoder(model, beam) for model in self.models]

    def forced(self, batch_tokens: int = 4096) -> EngineModel:
        return self.models[0]

    def use_threads(self, count: int) -> None:
        self.models[0].library.nmt_use_threads(count)

    def in_engine(self, options: SearchOptions) -> bool:
        """See `SearchModels`: beam search of one model, with no other rule than prefixes of some sentences."""
        is_plain = all(type(rule) is Prefix for rule in options.constraints)
        return is_plain and options.search is None and len(self.models) == 1

    def new_search(self, options: SearchOptions, in_engine: bool) -> tuple[Search, GrowingDecoder | None]:
        return (EngineSearch(self.models[0], options), None) if in_engine else super().new_search(options, in_engine)


class TorchModels(Models):
    """A model of torch, or an ensemble, in one precision on the device where it is.

    Raises UsageError for an unknown precision.
    """

    models: Sequence[Transformer]

    def __init__(self, models: Sequence[Transformer], precision: str, workers: int, cores: int) -> None:
        from ..device.memory import accelerator_memory
        from ..device.torch_device import let_forks_compute
        from ..model.precision import convert

        super().__init__([convert(model, precision) for model in models], workers, cores)
        let_forks_compute()
        self.device = models[0].device
        self.on_host = is_host(self.device)
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // FP32_BYTES)
        fitting = max(1, logits // self.models[0].target_vocab)
        self.rows = min(fitting, CPU_ROWS) if self.on_host else fitting

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        from .cached_decoder import CachedDecoder

        return [CachedDecoder(model, [], beam) for model in self.models]

    def forced(self, batch_tokens: int = 4096) -> ForcedModel:
        from .torch_forced import TorchForced

        return TorchForced(self.models[0], batch_tokens)

    def use_threads(self, count: int) -> None:
        import torch

        if self.on_host and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    @contextmanager
    def computing(self) -> Iterator[None]:
        import torch

        from ..device.torch_device import current

        with torch.inference_mode(), current(self.device):
            yield


class DeviceModels(TorchModels):
    """The models of folders on several devices: on the first one here, on each one in a process of its own."""

    def __init__(self, folders: Sequence[Path], precision: str, devices: Sequence[str]) -> None:
        super().__init__(_transformers(folders, precision, devices[0]), precision, 1, 1)
        self.processes = DeviceProcesses(partial(models_on, folders, precision), devices)

    def client(self, options: SearchOptions) -> Client:
        return Devices(self.pool, self, options, self.processes)

    def close(self) -> None:
        super().close()
        self.processes.close()


def _transformers(folders: Sequence[Path], precision: str, device: str) -> list[Transformer]:
    from ..model.folder import load_model

    return [load_model(folder, quantized=precision == "int8").model.to(device) for folder in folders]


def models_on(folders: Sequence[Path], precision: str, device: str) -> TorchModels:
    """Load models in a process that has this device for itself."""
    return TorchModels(_transformers(folders, precision, device), precision, 1, 1)


def models_of(models: Sequence[Transformer], precision: str, workers: int, cores: int) -> Models:
    """Return models, which are in fp32, in this precision, where they are: the engine's on a CPU, if it takes them.

    Raises UsageError for an unknown precision.
    """
    if _declined([model.config for model in models], precision, models[0].device):
        return TorchModels(models, precision, workers, cores)
    return EngineModels([engine_model(model, precision) for model in models], workers, cores)


def engine_model(model: Transformer, precision: str) -> EngineModel:
    """Return a model of the engine with the present weights of a model in fp32."""
    from ..model.folder import weights_of

    arrays = {name: tensor.numpy() for name, tensor in weights_of(model).items()}
    return EngineModel(model.config, (model.matrix("source").size(0), model.target_vocab), arrays, precision)


@dataclass(frozen=True)
class ModelFolder:
    """A model folder whose description was read, and whose files are being checked."""

    path: Path
    config: ModelConfig
    recipe: Recipe
    checked: Future[None]
    """See `model.folder_files.checking`."""

    def check(self) -> None:
        """Wait until the files are checked. Raises ModelError."""
        try:
            self.checked.result()
        except NmtError as error:
            raise ModelError(str(error)) from None


def _declined(forms: Sequence[ModelSection], precision: str, device: str | torch.device) -> str:
    """Return why the engine does not take models of these forms in this precision; "" if it does."""
    if not is_host(device):
        return f"the device is {device}"
    return next(filter(None, (unsupported(form, precision) for form in forms)), "")


def precision_of(folders: Sequence[ModelFolder], name: str, device: str) -> str:
    """Return the precision that "auto" means: int8 for models stored in int8, else the fastest. Other names stay.

    Raises UsageError for a precision that models in int8 do not have.
    """
    if any(is_rounded(folder.config, read_metrics(folder.path)) for folder in folders):
        check_int8("int8" if name == "auto" else name)
        return "int8"
    if name != "auto":
        return name
    if any(folder.config.precision == "int8" for folder in folders):
        return "int8"
    if is_host(device):
        forms = [folder.recipe.model for folder in folders]
        if taken := next((one for one in ("int8", "fp32") if not _declined(forms, one, device)), ""):
            return taken
        _warn(_declined(forms, "fp32", device))
    return fast_precision(device)


def load_models(folders: Sequence[ModelFolder], precision: str, devices: Sequence[str], threads: int) -> Models:
    """Return the models of folders in this precision, on all devices; on a CPU, each device is a worker.

    `threads` are those of a computation that has the CPU for itself. Raises ModelError, UsageError, NeedsTorch. It
    warns if the engine has this precision but does not take the models.
    """
    reason = _declined([folder.recipe.model for folder in folders], precision, devices[0])
    if not reason:
        use_threads(threads)
        return EngineModels(_packed(folders, precision), len(devices), threads)
    if is_host(devices[0]) and precision in PRECISIONS:
        _warn(reason)
    with loading_torch(f"the model {str(folders[0].path)!r} ({reason})"):
        import torch

        from ..model.folder import load_model
    if len(set(devices)) > 1:
        return DeviceModels([folder.path for folder in folders], precision, devices)
    torch.set_num_threads(threads)
    quantized = precision == "int8"
    loaded = [load_model(folder.path, folder.checked, quantized=quantized) for folder in folders]
    models = [one.model.to(devices[0]) for one in loaded]
    return TorchModels(models, precision, len(devices), threads)


def _packed(folders: Sequence[ModelFolder], precision: str) -> list[EngineModel]:
    """Return the engine's models, which may be packed while their files are checked."""
    from ..model.weights import in_fp32, mapped_weights

    def arrays(folder: ModelFolder) -> dict[str, Any]:
        stored = mapped_weights(folder.path / WEIGHTS)
        return stored if precision == "int8" else in_fp32(stored)

    try:
        return [
            EngineModel(folder.recipe.model, folder.config.vocabularies, arrays(folder), precision)
            for folder in folders
        ]
    except (ModelError, OSError) as error:
        for folder in folders:
            folder.check()
        names = " or ".join(repr(str(folder.path)) for folder in folders)
        raise ModelError(f"{names} does not load: {error} {REMEDY}") from None


def _warn(reason: str) -> None:
    """Warn that torch translates, and why; not where the user has asked for it."""
    if os.environ.get(VARIABLE) != OFF:
        warn_once(f"{SLOWER}{reason}.")
