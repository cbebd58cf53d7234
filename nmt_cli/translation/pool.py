"""The pool of workers: threads that search the sentences of everybody who waits for translations with the same models.

    Client.submit(sentences) ──▶ FairQueue ──▶ a thread for each worker: a search
        Future[list[SearchResult]] ◀──────────  for each object of options

The threads share the weights. The engine computes without Python's lock, so they run side by side. A thread that has
capacity takes sentences from the queue and adds them to its search after the steps that are under way; no sentence
waits until a batch is full. The results do not depend on the thread, nor on the other sentences.

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
    A client that is gone (`Client.close`) takes its sentences out of the queue and of the searches. `Pool.close` ends
    the threads after their steps; so do the end of the models' life (`models`) and the exit of Python. After a fork,
    the child's pool makes threads of its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Collection, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import NmtError
from ..search.protocols import SearchModels
from ..search.running import HALF, RunningSearch, share
from ..search.search import SearchOptions
from ..search.sentence import SearchResult, Sentence

FEW_SENTENCES = 16
"""Up to this number of sentences, one thread with all cores of a CPU is faster than several threads with one core each.
"""


class PoolClosed(NmtError):
    """The models were closed before the search was done."""

    def __init__(self) -> None:
        super().__init__("the models were closed before all lines were done.")


@dataclass
class Counts:
    """The work of a pool since it began."""

    sentences: int = 0
    tokens: int = 0
    """Tokens of the best translations, end symbols included."""


class Client:
    """Somebody who waits for results: a stream of lines, or one request. The sentences of different clients take turns.

    The threads of the pool search; a subclass has other workers (`device_processes`).
    """

    def __init__(self, pool: Pool, models: SearchModels, options: SearchOptions) -> None:
        self.pool, self.models, self.options = pool, models, options
        self.in_engine = models.in_engine(options)
        self.running = 0
        """Number of sentences that threads have."""
        self.gone = False
        """Whether the client does not wait any more."""

    def submit(self, sentences: Sequence[Sentence]) -> Future[list[SearchResult]]:
        """Return a future of the results of these sentences.

        The future raises the error of the search, or PoolClosed. Raises PoolClosed after `Pool.close`, and NmtError if
        the system starts no thread.
        """
        pool, request = self.pool, _Request(self, len(sentences))
        if not sentences:
            request.future.set_result([])
            return request.future
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index].tokens))
        ordered = [(index, sentences[index]) for index in order]
        pool.put(self, [_Task(request, index, one, self.in_engine and not one.inputs) for index, one in ordered])
        return request.future

    def close(self) -> None:
        """Stop the search of the client's sentences. Its futures are never done."""
        with self.pool.changed:
            self.gone = True
            self.pool.queue.drop(self)


@dataclass(eq=False)
class _Request:
    """The sentences of one call of `submit`, and their results so far."""

    client: Client
    sentences: int
    """Number of sentences."""
    future: Future[list[SearchResult]] = field(default_factory=Future)
    results: dict[int, SearchResult] = field(default_factory=dict)

    def fail(self, error: Exception) -> None:
        """Set the error of the future, unless the future is done."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class _Task:
    """A sentence of a request."""

    request: _Request
    index: int
    sentence: Sentence
    in_engine: bool
    """Whether the engine's own search takes it."""
    alone: bool = False
    """Whether it is searched by itself, after a search that failed."""


class FairQueue:
    """Sentences of several clients, which take turns. It has no lock: its owner has one.

    Clients of which no sentence is searched now come first. So a single sentence does not wait behind a document of
    thousands of sentences. The document also makes progress while single sentences keep coming: when none of its
    sentences is searched any more, it is one of the first again.
    """

    def __init__(self) -> None:
        self._waiting: dict[Client, deque[_Task]] = {}
        """In the order of the clients' turns."""
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def put(self, client: Client, items: Sequence[_Task], *, first: bool = False) -> None:
        """Add items of a client; `first`: before the items that it has."""
        waiting = self._waiting.setdefault(client, deque())
        if first:
            waiting.extendleft(reversed(items))
        else:
            waiting.extend(items)
        self._count += len(items)

    def take(self, *, fresh_only: bool = False) -> tuple[Client, _Task] | None:
        """Remove the next item and return it with its client; None: there is no item.

        `fresh_only`: of clients of which no sentence is searched. The caller counts those as `running` of the client.
        """
        fresh = (client for client in self._waiting if not client.running)
        client = next(fresh, None if fresh_only else next(iter(self._waiting), None))
        if client is None:
            return None
        items = self._waiting.pop(client)
        item = items.popleft()
        self._count -= 1
        if items:
            self._waiting[client] = items
        return client, item

    def drop(self, client: Client) -> None:
        """Remove all items of a client."""
        self._count -= len(self._waiting.pop(client, ()))


