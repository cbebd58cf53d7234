"""The pool of workers: threads that search the sentences of everybody who waits for translations with the same models.

    LineTranslator ──▶ Pool.submit(searcher, sentences, client) ──▶ FairQueue ──▶ a thread for each worker: a search
        Future[list[SearchResult]] ◀── when the last sentence has come ◀──────  for each searcher

The threads share the weights. The engine computes without Python's lock, so they run side by side. A thread that has
room takes sentences from the queue and adds them to its search after the steps that are under way; no sentence waits
until a batch is full. The results do not depend on the thread, nor on the other sentences.

Who takes what
    `RunningSearch.load` says how full a thread is: 1 is full. A thread that is at most half full takes sentences until
    it is full. It takes sentences of a client none of whose sentences is searched (`FairQueue`) even beyond that, up to
    twice: a single sentence does not wait for a long document. Few sentences are not divided: one thread computes them
    with all cores of a CPU.

Cores
    A thread computes with its share of a CPU's cores: all of them while no other thread of the pool has work.

Errors
    If a search fails, each of its sentences is searched again alone. The error goes to the futures of those that fail
    alone.

Ends
    A client that is gone (`drop`) takes its sentences out of the queue and of the searches. `close` ends the threads
    after their steps; so do the end of the pool's life and the exit of Python. After a fork, the child's pool makes
    threads of its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from ..errors import NmtError
from ..search.sentence import SearchResult, Sentence
from .searchers import HALF, RunningSearch, Searcher

FEW_SENTENCES = 16
"""Up to this number of sentences, one thread with all cores of a CPU is faster than several threads with one core each.
"""


class PoolClosed(NmtError):
    """The pool was closed before the search was done."""


@dataclass
class Counts:
    """The work of a pool since it began."""

    sentences: int = 0
    tokens: int = 0
    """Tokens of the best translations, end symbols included."""


@dataclass(eq=False)
class Client:
    """Somebody who waits for results. The sentences of different clients take turns."""

    running: int = 0
    """Number of sentences that threads have."""
    gone: bool = False
    """Whether the client does not wait any more."""


@dataclass(eq=False)
class _Request:
    """The sentences of one call of `submit`, and their results so far."""

    client: Client
    searcher: Searcher
    sentences: int
    """Number of sentences."""
    future: Future[list[SearchResult]] = field(default_factory=Future)
    results: dict[int, SearchResult] = field(default_factory=dict)


@dataclass(eq=False)
class _Task:
    """A sentence of a request. `alone`: it is searched by itself, after a search that failed."""

    request: _Request
    index: int
    sentence: Sentence
    alone: bool = False


class FairQueue:
    """Sentences of several clients, which take turns. It has no lock: its owner has one.

    put(client, tasks) ──▶ two rings of clients ──▶ take: one sentence of the client whose turn it is
                             fresh    clients of which no sentence is searched now: they come first
                             started  the others

    So a single sentence does not wait behind a document of thousands of sentences. The document also makes progress
    while single sentences keep coming: when none of its sentences is searched any more, it is fresh again, behind the
    clients that came before.
    """

    def __init__(self) -> None:
        self._fresh: OrderedDict[Client, deque[_Task]] = OrderedDict()
        self._started: OrderedDict[Client, deque[_Task]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def put(self, client: Client, items: list[_Task], *, first: bool = False) -> None:
        """Add items of a client; `first`: before the items that it has."""
        waiting = self._ring(client).get(client)
        if waiting is None:
            waiting = (
                self._fresh.setdefault(client, deque())
                if not client.running
                else self._started.setdefault(client, deque())
            )
        if first:
            waiting.extendleft(reversed(items))
        else:
            waiting.extend(items)
        self._count += len(items)

    def take(self, *, fresh_only: bool = False) -> tuple[Client, _Task] | None:
        """Remove the next item and return it with its client; None: there is no item.

        The caller adds 1 to the `running` of the client, and calls `paused` when it is 0 again.
        """
        ring = self._fresh if self._fresh or fresh_only else self._started
        if not ring:
            return None
        client, items = ring.popitem(last=False)
        item = items.popleft()
        self._count -= 1
        if items:
            self._started[client] = items
        return client, item

    def paused(self, client: Client) -> None:
        """Make a client fresh, because none of its sentences is searched any more. Fresh clients come first."""
        if client in self._started:
            self._fresh[client] = self._started.pop(client)

    def drop(self, client: Client) -> None:
        """Remove all items of a client."""
        self._count -= len(self._ring(client).pop(client, ()))

    def _ring(self, client: Client) -> OrderedDict[Client, deque[_Task]]:
        return self._fresh if client in self._fresh else self._started


class Pool:
    """At most `workers` threads. `cores` are those of a CPU that the threads share."""

    def __init__(self, workers: int, cores: int) -> None:
        self.workers, self.cores, self._owner = workers, cores, os.getpid()
        self._new_threads()

    def _new_threads(self) -> None:
        self._threads = _Threads(self.workers, self.cores)

    def __del__(self) -> None:
        self._threads.close()

    @property
    def waiting(self) -> int:
        """Number of sentences that no thread has yet."""
        return len(self._threads.queue)

    @property
    def running(self) -> int:
        """Number of sentences that threads have."""
        return self._threads.running

    @property
    def counts(self) -> Counts:
        """The work that is done."""
        return self._threads.counts

    def submit(
        self, searcher: Searcher, sentences: Sequence[Sentence], client: Client | None = None
    ) -> Future[list[SearchResult]]:
        """Return a future of the results of these sentences. Without a `client`, the request is a client of its own.

        The future raises the error of the search, or PoolClosed. Raises PoolClosed after `close`, and NmtError if the
        system starts no thread.
        """
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._new_threads()
        return self._threads.submit(searcher, sentences, client or Client())

    def drop(self, client: Client) -> None:
        """Stop the search of a client's sentences. Its futures are never done."""
        self._threads.drop(client)

    def close(self, wait: float = 0.0) -> bool:
        """Refuse new sentences; end the threads when all is done, or after `wait` seconds. Return whether all was done.

        What is not done fails with PoolClosed.
        """
        return self._threads.close(wait)


