"""A service that translates for many callers at once. Its workers live as long as the service.

    submit(lines, options) ──▶ Translator.prepare ──▶ FairQueue ──▶ the worker with the fewest hypotheses ──▶ ServiceWorker
        Future ◀── Translator.results, when the last sentence has come ◀── receiver thread of the worker ◀── results, in any order

Sentences of all callers are searched together. No sentence waits until a batch is full: a worker searches up to
`capacity` hypotheses, and a new sentence joins the search after the steps that are under way, which take at most about
AT_MOST seconds. A request may exceed the capacity while none of its sentences is searched, so that a single sentence does not
wait for a long document (`fair_queue`). The translations are those of `Translator.translate`. They do not depend on the other
sentences in the search.

On a CPU under Linux each worker is a process (`service_worker` says how many cores it uses), elsewhere a thread. Of several
GPUs only the first is used. A process is forked from a new thread: otherwise OpenMP cannot start threads in the child. A worker
process that dies is replaced, and its sentences are searched again. A request fails with `WorkerDied` if two processes died
while they had one of its sentences.

A future that is cancelled takes its sentences out of the queue and out of the searches.
"""

from __future__ import annotations

import atexit
import os
import statistics
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..device import is_host
from ..errors import NmtError
from .batches import Batch, SearchResult
from .fair_queue import FairQueue
from .processes import ForkedProcess, WorkerDied
from .search_state import AT_ONCE
from .sentence import Sentence
from .service_worker import Cores, Drop, Message, NumberedResults, ServiceWorker, messages, serve_pipe
from .translator import Line, Prepared, Result, Translator
from .workers import Worker

Options = Hashable
"""The options that select a translator of a service. They can be pickled."""
KEPT = 16
"""Largest number of translators that are kept, one per set of options."""
ROWS = 256
"""Hypotheses that a worker on a CPU searches at once. More hypotheses are hardly faster, and single sentences then take longer."""
AT_MOST = 0.05
"""Seconds that the steps in one call of a search take at most, if it is more than one step. New sentences wait for the end of the call, and finished
sentences too if there are many. With fewer calls, more of the processor's time goes to the steps."""
ATTEMPTS = 2
"""How often a sentence is searched at most, if worker processes die."""
RETRY = 1.0
"""Seconds between two attempts to fork a process."""
GAIN = 0.9
"""A single sentence is searched with all cores if the search then takes less than this share of the time with one core."""


class ServiceClosed(NmtError):
    """The service was closed before the translation was done."""


@dataclass(eq=False)
class _Request:
    """The lines of one call, and the search results of their sentences so far."""

    options: Options
    translator: Translator
    prepared: Prepared
    finish: Callable[[list[Result]], Any]
    future: Future[Any]
    results: dict[int, SearchResult] = field(default_factory=dict)
    running: int = 0
    """Number of sentences that workers have."""


@dataclass(eq=False)
class _Task:
    """A sentence of a request."""

    request: _Request
    index: int
    attempts: int = 0

    @property
    def sentence(self) -> Sentence:
        return self.request.prepared.sentences[self.index]

    @property
    def hypotheses(self) -> int:
        return self.request.translator.options.beam


@dataclass
class Counts:
    """The work that a service has done since it began."""

    sentences: int = 0
    tokens: int = 0
    """Tokens of the best translations, end symbols included."""
    restarts: int = 0
    """Worker processes that died and were replaced."""


