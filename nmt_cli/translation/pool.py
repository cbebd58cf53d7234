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
    If a search fails, the thread searches each of its sentences again, alone. The error goes to the futures of those
    that fail alone.

Ends
    A client that is gone (`Client.close`) takes its sentences out of the queue and of the searches. `Pool.close` ends
    the threads after their steps; so do the end of the models' life (`models`) and the exit of Python. What is not done
    then fails with PoolClosed: nobody waits for ever. After a fork, the child's pool makes threads of its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import NmtError, of_machine
from ..search.protocols import SearchModels
from ..search.running import HALF, RunningSearch, search_all, share
from ..search.search import SearchOptions
from ..search.sentence import SearchResult, Sentence

FEW_SENTENCES = 16
"""Up to this number of sentences, one thread with all cores of a CPU is faster than several threads with one core each.
"""


class PoolClosed(NmtError):
    """The models were closed before the search was done."""

    def __init__(self) -> None:
        super().__init__("the models were closed before all lines were done.")


class Client:
    """Somebody who waits for results: a stream of lines, or one request. The sentences of different clients take turns.

    The threads of the pool search; a subclass has other workers (`device_processes`).
    """

    def __init__(self, pool: Pool, models: SearchModels, options: SearchOptions) -> None:
        self.pool, self.models, self.options = pool, models, options
        self.in_engine, self.owner = models.in_engine(options), os.getpid()
        self.running = 0
        """Number of sentences that threads have."""
        self.gone = False
        """Whether the client does not wait any more."""
        self.futures: set[Future[list[SearchResult]]] = set()
        """Those that are not done."""
        pool.clients.add(self)

    def submit(self, sentences: Sequence[Sentence]) -> Future[list[SearchResult]]:
        """Return a future of the results of these sentences.

        The future raises the error of the search, or PoolClosed. Raises PoolClosed after `close` and `Pool.close`, and
        NmtError if the system starts no thread.
        """
        future = self.new_future()
        request = _Request(self, len(sentences), future)
        tasks = [_Task(request, index, sentence) for index, sentence in enumerate(sentences)]
        if tasks:
            self.pool.put(self, sorted(tasks, key=lambda task: -len(task.sentence.tokens)))
        else:
            future.set_result([])
        return future

    def new_future(self) -> Future[list[SearchResult]]:
        """Return a future that `close` ends. Raises PoolClosed after it."""
        future = Future[list[SearchResult]]()
        self.futures.add(future)
        future.add_done_callback(self.futures.discard)
        if self.gone:  # asked last: a `close` in another thread has seen the future, or is seen here
            raise PoolClosed
        return future

    def close(self) -> None:
        """Stop the search of the client's sentences; futures that are not done raise PoolClosed.

        In a fork of the process that has the client this does nothing.
        """
        if self.owner == os.getpid():
            self.gone = True
            self.pool.clients.discard(self)
            with self.pool.changed:
                self.pool.queue.drop(self)
            for future in self.futures.copy():
                _fail(future, PoolClosed())


def _fail(future: Future[list[SearchResult]], error: Exception) -> None:
    """Set the error of a future, unless it is done."""
    with suppress(InvalidStateError):
        future.set_exception(error)


@dataclass(eq=False)
class _Request:
    """The sentences of one call of `submit`, and their results so far."""

    client: Client
    sentences: int
    """Number of sentences."""
    future: Future[list[SearchResult]]
    results: dict[int, SearchResult] = field(default_factory=dict)


@dataclass(eq=False)
class _Task:
    """A sentence of a request."""

    request: _Request
    index: int
    sentence: Sentence


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

    def put(self, client: Client, items: Sequence[_Task]) -> None:
        """Add items of a client."""
        self._waiting.setdefault(client, deque()).extend(items)
        self._count += len(items)

    def take(self, *, fresh_only: bool = False) -> _Task | None:
        """Remove the next item, count it as `running` of its client and return it; None: there is no item.

        `fresh_only`: of clients of which no sentence is searched.
        """
        fresh = (client for client in self._waiting if not client.running)
        client = next(fresh, None if fresh_only else next(iter(self._waiting), None))
        if client is None:
            return None
        items = self._waiting.pop(client)
        item = items.popleft()
        self._count -= 1
        client.running += 1
        if items:
            self._waiting[client] = items
        return item

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
        self.owner, self.queue = os.getpid(), FairQueue()
        self.changed = threading.Condition()  # its lock is that of the queue, of clients and of requests
        self.clients: set[Client] = set()
        """Those that are not closed."""
        self.threads: list[threading.Thread] = []
        self.busy: set[_Worker] = set()
        """Those that have sentences."""
        self.running = self.tokens = 0
        """Number of sentences that threads have; of tokens of the best translations so far, end symbols included."""
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
                failed = NmtError(
                    "the system starts no thread for the search: this process, or this user, has too many."
                )
                raise of_machine(failed) from None

    def close(self, wait: float = 0.0) -> bool:
        """Refuse new sentences; end the threads when all is done, or after `wait` seconds. Return whether all was done.

        The clients are closed. In a fork of the process that started the threads this does nothing.
        """
        if self.owner != os.getpid():
            return True
        with self.changed:
            self.refusing = True
            done = self.changed.wait_for(lambda: not (self.queue or self.running), wait)
            self.closed = True
            self.changed.notify_all()
        for client in self.clients.copy():
            client.close()
        if threading.current_thread() not in self.threads:  # a thread may have the lock here: it frees the models
            for thread in self.threads:
                thread.join()
        _running.discard(self)
        return done