_running: set[_Threads] = set()
"""Those whose threads run. They end when Python exits: Python frees what they compute with."""


@atexit.register
def _close_all() -> None:
    for threads in list(_running):  # a copy at once: other threads change the set
        threads.close()


class _Threads:
    """What the threads of a pool share. They do not keep the pool itself alive."""

    def __init__(self, workers: int, cores: int) -> None:
        self.workers, self.cores, self.owner = workers, cores, os.getpid()
        self.queue = FairQueue()
        self.changed = threading.Condition()  # its lock is that of the queue, of clients and of requests
        self.threads: list[threading.Thread] = []
        self.busy: set[_Worker] = set()
        """Those that have sentences."""
        self.running, self.counts = 0, Counts()
        self.refusing = self.closed = False

    def submit(self, searcher: Searcher, sentences: Sequence[Sentence], client: Client) -> Future[list[SearchResult]]:
        request = _Request(client, searcher, len(sentences))
        if not sentences:
            request.future.set_result([])
            return request.future
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index].tokens))
        with self.changed:
            if self.refusing:
                raise PoolClosed("the models are closed.")
            self._start()
            self.queue.put(client, [_Task(request, index, sentences[index]) for index in order])
            self.changed.notify(1 if len(sentences) <= FEW_SENTENCES else self.workers)
        return request.future

    def _start(self) -> None:
        """Start the threads that are missing. If the system starts fewer, these do the work."""
        _running.add(self)
        try:
            while len(self.threads) < self.workers:
                thread = threading.Thread(target=_Worker(self).run, daemon=True, name="nmt-worker")
                thread.start()
                self.threads.append(thread)
        except RuntimeError:
            if not self.threads:
                raise NmtError(
                    "the system starts no thread for the search: this process, or this user, has too many."
                ) from None

    def drop(self, client: Client) -> None:
        with self.changed:
            client.gone = True
            self.queue.drop(client)

    def close(self, wait: float = 0.0) -> bool:
        """See `Pool`. In a fork of the process that started the threads this does nothing."""
        if self.owner != os.getpid():
            return True
        with self.changed:
            self.refusing = True
            done = self.changed.wait_for(lambda: not (self.queue or self.running), wait)
            self.closed = True
            self.changed.notify_all()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join()
        _running.discard(self)
        with self.changed:
            while following := self.queue.take():
                _fail(following[1].request, _closed())
        return done