class Service:
    """Translates the lines that are submitted, until it is closed. Several threads may use it.

    `build` returns the translator for a set of options. It must not need a lock, because worker processes call it too. The
    translator for `options` is built at once. Raises the errors of `build`.
    """

    def __init__(self, build: Callable[[Options], Translator], options: Options) -> None:
        self.counts, self.owner = Counts(), os.getpid()
        self._build, self._translators, self._building = build, OrderedDict[Options, Translator](), threading.Lock()
        first = self.translator(options)
        workers = (
            first.pool.workers if first.pool.processes is None else first.pool.workers[:1]
        )  # with a pool all workers are on the first device
        self.capacity = ROWS if is_host(workers[0].device) else workers[0].sentences * first.options.beam
        self._lock, self._idle = threading.Lock(), threading.Condition()
        self._queue: FairQueue[_Request, _Task] = FairQueue()
        self._numbers, self._pending, self._closed = 0, 0, False
        on_cpu = all(is_host(worker.device) for worker in workers)
        cores = Cores(len(workers), _cores_for_one(workers[0], len(workers))) if on_cpu else None
        forks = on_cpu and sys.platform == "linux"
        kind = _Process if forks else _Thread
        self._workers: list[_Remote] = [kind(self, index, cores) for index in range(len(workers))]
        for remote in self._workers:
            remote.start()
        atexit.register(
            self.close
        )  # Python waits for its child processes when it exits, and workers ignore the signal that it sends them

    @property
    def waiting(self) -> int:
        """Number of sentences that no worker has yet."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Number of sentences that workers have."""
        return sum(len(remote.tasks) for remote in self._workers)

    def translator(self, options: Options) -> Translator:
        """Return the translator for these options; build it if there is none."""
        with self._building:
            if options not in self._translators:
                self._translators[options] = self._build(options)
                if len(self._translators) > KEPT:
                    self._translators.popitem(last=False)
            self._translators.move_to_end(options)
            return self._translators[options]

    def submit(
        self, lines: Sequence[Line], options: Options, finish: Callable[[list[Result]], Any] = lambda results: results
    ) -> Future[Any]:
        """Return a future of `finish(results)`, with a result for each line. The lines are encoded before this returns.

        The future raises the error of the search or of `finish`, `WorkerDied` or `ServiceClosed`. `submit` itself raises the
        errors of `build`, and ServiceClosed after `close`.
        """
        translator = self.translator(options)
        request = _Request(options, translator, translator.prepare(lines), finish, Future())
        if not request.prepared.sentences:
            _complete(request)
            return request.future
        lengths = [len(sentence.tokens) for sentence in request.prepared.sentences]
        tasks = [_Task(request, index) for index in sorted(range(len(lengths)), key=lambda i: -lengths[i])]
        with self._lock:
            if self._closed:
                raise ServiceClosed("the model is no longer served.")
            self._pending += 1
            request.future.add_done_callback(partial(self._forget, request))
            self._queue.put(request, tasks)
            self._dispatch()
        return request.future

    def close(self, wait: float = 0.0) -> bool:
        """Stop when all requests are done, or after `wait` seconds. Return whether all were done; the others fail with `ServiceClosed`."""
        if os.getpid() != self.owner:
            return True
        atexit.unregister(self.close)
        with self._idle:
            done = self._idle.wait_for(lambda: not self._pending, wait)
        with self._lock:
            self._closed = True
            unfinished = {
                *self._queue.clear(),
                *(task.request for remote in self._workers for task in remote.tasks.values()),
            }
            for remote in self._workers:
                remote.tasks.clear()
        for remote in self._workers:
            remote.stop()
        for request in unfinished:
            _fail(request, ServiceClosed("the service was closed before the translation was done."))
        return done

    def _dispatch(self) -> None:
        """Hand sentences to workers that have capacity. The lock is held."""
        chosen: dict[int, list[tuple[Options, int, Sentence]]] = {}
        while len(self._queue):
            remote = min(self._workers, key=lambda one: one.hypotheses)
            full = remote.hypotheses >= self.capacity
            following = None if remote.hypotheses >= 2 * self.capacity else self._queue.take(fresh_only=full)
            if following is None:
                break
            request, task = following
            self._numbers += 1
            request.running += 1
            task.attempts += 1
            remote.tasks[self._numbers] = task
            remote.hypotheses += task.hypotheses
            chosen.setdefault(remote.index, []).append((request.options, self._numbers, task.sentence))
        for index, jobs in chosen.items():
            for message in messages(jobs):
                self._workers[index].send(message)

    def receive(self, remote: _Remote, results: NumberedResults) -> None:
        """Take the results of a worker."""
        complete: list[_Request] = []
        failed: list[tuple[_Request, BaseException]] = []
        with self._lock:
            for number, result in results:
                task = self._returned(remote, number)
                if task is None:
                    continue
                if isinstance(result, BaseException):
                    failed.append((task.request, result))
                    continue
                task.request.results[task.index] = result
                self.counts.sentences += 1
                self.counts.tokens += len(result.hypotheses[0].tokens) + 1
                if len(task.request.results) == len(task.request.prepared.sentences):
                    complete.append(task.request)
            self._dispatch()
        for request in complete:
            _complete(request)
        for request, error in failed:
            _fail(request, error)

    def died(self, remote: _Remote, error: WorkerDied) -> None:
        """Put the sentences of a dead worker back into the queue. Its replacement or other workers search them again."""
        failed: list[_Request] = []
        with self._lock:
            self.counts.restarts += 1
            for number in list(remote.tasks):
                task = self._returned(remote, number)
                if task is None:
                    continue
                if task.attempts >= ATTEMPTS:
                    failed.append(task.request)
                else:
                    self._queue.put(task.request, [task], first=True)
            self._dispatch()
        for request in failed:
            _fail(request, error)

    def _returned(self, remote: _Remote, number: int) -> _Task | None:
        """Remove a task from its worker and return the task; None: it was dropped."""
        task = remote.tasks.pop(number, None)
        if task is None:
            return None
        remote.hypotheses -= task.hypotheses
        task.request.running -= 1
        if not task.request.running:
            self._queue.paused(task.request)
        return task

    def _forget(self, request: _Request, future: Future[Any]) -> None:
        """Count a request as done. If its future was cancelled or failed, remove its sentences from the queue and the workers."""
        if future.cancelled() or future.exception() is not None:
            with self._lock:
                self._queue.drop(request)
                for remote in self._workers:
                    numbers = [number for number, task in remote.tasks.items() if task.request is request]
                    for number in numbers:
                        self._returned(remote, number)
                    if numbers and not self._closed:
                        remote.send(Drop(numbers))
                if not self._closed:
                    self._dispatch()
        with self._idle:
            self._pending -= 1
            self._idle.notify_all()


