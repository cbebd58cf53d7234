"""Workers that search with models of torch, in one precision, with the kernels of each device.

    models ──▶ ConvertedModels: converted once, on each device ──▶ workers: a ModelWorker for each device, one model or an ensemble

Workers of one device share their models' weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..data.tokenizer import BOS, EOS
from ..device import accelerator_memory, current, is_host
from ..kernels.choice import KernelsInUse, apply_kernels
from ..kernels.protocols import GrowingDecoder
from ..model.precision import convert
from ..model.transformer import Transformer
from ..registry import SEARCHES, load
from .alignment import aligned
from .batches import BatchSource, SearchResult
from .cached_decoder import CachedDecoder
from .decoders import EnsembleDecoder
from .search import Hypothesis, SearchOptions
from .workers import SearchableModels, SearchClass, Worker

if TYPE_CHECKING:
    from .spawned import ProcessPool

LOGITS_AT_ONCE = 1 << 26
"""Largest number of logits (rows x vocabulary) of one step: 256 MiB. An accelerator with much memory takes more, see LOGITS_SHARE."""
LOGITS_SHARE = 1 / 40
"""Share of an accelerator's memory for the logits of one step. Each operation has a fixed cost, so a few large steps are faster."""


class ModelWorker(Worker):
    """A model, or an ensemble of models, on a device."""

    def __init__(
        self,
        kernels: Sequence[KernelsInUse],
        options: SearchOptions,
        batch_tokens: int,
        search: SearchClass,
        align: bool,
    ) -> None:
        self.kernels, self.align = kernels, align
        self.models = [one.model for one in kernels]
        first = kernels[0]
        if first.top_candidates and first.log_softmax and all(one.top_candidates for one in kernels):
            options = replace(
                options,
                top_candidates=first.top_candidates,
                log_softmax=first.log_softmax,
                extend_beam=first.extend_beam,
            )
        super().__init__(options, batch_tokens, search)
        self.device = self.models[0].device

    @property
    def sentences(self) -> int:
        """See `Worker`."""
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // torch.float32.itemsize)
        fitting = max(1, logits // self.models[0].target_vocab // (2 * self.options.beam))
        return min(fitting, super().sentences) if is_host(self.device) else fitting

    @torch.inference_mode()
    def run(self, batches: BatchSource) -> None:
        """See `Worker`."""
        with current(self.device):
            super().run(batches)

    def copy(self) -> ModelWorker:
        """See `Worker`."""
        return ModelWorker(self.kernels, self.options, self.batch_tokens, self.search, self.align)

    def use_threads(self, count: int) -> None:
        """See `Worker`."""
        torch.set_num_threads(count)

    def decoder(self, sources: Sequence[Sequence[int]]) -> GrowingDecoder:
        """See `Worker`."""
        members = [
            kernels.native_decoder(sources, self.options.beam)
            or CachedDecoder(kernels.model, sources, self.options.beam)
            for kernels in self.kernels
        ]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        """See `Worker`."""
        return SearchResult(
            hypotheses, aligned(self.models[0], [*source, EOS], hypotheses[0].tokens, BOS) if self.align else []
        )


@dataclass(frozen=True)
class ConvertedModels(SearchableModels):
    """A model, or an ensemble, in one precision with kernels on each device. Translators with different options may share it."""

    devices: Sequence[str]
    """One per worker; "cpu" several times for several cores."""
    by_device: Mapping[str, Sequence[KernelsInUse]]
    """The models on each device; with a pool, on the first device only."""
    pool: ProcessPool | None = None
    """The processes that hold the models of each device, if workers are new processes (`spawned`)."""

    @staticmethod
    def of(
        models: Sequence[Transformer], precision: str, devices: Sequence[str], release: bool = False
    ) -> ConvertedModels:
        """Convert models in fp32 or int8. Raises UsageError for an unknown precision.

        With `release`, `models` must not be used afterwards: weights are freed as soon as a kernel has its own copy.
        """
        from .spawned import ProcessPool, need_processes

        by_device: dict[str, list[KernelsInUse]] = {}
        pool = ProcessPool(models, precision, devices) if need_processes(devices) else None
        for device in dict.fromkeys(devices[:1] if pool else devices):
            moved = [model if str(model.device) == device else copy.deepcopy(model).to(device) for model in models]
            by_device[device] = [
                apply_kernels(convert(model, precision), "decoding", release and len(set(devices)) == 1)
                for model in moved
            ]
        return ConvertedModels(devices, by_device, pool)

    @property
    def kernels(self) -> Sequence[KernelsInUse]:
        """The models on the first device, with their kernels."""
        return self.by_device[self.devices[0]]

    @property
    def processes(self) -> ProcessPool | None:
        """See `SearchableModels`."""
        return self.pool

    @property
    def max_positions(self) -> int:
        """See `SearchableModels`."""
        return min(kernels.model.config.max_positions for kernels in self.kernels)

    def search_class(self, name: str) -> SearchClass:
        """See `SearchableModels`."""
        search: SearchClass = load(SEARCHES, name, "search")
        return search

    def workers(self, options: SearchOptions, batch_tokens: int, search: SearchClass, align: bool) -> list[ModelWorker]:
        """See `SearchableModels`. Workers of one device share its models. With a pool all are on the first device: its processes hold the models of the others."""
        by_device = {device: list(kernels) for device, kernels in self.by_device.items()}
        if options.coverage_penalty:  # the first model reports its attention
            for kernels in by_device.values():
                kernels[0] = kernels[0].without_compiled_decoder(
                    "attention weights, which decode.coverage_penalty needs, have no kernel"
                )
        return [
            ModelWorker(by_device.get(device) or by_device[self.devices[0]], options, batch_tokens, search, align)
            for device in self.devices
        ]
