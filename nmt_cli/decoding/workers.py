"""Workers: each searches the batches that it takes from a source; it may search several batches at once.

    batches ──▶ BatchSource.get ──▶ Worker.run: one search over one decoder ──▶ Batch.results, then Batch.done

A worker adds the next batch to a search as soon as it has the capacity: it does not wait for the last hypotheses of
earlier batches, which are few. A worker has a device: a GPU, or one of a CPU's cores. `engine` says where workers run.
Workers of one device share their models' weights.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ..data.tokenizer import BOS, EOS
from ..device import accelerator_memory, current, is_host
from ..kernels import KernelsInUse, apply_kernels
from ..kernels.protocols import Decoder, GrowingDecoder
from ..model.precision import convert
from ..model.transformer import Transformer
from .alignment import aligned
from .batches import Batch, BatchSource, SearchResult, SingleBatch
from .cached_decoder import CachedDecoder
from .decoders import EnsembleDecoder
from .search import Hypothesis, Search, SearchOptions

if TYPE_CHECKING:
    from .spawned import ProcessPool

LOGITS_AT_ONCE = 1 << 26
"""Largest number of logits (rows x vocabulary) of one step: 256 MiB. An accelerator with much memory takes more, see LOGITS_SHARE."""
LOGITS_SHARE = 1 / 40
"""Share of an accelerator's memory for the logits of one step. Each operation has a fixed cost, so a few large steps are faster."""
CPU_ROWS = 512
"""Largest number of hypotheses in one step on a CPU. More hypotheses are not faster and need more memory."""

SearchClass = Callable[[Decoder, SearchOptions], Search]
"""A search class, as `nmt_cli.registry.SEARCHES` lists them."""


