"""Workers that search with models of torch, in one precision: on GPUs, and on a CPU what the engine declines.

    models ──▶ ConvertedModels: converted once, on each device ──▶ workers: a ModelWorker for each device, one model or an ensemble

Workers of one device share their models' weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..data.tokenizer import BOS, EOS
from ..device import accelerator_memory, current, is_host
from ..engine.model import EngineModel, unsupported
from ..model.folder import weights_of
from ..model.precision import convert, in_int8, integers_of
from ..model.transformer import Transformer
from .alignment import aligned
from .batches import BatchSource, SearchResult
from .beam_search import BeamSearch
from .cached_decoder import CachedDecoder
from .engine_workers import EngineModels
from .ensemble import EnsembleDecoder
from .protocols import GrowingDecoder
from .search import Hypothesis, Search, SearchOptions
from .workers import DecoderSearch, SearchableModels, SearchClass, Worker

if TYPE_CHECKING:
    from .spawned import ProcessPool

LOGITS_AT_ONCE = 1 << 26
"""Largest number of logits (rows x vocabulary) of one step: 256 MiB. An accelerator with much memory takes more, see LOGITS_SHARE."""
LOGITS_SHARE = 1 / 40
"""Share of an accelerator's memory for the logits of one step. Each operation has a fixed cost, so a few large steps are faster."""


class ModelWorker(Worker):
    """A model, or an ensemble of models, on a device. `threads` are those of a CPU."""

    def __init__(
        self,
        models: Sequence[Transformer],
        options: SearchOptions,
        batch_tokens: int,
        search: SearchClass | None,
        align: bool,
        threads: int,
    ) -> None:
        super().__init__(options, batch_tokens)
        self.models, self.search, self.align, self.threads = models, search, align, threads
        self.device = models[0].device

    @property
    def sentences(self) -> int:
        """See `Worker`."""
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // torch.float32.itemsize)
        fitting = max(1, logits // self.models[0].target_vocab // (2 * self.options.beam))
        return min(fitting, super().sentences) if is_host(self.device) else fitting

    @torch.inference_mode()
    def run(self, batches: BatchSource) -> None:
        """See `Worker`."""
        before = torch.get_num_threads()
        if self.threads != before and is_host(self.device):
            torch.set_num_threads(self.threads)
        try:
            with current(self.device):
                super().run(batches)
        finally:
            if self.threads != before and is_host(self.device):
                torch.set_num_threads(before)  # the caller's own computations go on as before

    def copy(self) -> ModelWorker:
        """See `Worker`."""
        return ModelWorker(self.models, self.options, self.batch_tokens, self.search, self.align, self.threads)

    def new_search(self) -> Search:
        """See `Worker`."""
        return DecoderSearch(self._decoder, self.search or BeamSearch, self.options, self.device)

    def _decoder(self) -> GrowingDecoder:
        members = [CachedDecoder(model, [], self.options.beam) for model in self.models]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        """See `Worker`."""
        return SearchResult(
            hypotheses, aligned(self.models[0], [*source, EOS], hypotheses[0].tokens, BOS) if self.align else []
        )


@dataclass(frozen=True)
class ConvertedModels(SearchableModels):
    """A model, or an ensemble, in one precision on each device. Translators with different options may share it."""

    devices: Sequence[str]
    """One per worker; "cpu" several times for several cores."""
    by_device: Mapping[str, Sequence[Transformer]]
    """The models on each device; with a pool, on the first device only."""
    threads: int
    """With how many threads a CPU computes if it has one batch."""
    pool: ProcessPool | None = None
    """The processes that hold the models of each device, if workers are new processes (`spawned`)."""

    @staticmethod
    def of(models: Sequence[Transformer], precision: str, devices: Sequence[str], threads: int) -> ConvertedModels:
        """Convert models in fp32 or int8. Raises UsageError for an unknown precision."""
        from .spawned import ProcessPool, need_processes

        by_device: dict[str, list[Transformer]] = {}
        pool = ProcessPool(models, precision, devices) if need_processes(devices) else None
        for device in dict.fromkeys(devices[:1] if pool else devices):
            moved = [model if str(model.device) == device else copy.deepcopy(model).to(device) for model in models]
            by_device[device] = [convert(model, precision) for model in moved]
        return ConvertedModels(devices, by_device, threads, pool)

    @property
    def models(self) -> Sequence[Transformer]:
        """The models on the first device."""
        return self.by_device[self.devices[0]]

    @property
    def processes(self) -> ProcessPool | None:
        """See `SearchableModels`."""
        return self.pool

    @property
    def max_positions(self) -> int:
        """See `SearchableModels`."""
        return min(model.config.max_positions for model in self.models)

    def workers(
        self, options: SearchOptions, batch_tokens: int, search: SearchClass | None, align: bool
    ) -> list[ModelWorker]:
        """See `SearchableModels`. Workers of one device share its models. With a pool all are on the first device: its processes hold the models of the others."""
        return [
            ModelWorker(self.by_device.get(device) or self.models, options, batch_tokens, search, align, self.threads)
            for device in self.devices
        ]


def searchable(models: Sequence[Transformer], precision: str, devices: Sequence[str], threads: int) -> SearchableModels:
    """Return models in this precision on these devices: the engine's on a CPU, if it takes them. Raises UsageError for an unknown precision."""
    declined = any(unsupported(model.config, precision) or (in_int8(model) and precision != "int8") for model in models)
    if declined or not all(map(is_host, devices)):
        return ConvertedModels.of(models, precision, devices, threads)
    return EngineModels([engine_model(model, precision) for model in models], len(devices), threads)


def engine_model(model: Transformer, precision: str) -> EngineModel:
    """Return a model of the engine with the present weights of a model in fp32 or int8."""
    arrays = {name: tensor.numpy() for name, tensor in {**weights_of(model), **integers_of(model)}.items()}
    return EngineModel(model.config, (model.matrix("source").size(0), model.target_vocab), arrays, precision)
