"""Models that translators search with, and sessions: how the sentences of a stream reach the workers and return.

    LineTranslator ──▶ SearchableModels ─┬─ what a `Searcher` makes searches of (`searchers`)
                                         ├─ pool: threads, for everybody who uses the models (`pool`)
                                         └─ session(searcher): the way of one stream of sentences

    LineTranslator.windows ──▶ Session.submit(sentences) ─┬─ ThreadSession: the pool's threads
        Results ◀─────────────────────────────────────────┼─ ForkedSession: forks, for searches in Python on a CPU
                                                          └─ SpawnedSession: new processes, one for each of several GPUs

Why processes: threads of one process wait for each other between any two operations of Python. Plain beam search on a
CPU spends its time in the engine, so threads do it. The other searches and torch's decoder have hundreds of short
operations in a step.

The processes are those of `concurrent.futures`. Each searches a group of sentences after another; the results do not
depend on the groups. Forks share the memory of the weights and live as long as the session. New processes load the
models from their folders, and are kept for later sessions (`DeviceProcesses`); like all that `multiprocessing` starts,
they import the main module, so a script needs `if __name__ == "__main__":`.

Signals that end a program reach all processes of a terminal or a job. The caller's process alone decides what they
mean, so the processes block them. They end with the session, with the pool, or when the caller's process is gone.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.reduction import ForkingPickler
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..data.workers import end_with_parent
from ..errors import NmtError, UsageError
from ..hardware import ENDING, blocked
from ..search.search import Search, SearchOptions
from ..search.sentence import SearchResult, Sentence
from .pool import FEW_SENTENCES, Pool, Results, Session, ThreadSession
from .searchers import Searcher, search_all

if TYPE_CHECKING:
    from ..search.protocols import GrowingDecoder
    from .forced import ForcedModel
    from .torch_models import ConvertedModels

CPU_ROWS = 512
"""Largest number of hypotheses in one step on a CPU. More hypotheses are not faster and need more memory."""
GROUPS = 2
"""Groups of sentences for each process, of those that come together. With more groups, processes wait more often for
their last sentences."""


class WorkerDied(NmtError):
    """A worker process died; the sentences that it searched have no results."""


@contextmanager
def _named() -> Iterator[None]:
    """Raise WorkerDied if a process dies, or has died."""
    try:
        yield
    except BrokenProcessPool:
        raise WorkerDied(
            "a worker process died; perhaps the memory was full. Give fewer --devices, or smaller --batch-tokens."
        ) from None


class ForkedSession(ThreadSession):
    """Forks of this process search. If there are few sentences, the threads do."""

    def __init__(self, pool: Pool, searcher: Searcher, workers: int) -> None:
        super().__init__(pool, searcher)
        self.workers, self.context = workers, multiprocessing.get_context("fork")
        self.executor: ProcessPoolExecutor | None = None
        self.stopped = self.context.Event()
        _open.add(self)

    def submit(self, sentences: Sequence[Sentence]) -> Results:
        if self.executor is None:
            if len(sentences) <= FEW_SENTENCES:
                return super().submit(sentences)
            arguments = (self.searcher, self.stopped, os.getpid())
            self.executor = ProcessPoolExecutor(self.workers, self.context, _begin_fork, arguments)
        with _named():
            return _submit(self.executor, _search_in_fork, self.workers, sentences).results

    def _stop(self) -> None:
        super()._stop()
        self.stopped.set()
        if self.executor:
            self.executor.shutdown(cancel_futures=True)


class DeviceProcesses:
    """A new process for each device. `load` returns the models on a device; it can be pickled."""

    def __init__(self, load: Callable[[str], ConvertedModels], devices: Sequence[str]) -> None:
        self.load, self.devices, self._executor, self._owner = load, devices, None, 0

    _executor: ProcessPoolExecutor | None

    @property
    def executor(self) -> ProcessPoolExecutor:
        """The processes; new ones at first, in a fork, and after `close`."""
        if self._executor is None or self._owner != os.getpid():
            context = multiprocessing.get_context("spawn")
            devices = context.SimpleQueue()
            for device in self.devices:
                devices.put(device)
            arguments = (self.load, devices, os.getpid())
            self._executor, self._owner = (
                ProcessPoolExecutor(len(self.devices), context, _begin, arguments),
                os.getpid(),
            )
        return self._executor

    def close(self) -> None:
        """End the processes, after the groups that they search."""
        if self._executor and self._owner == os.getpid():
            self._executor.shutdown(cancel_futures=True)
        self._executor = None


class SpawnedSession(ThreadSession):
    """The processes of several devices search. If there are few sentences, a thread does, on the first device.

    Raises UsageError if the searcher cannot be sent to them.
    """

    def __init__(self, pool: Pool, searcher: Searcher, processes: DeviceProcesses) -> None:
        super().__init__(pool, searcher)
        self.processes, self.groups = processes, list[_Groups]()
        _open.add(self)
        try:
            self.pickled = bytes(ForkingPickler.dumps(searcher.arguments))
        except Exception as error:
            raise UsageError(
                f"the search cannot be sent to the processes of several devices: {error}. Define classes and "
                "functions of your own in a module, or use one device."
            ) from None

    def submit(self, sentences: Sequence[Sentence]) -> Results:
        if len(sentences) <= FEW_SENTENCES:
            return super().submit(sentences)
        processes = self.processes
        try:
            groups = _submit(processes.executor, _search, len(processes.devices), sentences, self.pickled)
        except BrokenProcessPool:  # a process died in an earlier session
            processes.close()
            with _named():
                groups = _submit(processes.executor, _search, len(processes.devices), sentences, self.pickled)
        self.groups.append(groups)
        return groups.results

    def _stop(self) -> None:
        super()._stop()
        for groups in self.groups:
            groups.cancel()


_open: WeakSet[Session] = WeakSet()
"""Sessions to close when Python exits, while an iterator of results is kept unread: else `concurrent.futures` would
wait for the results."""


def _close_all() -> None:
    for session in list(_open):
        session.close()


threading._register_atexit(_close_all)  # type: ignore[attr-defined]  # as `concurrent.futures` does, which registers itself before


class _Groups:
    """Sentences that processes search in groups."""

    def __init__(self, indices: Sequence[Sequence[int]], futures: Sequence[Future[list[SearchResult]]]) -> None:
        self.indices, self.futures = indices, futures

    def results(self) -> list[SearchResult]:
        """See `Results`. Raises WorkerDied."""
        found = dict[int, SearchResult]()
        with _named():
            for indices, future in zip(self.indices, self.futures, strict=True):
                found.update(zip(indices, future.result(), strict=True))
        return [found[index] for index in range(len(found))]

    def cancel(self) -> None:
        """Do not begin to search the groups that no process has."""
        for future in self.futures:
            future.cancel()


def _submit(
    executor: ProcessPoolExecutor,
    search: Callable[..., list[SearchResult]],
    processes: int,
    sentences: Sequence[Sentence],
    *arguments: Any,
) -> _Groups:
    """Search sentences in groups, in each long and short ones. Raises BrokenProcessPool."""
    order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index].tokens))
    count = max(1, min(processes * GROUPS, len(order) // FEW_SENTENCES))
    indices = [order[first::count] for first in range(count)]
    with blocked(ENDING), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # about a fork while threads run: the child uses none of them
        futures = [executor.submit(search, *arguments, [sentences[index] for index in group]) for group in indices]
    return _Groups(indices, futures)


class SearchableModels(ABC):
    """Models that a `LineTranslator` can search with, and the workers that do it."""

    def __init__(self, workers: int, cores: int) -> None:
        """`workers` search at once; `cores` are those of a CPU that they share."""
        self.workers = workers
        self.pool = Pool(workers, cores)

    on_host: bool
    """Whether they compute on a CPU."""
    has_plain_search = False
    """Whether `plain_search` may be called."""

    @property
    def rows(self) -> int:
        """Largest number of hypotheses in one step."""
        return CPU_ROWS

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """The largest number of positions that all models have."""

    @property
    @abstractmethod
    def aligning(self) -> ForcedModel:
        """The model whose attention aligns."""

    def plain_search(self, options: SearchOptions) -> Search:
        """Return a beam search of sentences without inputs of constraints, without a coverage penalty."""
        raise NotImplementedError

    @abstractmethod
    def decoders(self, beam: int) -> list[GrowingDecoder]:
        """Return a decoder of each model, without sentences."""

    @abstractmethod
    def use_threads(self, count: int) -> None:
        """Let the calling thread compute with `count` threads of a CPU from now on."""

    def computing(self) -> AbstractContextManager[object]:
        """Return the context in which the models compute."""
        return nullcontext()

    def session(self, searcher: Searcher) -> Session:
        """Return a session for one stream of sentences, to be used in a `with` statement."""
        if self.workers > 1 and searcher.in_python and sys.platform == "linux":
            return ForkedSession(self.pool, searcher, self.workers)
        return ThreadSession(self.pool, searcher)

    def close(self) -> None:
        """End the workers."""
        self.pool.close()


_searcher: Searcher
_stopped: Event
_models: ConvertedModels
_arguments = b""
_failure = ""


def _begin_fork(searcher: Searcher, stopped: Event, parent: int) -> None:
    """Begin to work, in a fork."""
    global _searcher, _stopped
    end_with_parent(parent)
    gc.freeze()  # a collection would write to the parent's objects, and so copy their memory
    _searcher, _stopped = searcher, stopped
    searcher.models.use_threads(1)


def _search_in_fork(sentences: Sequence[Sentence]) -> list[SearchResult]:
    """Search a group of sentences, in a fork."""
    return _portable(lambda: search_all(_searcher, sentences, _stopped.is_set))


def _begin(load: Callable[[str], ConvertedModels], devices: Any, parent: int) -> None:
    """Load the models, in a new process, on the next device."""
    global _models, _failure
    end_with_parent(parent)
    from ..device import start_process

    device = devices.get()
    try:
        start_process(device)
        _models = load(device)
    except Exception as error:
        _failure = f"the worker process of {device!r} cannot search: {error}"


def _search(arguments: bytes, sentences: Sequence[Sentence]) -> list[SearchResult]:
    """Search a group of sentences, in a new process, with the `Searcher.arguments` that were pickled."""
    global _searcher, _arguments
    if _failure:
        raise NmtError(_failure)
    if arguments != _arguments:
        _searcher, _arguments = Searcher(_models, *_unpickled(arguments)), arguments
        _models.use_threads(1)
    return _portable(lambda: search_all(_searcher, sentences))


def _unpickled(arguments: bytes) -> Any:
    try:
        return ForkingPickler.loads(arguments)
    except (AttributeError, ImportError) as error:
        raise NmtError(
            f"the processes of several devices cannot search: {error}. Define classes and functions of your "
            "own in a module, not in the script, or use one device."
        ) from None


def _portable(search: Callable[[], list[SearchResult]]) -> list[SearchResult]:
    """Return the results of a search.

    Raises its error; if that cannot be sent through a pipe, an NmtError with its text.
    """
    try:
        return search()
    except Exception as error:
        try:
            ForkingPickler.loads(ForkingPickler.dumps(error))
        except Exception:
            raise NmtError(f"{type(error).__name__}: {error}") from None
        raise