class Pool:
    """The queue of all clients, and at most `workers` threads. `cores` are those of a CPU that the threads share.

    It does not refer to the models, except for sentences that are not done: so the models' end can be its end.
    """

    def __init__(self, workers: int, cores: int) -> None:
        self.workers, self.cores = workers, cores
        self._begin()

    def _begin(self) -> None:
        """Begin without sentences and threads, in this process."""
        self.owner, self.queue, self.counts = os.getpid(), FairQueue(), Counts()
        self.changed = threading.Condition()  # its lock is that of the queue, of clients and of requests
        self.threads: list[threading.Thread] = []
        self.busy: set[_Worker] = set()
        """Those that have sentences."""
        self.running = 0
        """Number of sentences that threads have."""
        self.refusing = self.closed = False

    @property
    def waiting(self) -> int:
        """Number of sentences that no thread has yet."""
        return len(self.queue)

    def put(self, client: Client, tasks: list[_Task]) -> None:
        """Put sentences of a client into the queue. Raises PoolClosed, NmtError; see `Client.submit`."""
        if self.owner != os.getpid():
            self._begin()
        with self.changed:
            if self.refusing:
                raise PoolClosed
            if len(self.threads) < self.workers:
                self._start_threads()
            self.queue.put(client, tasks)
            self.changed.notify(1 if len(tasks) <= FEW_SENTENCES else self.workers)

    def _start_threads(self) -> None:
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

    def close(self, wait: float = 0.0) -> bool:
        """Refuse new sentences; end the threads when all is done, or after `wait` seconds. Return whether all was done.

        What is not done fails with PoolClosed. In a fork of the process that started the threads this does nothing.
        """
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
                following[1].request.fail(PoolClosed())
        return done


_running: set[Pool] = set()
"""Those whose threads run. They end when Python exits: Python frees what they compute with."""


@atexit.register
def _close_all() -> None:
    for pool in list(_running):  # a copy at once: other threads change the set
        pool.close()


class _Worker:
    """One thread, and its searches: one for each object of options, and one for each sentence that is searched alone.

    Sentences without inputs of constraints have a search of their own where the engine has one.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.searches: dict[Hashable, RunningSearch[_Task]] = {}

    def run(self) -> None:
        """Search until the pool is closed."""
        while self._turn():
            pass
        for search in self.searches.values():
            for task in search.tasks.values():
                task.request.fail(PoolClosed())

    def _turn(self) -> bool:
        """Take new sentences, and a step with all that the thread has; False: the pool is closed.

        A thread that waits for sentences refers to no client: else the models that nobody else has would stay.
        """
        tasks = self._take()
        if tasks is None:
            return False
        entering: dict[Hashable, list[_Task]] = {key: [] for key in self.searches}
        for task in tasks:
            key: Hashable = task if task.alone else (task.request.client.options, task.in_engine)
            entering.setdefault(key, []).append(task)
        for key, those in entering.items():
            self._advance(key, those)
        return True

    def _take(self) -> list[_Task] | None:
        """Wait until there is something to do. Return new sentences from the queue; None: the pool is closed."""
        pool, queue, tasks = self.pool, self.pool.queue, list[_Task]()
        load = sum(search.load for search in self.searches.values())
        fresh_only = load > HALF
        with pool.changed:
            if not self.searches:
                pool.busy.discard(self)
                pool.changed.wait_for(lambda: pool.queue or pool.closed)
                pool.busy.add(self)
            if pool.closed:
                return None
            most = max(FEW_SENTENCES, -(-len(queue) // pool.workers))
            while len(tasks) < most and load < (2 if fresh_only else 1):
                following = queue.take(fresh_only=fresh_only)
                if following is None:
                    break
                client, task = following
                client.running += 1
                pool.running += 1
                tasks.append(task)
                load += share(client.models, client.options, task.sentence)
                fresh_only = fresh_only or load >= 1
        return tasks

    def _advance(self, key: Hashable, entering: Sequence[_Task]) -> None:
        """Add sentences to a search, and take a step with it.

        If the search fails, its sentences return to the queue, each to be searched alone.
        """
        try:
            if key not in self.searches:
                client = entering[0].request.client
                self.searches[key] = RunningSearch(client.models, client.options, entering[0].in_engine)
            search = self.searches[key]
            if entering:
                search.add(entering, [task.sentence for task in entering])
            self._drop_gone(search)
            if search.tasks:
                search.models.use_threads(max(1, self.pool.cores // max(1, len(self.pool.busy))))
                self._store(search.step())
            if not search.tasks:
                del self.searches[key]
        except Exception as error:
            failed = self.searches.pop(key, None)
            self._failed(list(failed.tasks.values()) if failed else entering, error)

    def _drop_gone(self, search: RunningSearch[_Task]) -> None:
        """Remove the sentences of clients that are gone."""
        gone = {number: task for number, task in search.tasks.items() if task.request.client.gone}
        if gone:
            search.drop(gone)
            self._returned(gone.values())

    def _store(self, finished: Sequence[tuple[_Task, SearchResult]]) -> None:
        """Store the results of sentences, and set those of the requests that they complete."""
        complete: list[_Request] = []
        counts = self.pool.counts
        with self.pool.changed:
            self._returned([task for task, _ in finished])
            for task, result in finished:
                request = task.request
                request.results[task.index] = result
                counts.sentences += 1
                counts.tokens += len(result.hypotheses[0].tokens) + 1
                if len(request.results) == request.sentences:
                    complete.append(request)
        for request in complete:
            with suppress(InvalidStateError):  # it was cancelled
                request.future.set_result([request.results[index] for index in range(request.sentences)])

    def _failed(self, tasks: Sequence[_Task], error: Exception) -> None:
        """Return the sentences of a search that failed to the queue; one that was alone fails with the error."""
        alone = [task for task in tasks if task.alone]
        with self.pool.changed:
            self._returned(tasks)
            for task in tasks:
                if not task.alone and not task.request.client.gone:
                    task.alone = True
                    self.pool.queue.put(task.request.client, [task], first=True)
        for task in alone:
            task.request.fail(error)

    def _returned(self, tasks: Collection[_Task]) -> None:
        """Take note that the thread has these sentences no more."""
        pool = self.pool
        with pool.changed:
            pool.running -= len(tasks)
            for task in tasks:
                task.request.client.running -= 1
            if not pool.running:
                pool.changed.notify_all()  # `close` may wait for this
