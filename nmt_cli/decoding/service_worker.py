"""What a worker of a `service` does: it searches sentences as they come, and reports each result as soon as there is one.

    Inbox ◀── Jobs(options, numbers, sentences) · Drop(numbers) · None: end
      └──▶ ServiceWorker.run: a running search for each set of options ──▶ report([(number, result or error), …]) after each step

A sentence joins the search of its options at the next step; no sentence waits until a batch is full. Sentences that come
together are encoded together. Where a search fails, each of its sentences is searched again alone, so that only those
fail that have to. `Cores` lets a worker compute with all cores of a CPU while the others have nothing to do.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

import torch

from .batches import Batch, SearchResult
from .constraint import Sentence
from .processes import portable
from .workers import RunningSearch, Worker

Found = list[tuple[int, SearchResult | BaseException]]
"""By number of the sentence: its result, or why there is none."""


@dataclass(frozen=True)
class Jobs:
    """Sentences to search with these options."""

    options: Hashable
    numbers: list[int]
    sentences: list[Sentence]


@dataclass(frozen=True)
class Drop:
    """Sentences whose results nobody waits for any more."""

    numbers: list[int]


Message = Jobs | Drop | None
"""None: the worker shall end."""


class Cores:
    """How many threads each of several workers computes with: all cores while it alone works, else its share of them.

    The workers are processes that were forked after this was made, or threads.
    """

    def __init__(self, workers: int, cores: int) -> None:
        self.cores = cores
        self._busy = mmap.mmap(-1, workers)  # one byte per worker, shared by the processes

    def set_busy(self, worker: int, busy: bool) -> None:
        """Say whether this worker searches."""
        self._busy[worker] = busy

    def use_share(self) -> None:
        """Let this thread compute with its share of the cores."""
        share = max(1, self.cores // max(1, sum(self._busy[:])))
        if torch.get_num_threads() != share:
            torch.set_num_threads(share)


@dataclass
class _NumberedBatch(Batch):
    """A batch whose sentences have numbers; results go to `found` at once."""

    numbers: list[int] = field(default_factory=list)
    found: Found = field(default_factory=list)

    def add(self, index: int, result: SearchResult) -> None:
        """See `Batch`."""
        self.found.append((self.numbers[index], result))


class ServiceWorker:
    """Searches what comes through its inbox. `worker_of` returns the worker of a set of options; `cores` None: threads stay as they are."""

    def __init__(self, index: int, worker_of: Callable[[Hashable], Worker], cores: Cores | None, report: Callable[[Found], None]) -> None:
        self.index, self.worker_of, self.cores, self.report = index, worker_of, cores, report
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.waiting: dict[Hashable, list[tuple[int, Sentence]]] = {}
        self.searches: dict[Hashable, RunningSearch] = {}
        self.again: deque[tuple[Hashable, int, Sentence]] = deque()
        """Sentences of searches that failed."""
        self.found: Found = []
        self.ended = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.searches or self.waiting or self.again)

    @torch.inference_mode()
    def run(self) -> None:
        """Search until the end is told."""
        while not self.ended:
            self._read()
            if self.cores:
                self.cores.use_share()
            for options in list(self.waiting):
                self._begin(options)
            for options in list(self.searches):
                self._step(options)
            if self.again:
                self._alone(*self.again.popleft())
            if self.found:
                self.report(self.found.copy())
                self.found.clear()

    def _read(self) -> None:
        """Read all messages that are there; wait for one if there is nothing to do."""
        if not self.busy:
            if self.cores:
                self.cores.set_busy(self.index, False)
            self._take(self.inbox.get())
            if self.cores:
                self.cores.set_busy(self.index, True)
        while True:
            try:
                self._take(self.inbox.get_nowait())
            except Empty:
                return

    def _take(self, message: Message) -> None:
        if message is None:
            self.ended = True
        elif isinstance(message, Jobs):
            self.waiting.setdefault(message.options, []).extend(zip(message.numbers, message.sentences, strict=True))
        else:
            self._drop(set(message.numbers))

    def _drop(self, numbers: set[int]) -> None:
        self.waiting = {options: kept for options, jobs in self.waiting.items() if (kept := [job for job in jobs if job[0] not in numbers])}
        self.again = deque(job for job in self.again if job[1] not in numbers)
        for options, search in list(self.searches.items()):
            search.drop(lambda batch, index: isinstance(batch, _NumberedBatch) and batch.numbers[index] in numbers)
            if not search.busy:
                del self.searches[options]

    def _begin(self, options: Hashable) -> None:
        """Let the sentences that wait with these options join their search."""
        jobs = self.waiting.pop(options)
        batch = _NumberedBatch([sentence for _, sentence in jobs], numbers=[number for number, _ in jobs], found=self.found)
        if options not in self.searches:
            try:
                self.searches[options] = RunningSearch(self.worker_of(options))
            except Exception as error:
                self.found.extend((number, portable(error)) for number, _ in jobs)
                return
        try:
            self.searches[options].add(batch)
        except Exception as error:
            self._failed(options, error)

    def _step(self, options: Hashable) -> None:
        search = self.searches[options]
        try:
            search.step()
        except Exception as error:
            self._failed(options, error)
        else:
            if not search.busy:
                del self.searches[options]

    def _failed(self, options: Hashable, error: Exception) -> None:
        """Let each sentence of a search that failed be searched again alone. The only one of its search has failed for good."""
        search = self.searches.pop(options)
        left = [(batch.numbers[index], batch.sentences[index]) for batch, index in search.sentences.values() if isinstance(batch, _NumberedBatch)]
        if len(left) == 1:
            self.found.append((left[0][0], portable(error)))
        else:
            self.again.extend((options, *job) for job in left)

    def _alone(self, options: Hashable, number: int, sentence: Sentence) -> None:
        """Search a sentence by itself, to the end."""
        batch = _NumberedBatch([sentence], numbers=[number], found=self.found)
        try:
            search = RunningSearch(self.worker_of(options))
            search.add(batch)
            while search.busy:
                search.step()
        except Exception as error:
            self.found.append((number, portable(error)))


def serve_pipe(worker: ServiceWorker, pipe: Connection) -> None:
    """Run a worker whose messages come through a pipe, in its own process. A thread reads, so that the other side never waits long."""

    def read() -> None:
        try:
            while (message := pipe.recv()) is not None:
                worker.inbox.put(message)
        except (EOFError, OSError):
            pass  # the parent is gone
        worker.inbox.put(None)

    worker.report = pipe.send
    threading.Thread(target=read, daemon=True, name="nmt-reader").start()
    worker.run()


def messages(jobs: Sequence[tuple[Hashable, int, Sentence]]) -> list[Jobs]:
    """Return jobs, each with its options and its number, as few messages."""
    by_options: dict[Hashable, Jobs] = {}
    for options, number, sentence in jobs:
        one = by_options.setdefault(options, Jobs(options, [], []))
        one.numbers.append(number)
        one.sentences.append(sentence)
    return list(by_options.values())