class Worker:
    """A model, or an ensemble of models, on a device. It searches at most `batch_tokens` source tokens at once.

    Only one thread at a time may use it; `search_one` takes a lock for this.
    """

    def __init__(self, kernels: Sequence[KernelsInUse], options: SearchOptions, batch_tokens: int, search: SearchClass, align: bool) -> None:
        self.kernels, self.batch_tokens, self.search, self.align = kernels, batch_tokens, search, align
        self.models = [one.model for one in kernels]
        first = kernels[0]
        if first.top_candidates and first.log_softmax and all(one.top_candidates for one in kernels):
            options = replace(options, top_candidates=first.top_candidates, log_softmax=first.log_softmax, extend_beam=first.extend_beam)
        self.options = options
        self.device = self.models[0].device
        self._lock = threading.Lock()

    @cached_property
    def sentences(self) -> int:
        """Largest number of sentences in a batch: two such batches fill a step."""
        logits = max(LOGITS_AT_ONCE, int(accelerator_memory(self.device) * LOGITS_SHARE) // torch.float32.itemsize)
        rows = logits // self.models[0].target_vocab
        if is_host(self.device):
            rows = min(rows, CPU_ROWS)
        return max(1, rows // (2 * self.options.beam))

    @torch.inference_mode()
    def run(self, batches: BatchSource) -> None:
        """Search batches until no more will come, or until `batches` is stopped."""
        waiting: Batch | None = None
        with current(self.device):
            while not batches.stopped and (batch := waiting or batches.get(wait=True)):
                waiting = self._search_together(batch, batches)

    def search_one(self, batch: Batch) -> None:
        """Search one batch, after those of other threads."""
        with self._lock:
            self.run(SingleBatch(batch))

    def _search_together(self, first: Batch, batches: BatchSource) -> Batch | None:
        """Search `first` and the batches that come meanwhile. Return the batch that was taken but not started, if any."""
        running = RunningSearch(self)
        waiting: Batch | None = first
        try:
            while not batches.stopped:
                if waiting and running.has_capacity(waiting.tokens):
                    batch, waiting = waiting, None
                    running.add(batch)
                if not running.busy:
                    break
                running.step()
                if waiting is None and running.has_capacity():
                    waiting = batches.get(wait=False)
        except Exception as error:
            running.fail(error)
        return waiting

    def copy(self) -> Worker:
        """Return another worker with the same models, which may run at the same time."""
        return Worker(self.kernels, self.options, self.batch_tokens, self.search, self.align)

    def _decoder(self, batch: Batch) -> GrowingDecoder:
        sources, beam = _closed(batch), self.options.beam
        members = [kernels.native_decoder(sources, beam) or CachedDecoder(kernels.model, sources, beam) for kernels in self.kernels]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def _result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        return SearchResult(hypotheses, aligned(self.models[0], [*source, EOS], hypotheses[0].tokens, BOS) if self.align else [])


class RunningSearch:
    """One decoder and one search, with the sentences of the batches that are in it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.decoder: GrowingDecoder | None = None
        self.search: Search | None = None
        self.sentences: dict[int, tuple[Batch, int]] = {}  # by id of a sentence in the search: its batch, and its index in the batch
        self.next_id = self.tokens = 0  # source tokens of the sentences

    @property
    def busy(self) -> bool:
        return bool(self.sentences)

    def has_capacity(self, tokens: int = 0) -> bool:
        """Return whether a batch of this many source tokens may be added."""
        if self.search is None or not self.sentences:
            return True
        return self.search.open_hypotheses <= self.worker.sentences * self.worker.options.beam and self.tokens + tokens <= self.worker.batch_tokens

    def add(self, batch: Batch) -> None:
        """Begin to search a batch."""
        ids = range(self.next_id, self.next_id + len(batch.sentences))
        self.sentences.update({number: (batch, index) for index, number in enumerate(ids)})
        self.next_id, self.tokens = self.next_id + len(ids), self.tokens + batch.tokens
        if self.decoder is None or self.search is None:
            self.decoder = self.worker._decoder(batch)
            self.search = self.worker.search(self.decoder, self.worker.options)
        else:
            self.decoder.add(_closed(batch))
        self.search.add(ids, batch.sentences, self.worker.device)

    def step(self) -> None:
        """Take a step and store the results of the sentences that finish."""
        assert self.search is not None
        for number, hypotheses in self.search.step():
            batch, index = self.sentences.pop(number)
            source = batch.sentences[index].tokens
            self.tokens -= len(source) + 1
            batch.add(index, self.worker._result(source, hypotheses))

    def drop(self, unwanted: Callable[[Batch, int], bool]) -> None:
        """Remove the sentences for which `unwanted(batch, index)` is true, without results. Their batch is never done."""
        dropped = [number for number, (batch, index) in self.sentences.items() if unwanted(batch, index)]
        if dropped and self.search:
            self.search.drop(dropped)
        for number in dropped:
            batch, index = self.sentences.pop(number)
            self.tokens -= len(batch.sentences[index].tokens) + 1

    def fail(self, error: Exception) -> None:
        """Set the error of all batches that are not done."""
        for batch in {id(batch): batch for batch, _ in self.sentences.values()}.values():
            batch.done.set_exception(error)


def _closed(batch: Batch) -> list[list[int]]:
    return [[*sentence.tokens, EOS] for sentence in batch.sentences]


@dataclass(frozen=True)
class ConvertedModels:
    """A model, or an ensemble, in one precision with kernels on each device. Translators with different options may share it."""

    devices: Sequence[str]
    """One per worker; "cpu" several times for several cores."""
    by_device: Mapping[str, Sequence[KernelsInUse]]
    """The models on each device; with a pool, on the first device only."""
    pool: ProcessPool | None = None
    """The processes that hold the models of each device, if workers are new processes (`spawned`)."""

    @staticmethod
    def of(models: Sequence[Transformer], precision: str, devices: Sequence[str], release: bool = False) -> ConvertedModels:
        """Convert models in fp32 or int8. Raises UsageError for an unknown precision.

        With `release`, `models` must not be used afterwards: weights are freed as soon as a kernel has its own copy.
        """
        from .spawned import ProcessPool, need_processes

        by_device: dict[str, list[KernelsInUse]] = {}
        pool = ProcessPool(models, precision, devices) if need_processes(devices) else None
        for device in dict.fromkeys(devices[:1] if pool else devices):
            moved = [model if str(model.device) == device else copy.deepcopy(model).to(device) for model in models]
            by_device[device] = [apply_kernels(convert(model, precision), "decoding", release and len(set(devices)) == 1) for model in moved]
        return ConvertedModels(devices, by_device, pool)

    @property
    def kernels(self) -> Sequence[KernelsInUse]:
        """The models on the first device, with their kernels."""
        return self.by_device[self.devices[0]]


def workers(models: ConvertedModels, options: SearchOptions, batch_tokens: int, search: SearchClass, align: bool) -> list[Worker]:
    """Return a worker for each device; workers of one device share its models. With a pool all are on the first device: its processes hold the models of the others."""
    by_device = {device: list(kernels) for device, kernels in models.by_device.items()}
    if options.coverage_penalty:  # the first model reports its attention
        for kernels in by_device.values():
            kernels[0] = kernels[0].without_compiled_decoder("attention weights, which decode.coverage_penalty needs, have no kernel")
    return [Worker(by_device.get(device) or by_device[models.devices[0]], options, batch_tokens, search, align) for device in models.devices]