class _Worker:
    """One thread, and its searches: one for each searcher, and one for each sentence that is searched alone."""

    def __init__(self, threads: _Threads) -> None:
        self.threads = threads
        self.searches: dict[Hashable, RunningSearch[_Task]] = {}

    def run(self) -> None:
        """Search until the pool is closed."""
        while self._turn():
            pass
        for search in self.searches.values():
            for task in search.tasks.values():
                _fail(task.request, _closed())

    def _turn(self) -> bool:
        """Take a step with all sentences that the thread has; False: the pool is closed.

        A thread that waits for sentences refers to no searcher: else the models that nobody else has would stay.
        """
        tasks = self._take()
        if tasks is None:
            return False
        self._add(tasks)
        for key in list(self.searches):
            self._try(key, self._step)
        return True

    def _take(self) -> list[_Task] | None:
        """Wait until there is something to do. Return new sentences; None: the pool is closed."""
        threads = self.threads
        self._leave_out()
        load = sum(search.load for search in self.searches.values())
        with threads.changed:
            if not self.searches:
                threads.busy.discard(self)
                threads.changed.wait_for(lambda: threads.queue or threads.closed)
                threads.busy.add(self)
            return None if threads.closed else self._chosen(load)

    def _leave_out(self) -> None:
        """Remove the sentences of clients that are gone."""
        for key, search in list(self.searches.items()):
            gone = {number: task for number, task in search.tasks.items() if task.request.client.gone}
            if gone:
                self._try(key, partial(self._drop, gone))

    def _drop(self, gone: Mapping[int, _Task], search: RunningSearch[_Task]) -> None:
        search.drop(gone)
        with self.threads.changed:
            for task in gone.values():
                self._returned(task)

    def _chosen(self, load: float) -> list[_Task]:
        """Take sentences from the queue, given how full the thread is. The lock is held."""
        queue, tasks, fresh_only = self.threads.queue, list[_Task](), load > HALF
        most = max(FEW_SENTENCES, -(-len(queue) // self.threads.workers))
        while (
            len(tasks) < most and load < (2 if fresh_only else 1) and (following := queue.take(fresh_only=fresh_only))
        ):
            client, task = following
            client.running += 1
            self.threads.running += 1
            tasks.append(task)
            load += task.request.searcher.load(task.sentence)
            fresh_only = fresh_only or load >= 1
        return tasks

    def _add(self, tasks: Sequence[_Task]) -> None:
        """Add sentences to their searches."""
        by_search: dict[Hashable, list[_Task]] = {}
        for task in tasks:
            by_search.setdefault(task if task.alone else task.request.searcher, []).append(task)
        for key, those in by_search.items():
            try:
                if key not in self.searches:
                    self.searches[key] = RunningSearch(those[0].request.searcher)
            except Exception as error:  # whatever the sentences are
                with self.threads.changed:
                    for task in those:
                        self._returned(task)
                for task in those:
                    _fail(task.request, error)
            else:
                self._try(key, partial(self._begin, those))

    def _begin(self, tasks: Sequence[_Task], search: RunningSearch[_Task]) -> None:
        search.add(tasks, [task.sentence for task in tasks])

    def _step(self, search: RunningSearch[_Task]) -> None:
        """Take a step, and store the results of the sentences that finish."""
        search.searcher.models.use_threads(max(1, self.threads.cores // max(1, len(self.threads.busy))))
        finished = search.step()
        complete: list[_Request] = []
        with self.threads.changed:
            for task, result in finished:
                self._returned(task)
                request = task.request
                request.results[task.index] = result
                self.threads.counts.sentences += 1
                self.threads.counts.tokens += len(result.hypotheses[0].tokens) + 1
                if len(request.results) == request.sentences:
                    complete.append(request)
        for request in complete:
            if request.future.set_running_or_notify_cancel():
                request.future.set_result([request.results[index] for index in range(request.sentences)])

    def _try(self, key: Hashable, work: Callable[[RunningSearch[_Task]], None]) -> None:
        """Work on a search. If the search fails, its sentences return to the queue, each to be searched alone."""
        search = self.searches[key]
        try:
            work(search)
        except Exception as error:
            with self.threads.changed:
                for task in search.tasks.values():
                    self._returned(task)
                    if not task.alone and not task.request.client.gone:
                        task.alone = True
                        self.threads.queue.put(task.request.client, [task], first=True)
            if isinstance(key, _Task):
                _fail(key.request, error)
            search.tasks.clear()
        if not search.tasks:
            del self.searches[key]

    def _returned(self, task: _Task) -> None:
        """Take note that the thread has the sentence no more. The lock is held."""
        client, threads = task.request.client, self.threads
        client.running -= 1
        threads.running -= 1
        if not client.running:
            threads.queue.paused(client)
        if not threads.running:
            threads.changed.notify_all()  # `close` may wait for this


def _closed() -> PoolClosed:
    return PoolClosed("the models were closed before the search was done.")


def _fail(request: _Request, error: Exception) -> None:
    """Set the error of a request's future, unless the future is done."""
    with suppress(InvalidStateError):
        request.future.set_exception(error)


Results = Callable[[], list[SearchResult]]
"""Waits for the results of sentences and returns them. Raises the error of the search."""


class Session(ABC):
    """The way of the sentences of one stream. After the `with` block nothing is searched any more."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    @abstractmethod
    def submit(self, sentences: Sequence[Sentence]) -> Results:
        """Begin to search these sentences."""

    def close(self) -> None:
        """Stop all work. In a fork of the process that began the session this does nothing."""
        if self._owner == os.getpid():
            self._stop()

    @abstractmethod
    def _stop(self) -> None:
        """Stop all work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ThreadSession(Session):
    """The threads of a pool search."""

    def __init__(self, pool: Pool, searcher: Searcher) -> None:
        super().__init__()
        self.pool, self.searcher, self.client = pool, searcher, Client()

    def submit(self, sentences: Sequence[Sentence]) -> Results:
        return self.pool.submit(self.searcher, sentences, self.client).result

    def _stop(self) -> None:
        self.pool.drop(self.client)
