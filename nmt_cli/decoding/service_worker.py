"""The worker of a `service`: it searches sentences as they come, and reports each result as soon as it is ready.

    Inbox ◀── Jobs(options, numbers, sentences) · Drop(numbers) · None: end       a queue, or a pipe to this process
      └──▶ ServiceWorker.run: a running search for each set of options ──▶ report([(number, result or error), …]) after each call of `step`

A sentence joins the search of its options after the call of `step` that is under way; no sentence waits until a batch is full.
Sentences that come together are encoded together. If a search fails, each of its sentences is searched again alone, so that
only the sentences that cause the error fail. `Cores` lets a worker compute with all cores of a CPU while the others have nothing to do.
"""

from __future__ import annotations

import mmap
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty
from typing import Protocol

from .batches import Batch, SearchResult
from .processes import portable
from .sentence import Sentence
from .workers import RunningSearch, Worker, use_threads

NumberedResults = list[tuple[int, SearchResult | BaseException]]
"""The number of each sentence, with its result or the error of its search."""
LONG = 0.05
"""Seconds after which a thread reads new messages, so that they are read during a long step too."""


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
"""None tells the worker to end."""


class Inbox(Protocol):
    """Messages in the order in which they were sent; a `SimpleQueue` is one."""

    def get(self) -> Message:
        """Wait for the next message and return it."""
        ...

    def get_nowait(self) -> Message:
        """Return the next message. Raises Empty if there is none yet."""
        ...


