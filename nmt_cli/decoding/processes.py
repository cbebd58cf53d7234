"""A worker in a forked process, and the pipe to it. `pool` and `service` say when and why workers are processes.

    thread of the caller's process: WorkerProcess.serve     pipe     forked process: Worker.run over a PipeSource
                                                       ◀── Request(wait)
                                         Order or None ──▶           None with `wait`: end; without: none is ready
                                                       ◀── Report(number, results or error)

The forked process computes with one thread, so it does not need the threads of its parent, which a fork does not copy. It
closes all files of its parent but the pipe and the standard streams: else a connection that the parent closes would stay
open. It ends when its parent is gone, even in the middle of a search.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

from ..data.workers import end_with_parent
from ..device import is_host
from ..errors import NmtError
from .batches import Batch, BatchSource, SearchResult
from .sentence import Sentence
from .workers import Worker, use_threads

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program."""


class WorkerDied(NmtError):
    """A worker process died; the batches that it searched have no results."""


@dataclass(frozen=True)
class Request:
    """The process asks for a batch; see `BatchSource.get`."""

    wait: bool


@dataclass(frozen=True)
class Order:
    """A batch to search."""

    number: int
    sentences: list[Sentence]


@dataclass(frozen=True)
class Report:
    """The process has searched a batch, or failed."""

    number: int
    results: list[SearchResult]
    error: BaseException | None


def can_fork(workers: Sequence[Worker]) -> bool:
    """Return whether these workers are faster as processes, and can be forked."""
    return len(workers) > 1 and sys.platform == "linux" and all(is_host(worker.device) for worker in workers)


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Block the signals that end a program, in this thread and in the processes that it starts. These ignore the signals later by themselves."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def ignore_signals() -> None:
    """Ignore the signals that end a program, in a worker's process."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class ForkedProcess:
    """A process that runs `target` with its end of a pipe; `pipe` is the other end."""

    def __init__(self, target: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_run, args=(target, far_end, os.getpid()), daemon=True, name="nmt-worker")
        with blocked_signals(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about a fork while threads run: see above
            self.process.start()
        far_end.close()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()

    def exit_status(self) -> int | None:
        """Return the exit status of a process that died."""
        self.process.join(1)
        return self.process.exitcode

    def death(self) -> WorkerDied:
        """Return the error that names the cause of the process's death. Call this after its end of the pipe was closed."""
        code = self.exit_status()
        cause = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return WorkerDied(
            f"a worker process died ({cause}); perhaps the memory was full. Give fewer --devices, or smaller --batch-tokens."
        )


class WorkerProcess(ForkedProcess):
    """The process of a worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(partial(_search, worker))

    def serve(self, batches: BatchSource) -> None:
        """Hand batches to the process until no more will come. If it dies, its batches and all later ones fail."""
        under_way: dict[int, Batch] = {}
        try:
            while self._answer(self._receive(), batches, under_way):
                pass
        except (EOFError, OSError):
            self.fail(self.death(), batches, under_way)
        except Exception as error:  # a batch cannot be pickled
            self.fail(error, batches, under_way)

    def fail(self, error: Exception, batches: BatchSource, under_way: Mapping[int, Batch]) -> None:
        """Set the error of the batches that the process has, and of all that come."""
        for batch in under_way.values():
            batch.done.set_exception(error)
        while lost := batches.get(wait=True):
            lost.done.set_exception(error)

    def stop(self) -> None:
        """End the process's work at once."""
        self.kill()

    def _receive(self) -> object:
        """Wait for a message. Raises EOFError and OSError if the process died."""
        return self.pipe.recv()

    def _answer(self, message: object, batches: BatchSource, under_way: dict[int, Batch]) -> bool:
        """Answer a message. Return False if the answer was that no more batches will come. Raises EOFError and OSError if it died."""
        if isinstance(message, Report):
            self._report(message, under_way)
            return True
        assert isinstance(message, Request)
        order = self._next(message, batches, under_way)
        self.pipe.send(order)
        return order is not None or not message.wait

    def _report(self, message: Report, under_way: dict[int, Batch]) -> None:
        """Finish a batch."""
        done = under_way.pop(message.number).done
        done.set_exception(message.error) if message.error is not None else done.set_result(message.results)

    def _next(self, message: Request, batches: BatchSource, under_way: dict[int, Batch]) -> Order | None:
        """Return the answer to a request."""
        batch = batches.get(wait=message.wait)
        if batch is None:
            return None
        under_way[id(batch)] = batch
        return Order(id(batch), batch.sentences)


def portable(error: BaseException) -> BaseException:
    """Return the error itself; if it cannot be sent through a pipe, an NmtError with its text."""
    try:
        pickled = ForkingPickler.dumps(error)
        ForkingPickler.loads(pickled)
    except Exception:
        return NmtError(f"{type(error).__name__}: {error}")
    return error


class PipeSource:
    """The source of a worker's batches in its own process."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    @property
    def stopped(self) -> bool:
        """See `BatchSource`. Always False: the process is killed instead."""
        return False

    def get(self, *, wait: bool) -> Batch | None:
        """See `BatchSource`. Raises EOFError or OSError if the parent is gone."""
        self.pipe.send(Request(wait))
        order = self._take(self.pipe.recv())
        if not isinstance(order, Order):
            return None
        batch = Batch(order.sentences)
        batch.done.add_done_callback(partial(self._report, order.number))
        return batch

    def _take(self, answer: object) -> object:
        """Return the parent's answer; subclasses may change it."""
        return answer

    def _report(self, number: int, done: Future[list[SearchResult]]) -> None:
        error = done.exception()
        with contextlib.suppress(OSError):  # the parent is gone: `get` will raise
            self.pipe.send(Report(number, [], portable(error)) if error else Report(number, done.result(), None))


def _search(worker: Worker, pipe: Connection) -> None:
    """Run the worker in its process."""
    use_threads(1)
    worker.threads = 1
    worker.run(PipeSource(pipe))


def _run(target: Callable[[Connection], None], pipe: Connection, parent: int) -> None:
    """Run `target` in its process, until the parent sends the end or is gone."""
    ignore_signals()
    close_others(pipe.fileno())
    end_with_parent(parent)
    gc.freeze()  # a collection would write to the parent's objects, and so copy their memory
    try:
        target(pipe)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # files of the parent are not flushed or closed a second time


def close_others(kept: int) -> None:
    """Close all files of this process except the descriptor `kept` and the standard streams."""
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, most if most > 0 else 65536)
