"""The pool of workers: it searches batches while lines are read and results are written.

    Translator ── submit(batches) ──▶ BatchQueue ──▶ a thread per worker ─┬─ one GPU: Worker.run in this thread
        ◀── results(), in any order                                       ├─ several GPUs: SpawnedProcess.serve ── pipe ── a new process: Worker.run
                                                                          └─ CPU: WorkerProcess.serve ── pipe ── a forked process: Worker.run

What runs where
    caller's thread   reads windows of lines, makes batches, submits them, waits for results.
    reader thread     reads ahead of the caller (`windows`).
    worker threads    one per worker, started when several batches are submitted. A single worker runs in the thread
                      itself. With several workers, each thread sends batches to a process that searches: threads of
                      one process would wait for each other between any two operations. On a CPU the process is
                      forked: a fork starts at once and shares the memory of the weights. On GPUs it is a new process,
                      which is kept for later streams (`spawned`). On systems without such processes, as Windows, the
                      threads search.
    A single batch is searched in the caller's thread, when its results are asked for: all of a CPU's cores then work on
    it. No thread or process is started for it.

What a batch is
    A `Batch` holds sentences: sources, longest outputs and inputs of constraints. Its future `done` holds the results, or
    the error that the search raised. A process gets a copy of the sentences and sends back results or the error. Each batch
    goes to the first worker that asks for one; the results do not depend on the worker.

How a session stops
    `Session.close` stops the queue, kills forked processes, stops the others and joins the threads. A search ends after
    its step, in the middle of a batch. Close is called when the last result was read, when the caller closes the iterator or
    raises, and when Python exits while the iterator is kept.

Threads and forks of the caller
    Several threads may translate with one translator: each has a session of its own, and single batches take turns. After a
    fork by the caller the child may translate too. It never touches the parent's workers.

How a process ends
    Signals that end a program (SIGINT, SIGTERM, SIGHUP) reach all processes of a terminal or a job. The caller's process
    alone decides what they mean, because training saves first. So worker processes ignore them. They are killed by
    `Session.close`, or end when the caller's process is gone and the pipe breaks. When a worker process dies for another
    reason, every batch that it had, and every batch that its thread would take, fails with an error that names the cause.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from .batches import Batch, BatchQueue, SearchResult, token_batches
from .processes import WorkerProcess, can_fork
from .workers import Worker

if TYPE_CHECKING:
    from .spawned import ProcessPool

FEW_SENTENCES = 16
"""Up to this number of sentences, one worker with all cores of a CPU is faster than several workers with one core each."""


class Pool:
    """Workers that search for one translator."""

    def __init__(self, workers: Sequence[Worker], processes: ProcessPool | None = None) -> None:
        """`processes` holds the new processes that search instead of `workers`, if there are any (`spawned`). Raises UsageError, see `ProcessPool.session`."""
        self.workers, self.processes = workers, processes
        self.search = processes.session(workers[0]) if processes is not None else b""
        self._local, self._owner = workers[0].copy(), os.getpid()

    @property
    def local(self) -> Worker:
        """The worker of the caller's threads. A fork gets a new worker: a thread that does not exist in the fork may have held the lock of the old one."""
        if self._owner != os.getpid():
            self._local, self._owner = self.workers[0].copy(), os.getpid()
        return self._local

    def session(self) -> Session:
        """Return a session, to be used in a `with` statement."""
        return Session(self)

    def divide(self, lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
        """Return batches of indices of sources with these lengths: similar lengths together, long ones first. More than FEW_SENTENCES are divided among the workers."""
        share = len(lengths) if len(lengths) <= FEW_SENTENCES else -(-len(lengths) // len(self.workers))
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        return token_batches(order, lengths, batch_tokens, min(self.workers[0].sentences, share))


@dataclass(frozen=True)
class Submission:
    """Batches that are searched."""

    batches: Sequence[Batch]
    local: Worker | None
    """The worker that searches the batches when their results are asked for; None: the session's workers search them now."""

    def results(self) -> list[list[SearchResult]]:
        """Wait for the results of each batch and return them. Raises the error of a worker."""
        if self.local is not None:
            for batch in self.batches:
                self.local.search_one(batch)
        return [batch.done.result() for batch in self.batches]


class Session:
    """The threads and processes that search the batches of one stream of lines."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.queue, self.owner = pool, BatchQueue(), os.getpid()
        self.threads: list[threading.Thread] = []
        self.processes: list[WorkerProcess] = []

    def __enter__(self) -> Session:
        atexit.register(self.close)  # Python joins threads when it exits: the iterator may be kept, half read
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        atexit.unregister(self.close)

    def submit(self, batches: Sequence[Batch]) -> Submission:
        """Submit these batches to the workers."""
        if len(batches) <= 1:
            return Submission(batches, self.pool.local)
        if not self.threads:
            self._start()
        for batch in batches:
            self.queue.put(batch)
        return Submission(batches, None)

    def close(self) -> None:
        """Stop all work and wait for the threads. In a fork of the caller's process this does nothing."""
        if os.getpid() != self.owner:
            return
        self.queue.stop()
        for process in self.processes:
            process.stop()
        for thread in self.threads:
            thread.join()
        if self.pool.processes is not None:
            self.pool.processes.give_back(self.processes)
            self.processes.clear()

    def _start(self) -> None:
        """Start a thread for each worker, and its process where there is one."""
        workers = self.pool.workers
        targets: list[Callable[[], None]] = [partial(self._run, worker.copy()) for worker in workers]
        if self.pool.processes is not None:
            self.processes += self.pool.processes.take(self.pool.search)
        elif can_fork(workers):
            for worker in workers:
                self.processes.append(WorkerProcess(worker))
        if self.processes:
            targets = [partial(process.serve, self.queue) for process in self.processes]
        self.threads = [threading.Thread(target=target, name="nmt-worker", daemon=True) for target in targets]
        for thread in self.threads:
            thread.start()

    def _run(self, worker: Worker) -> None:
        if len(self.pool.workers) > 1:
            worker.threads = 1
        worker.run(self.queue)