class Cores:
    """The number of threads that each of several workers uses: all cores while no other worker is busy, else an equal share.

    The workers are threads, or processes that were forked after this object was created.
    """

    def __init__(self, workers: int, cores: int) -> None:
        self.cores = cores
        self._busy = mmap.mmap(-1, workers)  # one byte per worker, shared by the processes

    def set_busy(self, worker: int, busy: bool) -> None:
        """Record whether this worker searches."""
        self._busy[worker] = busy

    def use_share(self) -> None:
        """Let this thread compute with its share of the cores."""
        use_threads(max(1, self.cores // max(1, sum(self._busy[:]))))


@dataclass
class _NumberedBatch(Batch):
    """A batch whose sentences have numbers; a result goes to `numbered_results` at once."""

    numbers: list[int] = field(default_factory=list)
    numbered_results: NumberedResults = field(default_factory=list)

    def add(self, index: int, result: SearchResult) -> None:
        """See `Batch`."""
        self.numbered_results.append((self.numbers[index], result))


class ServiceWorker:
    """Searches the sentences that it is sent. `worker_of` returns the worker for a set of options. `cores` None: the number of threads is not changed."""

    def __init__(self, index: int, worker_of: Callable[[Hashable], Worker], cores: Cores | None) -> None:
        self.index, self.worker_of, self.cores = index, worker_of, cores
        self.waiting: dict[Hashable, list[tuple[int, Sentence]]] = {}
        self.searches: dict[Hashable, RunningSearch] = {}
        self.again: deque[tuple[Hashable, int, Sentence]] = deque()
        """Sentences of searches that failed."""
        self.results: NumberedResults = []
        self.ended = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.searches or self.waiting or self.again)

    def run(self, inbox: Inbox, report: Callable[[NumberedResults], None]) -> None:
        """Search the sentences that come through the inbox and report the results, until the message None comes."""
        while not self.ended:
            self._read(inbox)
            if self.cores:
                self.cores.use_share()
            for options in list(self.waiting):
                self._begin(options)
            for options in list(self.searches):
                self._step(options)
            if self.again:
                self._alone(*self.again.popleft())
            if self.results:
                report(self.results.copy())
                self.results.clear()

    def _read(self, inbox: Inbox) -> None:
        """Read all messages that have come; wait for one if there is nothing to do."""
        if not self.busy:
            if self.cores:
                self.cores.set_busy(self.index, False)
            self._take(inbox.get())
            if self.cores:
                self.cores.set_busy(self.index, True)
        with suppress(Empty):
            while not self.ended:
                self._take(inbox.get_nowait())

    def _take(self, message: Message) -> None:
        if message is None:
            self.ended = True
        elif isinstance(message, Jobs):
            self.waiting.setdefault(message.options, []).extend(zip(message.numbers, message.sentences, strict=True))
        else:
            self._drop(set(message.numbers))

    def _drop(self, numbers: set[int]) -> None:
        self.waiting = {
            options: kept
            for options, jobs in self.waiting.items()
            if (kept := [job for job in jobs if job[0] not in numbers])
        }
        self.again = deque(job for job in self.again if job[1] not in numbers)
        for options, search in list(self.searches.items()):
            search.drop(lambda batch, index: isinstance(batch, _NumberedBatch) and batch.numbers[index] in numbers)
            if not search.busy:
                del self.searches[options]

    def _begin(self, options: Hashable) -> None:
        """Add the sentences that wait with these options to the search of these options."""
        jobs = self.waiting.pop(options)
        batch = _NumberedBatch(
            [sentence for _, sentence in jobs], numbers=[number for number, _ in jobs], numbered_results=self.results
        )
        if options not in self.searches:
            try:
                self.searches[options] = RunningSearch(self.worker_of(options))
            except Exception as error:
                self.results.extend((number, portable(error)) for number, _ in jobs)
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
        """Queue each sentence of a failed search to be searched again alone. If it was the only sentence, report the error."""
        search = self.searches.pop(options)
        left = [
            (batch.numbers[index], batch.sentences[index])
            for batch, index in search.sentences.values()
            if isinstance(batch, _NumberedBatch)
        ]
        if len(left) == 1:
            self.results.append((left[0][0], portable(error)))
        else:
            self.again.extend((options, *job) for job in left)

    def _alone(self, options: Hashable, number: int, sentence: Sentence) -> None:
        """Search a sentence by itself, to the end."""
        batch = _NumberedBatch([sentence], numbers=[number], numbered_results=self.results)
        try:
            search = RunningSearch(self.worker_of(options))
            search.add(batch)
            while search.busy:
                search.step()
        except Exception as error:
            self.results.append((number, portable(error)))


class PipeInbox:
    """An `Inbox` that reads from a pipe. When the other side is gone, the next message is None.

    The worker reads the pipe itself, between two steps: no thread has to wake up for a message. Only during a long step a thread
    reads instead. The other side cannot write to a full pipe. Thanks to this thread it never waits long, even while this side
    waits for it to read a report.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._early, self._reading = pipe, deque[Message](), threading.Lock()
        self._ready = select.poll()
        self._ready.register(pipe.fileno(), select.POLLIN)
        threading.Thread(target=self._read_ahead, daemon=True, name="nmt-reader").start()

    def get(self) -> Message:
        """See `Inbox`."""
        with self._reading:
            return self._next()

    def get_nowait(self) -> Message:
        """See `Inbox`."""
        with self._reading:
            if not self._early and not self._ready.poll(0):
                raise Empty
            return self._next()

    def _next(self) -> Message:
        return self._early.popleft() if self._early else self._receive()

    def _receive(self) -> Message:
        try:
            message: Message = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def _read_ahead(self) -> None:
        while True:
            time.sleep(LONG)
            with self._reading:
                while self._ready.poll(0):
                    self._early.append(self._receive())
                    if self._early[-1] is None:
                        return


def serve_pipe(worker: ServiceWorker, pipe: Connection) -> None:
    """Run a worker whose messages come through a pipe, in its own process."""
    use_threads(1)
    worker.run(PipeInbox(pipe), pipe.send)


def messages(jobs: Sequence[tuple[Hashable, int, Sentence]]) -> list[Jobs]:
    """Group jobs (options, number, sentence) into one message per set of options."""
    by_options: dict[Hashable, Jobs] = {}
    for options, number, sentence in jobs:
        one = by_options.setdefault(options, Jobs(options, [], []))
        one.numbers.append(number)
        one.sentences.append(sentence)
    return list(by_options.values())