_running: set[Pool] = set()
"""Those whose threads run. They end when Python exits: Python frees what they compute with."""


@atexit.register
def _close_all() -> None:
    for pool in list(_running):  # a copy at once: other threads change the set
        pool.close()


class _Worker:
    """One thread, and its searches: one for each object of options.

    Sentences without inputs of constraints have a search of their own where the engine has one.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.searches: dict[tuple[SearchOptions, bool], RunningSearch[_Task]] = {}

    def run(self) -> None:
        """Search until the pool is closed."""
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Take new sentences, and a step with all that the thread has; False: the pool is closed.

        A thread that waits for sentences refers to no client: else the models that nobody else has would stay.
        """
        tasks = self._take()
        if tasks is None:
            return False
        entering: dict[tuple[SearchOptions, bool], list[_Task]] = {key: [] for key in self.searches}
        for task in tasks:
            client = task.request.client
            key = (client.options, client.in_engine and not task.sentence.inputs)
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
                task = queue.take(fresh_only=fresh_only)
                if task is None:
                    break
                tasks.append(task)
                client = task.request.client
                load += share(client.models, client.options, task.sentence)
                fresh_only = fresh_only or load >= 1
            pool.running += len(tasks)
        return tasks

    def _advance(self, key: tuple[SearchOptions, bool], entering: Sequence[_Task]) -> None:
        """Add sentences to a search, remove those of clients that are gone, and take a step with it."""
        search = self.searches.get(key)
        try:
            if search is None:
                search = self.searches[key] = RunningSearch(entering[0].request.client.models, *key)
            if entering:
                search.add(entering, [task.sentence for task in entering])
            if gone := {number: task for number, task in search.tasks.items() if task.request.client.gone}:
                search.drop(gone)
                self._returned(gone.values())
            if search.tasks:
                search.models.use_threads(max(1, self.pool.cores // max(1, len(self.pool.busy))))
                self._store(search.step())
            if not search.tasks:
                del self.searches[key]
        except Exception:
            self.searches.pop(key, None)
            for task in search.tasks.values() if search else entering:
                self._search_alone(task)

    def _search_alone(self, task: _Task) -> None:
        """Search a sentence of a search that failed again, by itself."""
        client, pool = task.request.client, self.pool
        try:
            [result] = search_all(client.models, client.options, [task.sentence], lambda: client.gone or pool.closed)
        except Exception as error:
            _fail(task.request.future, PoolClosed() if isinstance(error, CancelledError) else error)
            self._returned([task])
        else:
            self._store([(task, result)])

    def _store(self, finished: Sequence[tuple[_Task, SearchResult]]) -> None:
        """Store the results of sentences, and set those of the requests that they complete."""
        complete: list[_Request] = []
        with self.pool.changed:
            for task, result in finished:
                request = task.request
                request.results[task.index] = result
                self.pool.tokens += len(result.hypotheses[0].tokens) + 1
                if len(request.results) == request.sentences:
                    complete.append(request)
        for request in complete:
            with suppress(InvalidStateError):  # nobody waits for it any more
                request.future.set_result([request.results[index] for index in range(request.sentences)])
        self._returned([task for task, _ in finished])  # last: `close` waits until their callers have the results

    def _returned(self, tasks: Collection[_Task]) -> None:
        """Take note that the thread has these sentences no more."""
        pool = self.pool
        with pool.changed:
            pool.running -= len(tasks)
            for task in tasks:
                task.request.client.running -= 1
            if not pool.running:
                pool.changed.notify_all()  # `close` may wait for this
