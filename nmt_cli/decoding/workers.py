"""Workers: each searches the batches that it takes, several at once.

    batches ──▶ queue ──▶ Worker.run: one Search over one decoder   ──▶ Batch.found, then Batch.done
                             ▲ the next batch enters as soon as there is room: the last hypotheses of those before
                               it, which are few, are not waited for

A worker has a device: a GPU, or one of a CPU's cores. It runs in a thread, or several of a CPU each in a process forked
from this one (`processes`); either way those of a CPU share the weights.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import torch

from ..data.tokenizer import BOS, EOS
from ..kernels import KernelsInUse, apply_kernels
from ..kernels.cpu_decoding.decoder import NativeDecoder
from ..kernels.cpu_decoding.functions import best_continuations
from ..model.precision import convert
from ..model.transformer import Transformer
from .alignment import aligned
from .cached_decoder import CachedDecoder, CacheMemory
from .decoders import EnsembleDecoder
from .sampling import Sampling, sample
from .search import Hypothesis, Search, SearchOptions, beam_search

LOGITS_AT_ONCE = 1 << 26
"""Numbers (rows x vocabulary) of one step at most: 256 MiB."""
CPU_ROWS = 1024
"""Hypotheses of one step on a CPU at most: more are not faster and need more memory."""


@dataclass
class Found:
    """A source's hypotheses, best first, and where asked for the alignment of the best."""

    hypotheses: list[Hypothesis]
    alignment: list[int]


@dataclass
class Batch:
    """Sources to translate together: ids without end symbols, what outputs begin with, how long each may be."""

    sources: list[list[int]]
    prefixes: list[list[int]]
    limits: list[int]
    found: dict[int, Found] = field(default_factory=dict)
    done: Future[list[Found]] = field(default_factory=Future)

    @property
    def tokens(self) -> int:
        """Of all sources, end symbols counted."""
        return sum(len(source) + 1 for source in self.sources)

    def add(self, place: int, found: Found) -> None:
        """The result of one source; with the last one the batch is done."""
        self.found[place] = found
        if len(self.found) == len(self.sources):
            self.done.set_result([self.found[i] for i in range(len(self.sources))])