def _complete(request: _Request) -> None:
    """Set the results of a request's future."""
    if not request.future.set_running_or_notify_cancel():
        return
    try:
        results = [request.results[index] for index in range(len(request.prepared.sentences))]
        request.future.set_result(request.finish(request.translator.results(request.prepared, results)))
    except Exception as error:
        request.future.set_exception(error)


def _fail(request: _Request, error: BaseException) -> None:
    """Set the error of a request's future, unless the future is done."""
    with suppress(Exception):  # the future has failed for another sentence, or was cancelled
        request.future.set_exception(error)


class _Remote:
    """A worker as the service sees it."""

    def __init__(self, service: Service, index: int, cores: Cores | None) -> None:
        self.service, self.index, self.cores = service, index, cores
        self.tasks: dict[int, _Task] = {}
        self.hypotheses = 0

    def start(self) -> None:
        """Start the worker."""
        raise NotImplementedError

    def send(self, message: Message) -> None:
        """Send the worker a message. Messages to a dead worker are lost."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the worker at its next step, or at once."""
        raise NotImplementedError

    def _worker(self) -> ServiceWorker:
        """Return the object that searches. It keeps its own `Worker` for each set of options."""
        built: OrderedDict[Options, Worker] = OrderedDict()
        build = self.service._build

        def worker_of(options: Options) -> Worker:
            """Return the worker for these options; build it if there is none."""
            if options not in built:
                worker = build(options).pool.workers[self.index]
                worker.options = replace(worker.options, compact_below=AT_ONCE, seconds=AT_MOST)
                built[options] = worker
                if len(built) > KEPT:
                    built.popitem(last=False)
            built.move_to_end(options)
            return built[options]

        return ServiceWorker(self.index, worker_of, self.cores)


class _Thread(_Remote):
    """A worker in a thread of this process."""

    def start(self) -> None:
        """See `_Remote`."""
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        run = partial(self._worker().run, self._inbox, partial(self.service.receive, self))
        self._thread = threading.Thread(target=run, daemon=True, name="nmt-worker")
        self._thread.start()

    def send(self, message: Message) -> None:
        """See `_Remote`."""
        self._inbox.put(message)

    def stop(self) -> None:
        """See `_Remote`."""
        self.send(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()


class _Process(_Remote):
    """A worker in a process, and the thread that receives its results."""

    def start(self) -> None:
        """See `_Remote`."""
        self._stopped = False
        self._fork()
        self._receiver = threading.Thread(target=self._receive, daemon=True, name="nmt-receiver")
        self._receiver.start()

    def _fork(self) -> None:
        """Fork the process, from a new thread that OpenMP does not know."""
        worker, started = self._worker(), Future[ForkedProcess]()

        def fork() -> None:
            try:
                started.set_result(ForkedProcess(partial(serve_pipe, worker)))
            except BaseException as error:
                started.set_exception(error)

        threading.Thread(target=fork, name="nmt-fork").start()
        self._process = started.result()
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """See `_Remote`."""
        with suppress(OSError), self._sending:  # the process has died: `_receive` will see it
            self._process.pipe.send(message)

    def stop(self) -> None:
        """See `_Remote`."""
        self._stopped = True
        self._process.kill()  # `_replace` kills a process that is forked meanwhile
        if threading.current_thread() is not self._receiver:
            self._receiver.join()

    def _receive(self) -> None:
        """Pass results on as long as the service lives. Replace a process that died."""
        while True:
            began = time.monotonic()
            with suppress(EOFError, OSError):
                while True:
                    self.service.receive(self, self._process.pipe.recv())
            if self._stopped:
                self._process.pipe.close()
                return
            error = self._process.death()
            if self.cores:
                self.cores.set_busy(self.index, False)
            time.sleep(
                max(0.0, 0.5 - (time.monotonic() - began))
            )  # a process that dies at once is replaced only after a pause
            self._replace()
            self.service.died(self, error)

    def _replace(self) -> None:
        """Fork another process, as soon as the system lets us."""
        while not self._stopped:
            try:
                self._fork()
            except OSError:  # too little memory, too many processes
                time.sleep(RETRY)
                continue
            if self._stopped:
                self._process.kill()
            return


def _cores_for_one(worker: Worker, cores: int) -> int:
    """Return how many cores search a single sentence fastest: one or all. The times are measured: with small models or on busy machines, more cores are slower."""
    if cores == 1:
        return 1
    one, seconds = worker.copy(), {1: list[float](), cores: list[float]()}
    for _ in range(3):
        for count in seconds:
            one.threads = count
            began = time.perf_counter()
            one.search_one(Batch([Sentence(range(5, 17), 8)]))
            seconds[count].append(time.perf_counter() - began)
    return cores if statistics.median(seconds[cores]) < GAIN * statistics.median(seconds[1]) else 1