class Worker:
    """Models ready to run on a device, one or an ensemble; `batch_tokens` source tokens are searched at once at most."""

    def __init__(self, kernels: Sequence[KernelsInUse], options: SearchOptions, batch_tokens: int, sampling: Sampling | None, align: bool) -> None:
        self.kernels, self.batch_tokens, self.sampling, self.align = kernels, batch_tokens, sampling, align
        self.models, self.memory = [one.model for one in kernels], [CacheMemory() for _ in kernels]
        native = all(one.native for one in kernels)
        self.options = replace(options, best=best_continuations) if native else options
        self.device = self.models[0].output_weight.device

    @property
    def sentences(self) -> int:
        """That a batch should hold at most: two fill a step."""
        rows = LOGITS_AT_ONCE // self.models[0].target_vocab
        if self.device.type == "cpu":
            rows = min(rows, CPU_ROWS)
        return max(1, rows // (2 * self.options.beam))

    def run(self, batches: queue.SimpleQueue[Batch | None], left: threading.Event) -> None:
        """Search batches until None comes, or `left` is set."""
        waiting: Batch | None = None
        more = True
        while not left.is_set() and (more or waiting):
            waiting = waiting or batches.get()
            if waiting is None:
                return
            first, waiting = waiting, None
            if self.sampling:
                self.all(first)
            else:
                more, waiting = self._together(first, batches, left)

    @torch.inference_mode()
    def all(self, batch: Batch) -> None:
        """One batch from its beginning to its end."""
        try:
            decoder, limits = self._decoder(batch), torch.tensor(batch.limits, device=self.device)
            if self.sampling:
                results = sample(decoder, limits, self.options, self.sampling, batch.sources, self._prefixes(batch))
            else:
                results = beam_search(decoder, limits, self.options, self._prefixes(batch))
            for place, hypotheses in enumerate(results):
                batch.add(place, self._found(batch.sources[place], hypotheses))
        except Exception as error:
            batch.done.set_exception(error)

    @torch.inference_mode()
    def _together(self, first: Batch, batches: queue.SimpleQueue[Batch | None], left: threading.Event) -> tuple[bool, Batch | None]:
        """`first` and what comes while it is searched. Returns whether more can come, and a batch that had no room."""
        decoder: CachedDecoder | NativeDecoder | EnsembleDecoder | None = None
        search: Search | None = None
        waiting: Batch | None = first
        more, tokens, keys = True, 0, 0
        under_way: dict[int, tuple[Batch, int]] = {}
        entering: list[Batch] = []
        try:
            while not left.is_set():
                if waiting and (not under_way or self._room(search, tokens + waiting.tokens)):
                    entering, waiting = [waiting], None
                    batch, numbers = entering[0], range(keys, keys + len(entering[0].sources))
                    if decoder is None or search is None:
                        decoder = self._decoder(batch)
                        search = Search(decoder, self.options)
                    else:
                        decoder.add(_closed(batch))
                    search.add(numbers, torch.tensor(batch.limits, device=self.device), self._prefixes(batch))
                    under_way.update({number: (batch, place) for place, number in enumerate(numbers)})
                    tokens, keys, entering = tokens + batch.tokens, keys + len(numbers), []
                if not under_way or search is None:
                    break
                for key, hypotheses in search.step():
                    batch, place = under_way.pop(key)
                    tokens -= len(batch.sources[place]) + 1
                    batch.add(place, self._found(batch.sources[place], hypotheses))
                if more and not waiting and self._room(search, tokens):
                    with contextlib.suppress(queue.Empty):
                        waiting = batches.get_nowait()
                        more = waiting is not None
        except Exception as error:
            for batch in {id(batch): batch for batch in [*entering, *(batch for batch, _ in under_way.values())]}.values():
                batch.done.set_exception(error)
        return more, waiting

    def _room(self, search: Search | None, tokens: int) -> bool:
        """Whether another batch may enter, with which there are `tokens` source tokens."""
        return search is not None and search.open <= self.sentences * self.options.beam and tokens <= self.batch_tokens

    def beside(self) -> Worker:
        """Another one with the same models."""
        return Worker(self.kernels, self.options, self.batch_tokens, self.sampling, self.align)

    def _decoder(self, batch: Batch) -> CachedDecoder | NativeDecoder | EnsembleDecoder:
        sources, beam = _closed(batch), self.options.beam
        members = [
            kernels.native_decoder(sources, beam) or CachedDecoder(kernels.model, sources, beam, memory)
            for kernels, memory in zip(self.kernels, self.memory, strict=True)
        ]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def _prefixes(self, batch: Batch) -> list[list[int]] | None:
        return batch.prefixes if any(batch.prefixes) else None

    def _found(self, source: list[int], hypotheses: list[Hypothesis]) -> Found:
        return Found(hypotheses, aligned(self.models[0], [*source, EOS], hypotheses[0].tokens, BOS) if self.align else [])


def _closed(batch: Batch) -> list[list[int]]:
    return [[*source, EOS] for source in batch.sources]


def workers(
    models: list[Transformer], precision: str, devices: Sequence[str], options: SearchOptions, batch_tokens: int, sampling: Sampling | None, align: bool
) -> list[Worker]:
    """A worker for each device; those of one device share its models. Raises UsageError where the precision cannot be had."""
    ready: dict[str, list[KernelsInUse]] = {}
    for device in devices:
        if device not in ready:
            there = [model if str(model.output_weight.device) == device else copy.deepcopy(model).to(device) for model in models]
            ready[device] = [apply_kernels(convert(model, precision), "decoding") for model in there]
    return [Worker(ready[device], options, batch_tokens, sampling, align) for device in devices]
