"""Clients of a pool whose sentences processes search: forks on a CPU, and new processes for several GPUs.

    submit(sentences) ──▶ few: the threads of the pool
                      ──▶ many, in groups ─┬─ Forks: forks of this process, for searches in Python on a CPU
        Future[list[SearchResult]] ◀───────┴─ Devices: new processes, one for each of several devices

Why processes: threads of one process wait for each other between any two operations of Python. Plain beam search on a
CPU spends its time in the engine, so threads do it. The other searches and torch's decoder have hundreds of short
operations in a step.

The processes are those of `concurrent.futures`. Each searches a group of sentences after another; the results do not
depend on the groups. Forks share the memory of the weights and live as long as the client. New processes load the
models from their folders, and are kept for later clients (`DeviceProcesses`); like all that `multiprocessing` starts,
they import the main module, so a script needs `if __name__ == "__main__":`.

Signals that end a program reach all processes of a terminal or a job. The caller's process alone decides what they
mean, so the processes block them. They end with the client, with the models, or when the caller's process is gone.

A process may be killed while it has a lock, which then stays locked. `concurrent.futures` knows this of its own locks:
if a process dies, it terminates the others, here by SIGKILL. The processes share no other locks.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cached_property, partial
from mmap import mmap
from multiprocessing.context import ForkContext, ForkProcess, SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any
from weakref import WeakSet

from ..data.workers import end_with_parent
from ..device.signals import ENDING, blocked
from ..errors import RETRY, NmtError, UsageError
from ..search.protocols import SearchModels
from ..search.running import search_all
from ..search.search import SearchOptions
from ..search.sentence import SearchResult, Sentence
from .pool import FEW_SENTENCES, Client, Pool

GROUPS = 2
"""Groups of sentences for each process, of those that come together. With more groups, processes wait more often for
their last sentences."""


class WorkerDied(NmtError):
    """A worker process died; the sentences that it searched have no results."""

    exit_code = RETRY

    def __init__(self) -> None:
        super().__init__(
            "a worker process died; perhaps the memory was full. Give fewer --devices, or smaller --batch-tokens."
        )


class _Forking(ForkContext):
    class Process(ForkProcess):
        terminate = ForkProcess.kill


class _Spawning(SpawnContext):
    class Process(SpawnProcess):
        terminate = SpawnProcess.kill


class _Executor(ProcessPoolExecutor):
    """Several threads may end it at once: each would close the same descriptors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ending = threading.RLock()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self.ending:
            super().shutdown(wait, cancel_futures=cancel_futures)


class _Processes(Client, ABC):
    """Processes search; if there are few sentences, the threads do."""

    begun = False
    """Whether processes search few sentences too."""
    died = False
    """Whether one of them has died."""
    pickled = b""
    """The options, for processes that do not have them."""

    def __init__(self, pool: Pool, models: SearchModels, options: SearchOptions) -> None:
        super().__init__(pool, models, options)
        self.groups: set[Future[list[SearchResult]]] = set()
        """Those that are not done."""
        self.processes = pool.workers
        _open.add(self)

    @property
    @abstractmethod
    def executor(self) -> ProcessPoolExecutor: ...

    def submit(self, sentences: Sequence[Sentence]) -> Future[list[SearchResult]]:
        """See `Client`. Raises WorkerDied, and so does the future."""
        if len(sentences) <= FEW_SENTENCES and not self.begun:
            return super().submit(sentences)
        future = self.new_future()
        try:
            self.search(sentences, future)
        except BrokenProcessPool:
            raise WorkerDied from None
        except RuntimeError:
            if not self.gone:  # else another thread has closed it, and the future says so
                raise
        return future

    def search(self, sentences: Sequence[Sentence], joined: Future[list[SearchResult]]) -> None:
        """Let processes search sentences in groups, in each long and short ones, and set the future of all results.

        Raises BrokenProcessPool.
        """
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index].tokens))
        count = max(1, min(self.processes * GROUPS, len(order) // FEW_SENTENCES))
        groups = [order[first::count] for first in range(count)]
        executor = self.executor  # made here: a process of `multiprocessing` that starts with it would end the block
        with blocked(ENDING), warnings.catch_warnings():
            # it is about a fork while threads run: the child uses none of them
            warnings.simplefilter("ignore", DeprecationWarning)
            given = [[sentences[index] for index in group] for group in groups]
            futures = [executor.submit(_search, self.pickled, several) for several in given]
        results: dict[int, SearchResult] = {}

        def store(group: Sequence[int], future: Future[list[SearchResult]]) -> None:
            """Store the results of a group, and set those of all sentences if it is the last. One thread calls this."""
            self.groups.discard(future)
            with suppress(CancelledError, InvalidStateError):  # another group has failed, or nobody waits any more
                try:
                    results.update(zip(group, future.result(), strict=True))
                    if len(results) == len(sentences):
                        joined.set_result([results[index] for index in range(len(results))])
                except BrokenProcessPool:
                    self.died = True
                    joined.set_exception(WorkerDied())
                except BaseException as error:  # whatever it is: the thread that comes here must not end
                    joined.set_exception(error)

        self.groups.update(futures)
        for group, future in zip(groups, futures, strict=True):
            future.add_done_callback(partial(store, group))


class Forks(_Processes):
    """Forks of this process search, from the first time on that there are many sentences."""

    def __init__(self, pool: Pool, models: SearchModels, options: SearchOptions) -> None:
        super().__init__(pool, models, options)
        self.stopped = mmap(-1, 1)  # shared with the forks

    @cached_property
    def executor(self) -> ProcessPoolExecutor:
        """The forks, which begin here."""
        arguments = (self.models, self.options, self.stopped, os.getpid())
        executor = _Executor(self.processes, _Forking(), _begin_fork, arguments)
        self.begun = True
        return executor

    def close(self) -> None:
        if self.owner == os.getpid():
            self.gone, self.stopped[0] = True, 1
            if self.begun:
                self.executor.shutdown(cancel_futures=True)
        super().close()


class DeviceProcesses:
    """A new process for each device. `load` returns the models on a device; it can be pickled."""

    def __init__(self, load: Callable[[str], SearchModels], devices: Sequence[str]) -> None:
        self.load, self.devices, self.owner = load, devices, 0
        self._executor: ProcessPoolExecutor | None = None

    @property
    def executor(self) -> ProcessPoolExecutor:
        """The processes; new ones at first, in a fork, and after `close`."""
        if self._executor is None or self.owner != os.getpid():
            context = _Spawning()
            devices = context.SimpleQueue()
            for device in self.devices:
                devices.put(device)
            arguments = (self.load, devices, os.getpid())
            self._executor = _Executor(len(self.devices), context, _begin_on_device, arguments)
            self.owner = os.getpid()
        return self._executor

    def close(self) -> None:
        """End the processes, after the groups that they search."""
        executor, self._executor = self._executor, None
        if executor and self.owner == os.getpid():
            executor.shutdown(cancel_futures=True)


class Devices(_Processes):
    """The processes of several devices search. If there are few sentences, a thread does, on the first device.

    Raises UsageError if the options cannot be sent to them.
    """

    def __init__(self, pool: Pool, models: SearchModels, options: SearchOptions, of_devices: DeviceProcesses) -> None:
        super().__init__(pool, models, options)
        self.of_devices, self.processes = of_devices, len(of_devices.devices)
        try:
            self.pickled = bytes(ForkingPickler.dumps(options))
        except Exception as error:
            raise UsageError(
                f"the search cannot be sent to the processes of several devices: {error}. Define classes and "
                "functions of your own in a module, or use one device."
            ) from None

    @property
    def executor(self) -> ProcessPoolExecutor:
        return self.of_devices.executor

    def search(self, sentences: Sequence[Sentence], joined: Future[list[SearchResult]]) -> None:
        try:
            super().search(sentences, joined)
        except BrokenProcessPool:  # a process died before: new ones
            self.of_devices.close()
            super().search(sentences, joined)

    def close(self) -> None:
        super().close()
        if (
            self.owner == os.getpid() and not self.died
        ):  # else the executor fails its groups now, and must find them all
            for group in self.groups.copy():
                group.cancel()


_open: WeakSet[Client] = WeakSet()
"""Clients to close when Python exits, while an iterator of results is kept unread: else `concurrent.futures` would wait
for the results."""


def _close_clients() -> None:
    for client in list(_open):
        client.close()


# as `concurrent.futures` does, which registers itself before
threading._register_atexit(_close_clients)  # type: ignore[attr-defined]


_search_all: Callable[[Sequence[Sentence]], list[SearchResult]]
_models: SearchModels
_pickled = b""
"""The options of a client of devices, as they came."""
_failure = ""
"""Why the process cannot search."""


def _begin_fork(models: SearchModels, options: SearchOptions, stopped: mmap, parent: int) -> None:
    """Begin to work, in a fork."""
    global _search_all
    end_with_parent(parent)
    # what the caller does at its end is not for its forks; locks of its other threads may be locked here for ever
    threading._register_atexit(os._exit, 0)  # type: ignore[attr-defined]
    gc.freeze()  # a collection would write to the parent's objects, and so copy their memory
    _search_all = partial(search_all, models, options, stopped=lambda: bool(stopped[0]))
    models.use_threads(1)


def _begin_on_device(load: Callable[[str], SearchModels], devices: Any, parent: int) -> None:
    """Load the models, in a new process, on the next device."""
    global _models, _failure
    end_with_parent(parent)
    from ..device.torch_device import start_process

    device = devices.get()
    try:
        start_process(device)
        _models = load(device)
        _models.use_threads(1)
    except Exception as error:
        _failure = f"the worker process of {device!r} cannot search: {error}"


def _search(pickled: bytes, sentences: Sequence[Sentence]) -> list[SearchResult]:
    """Search a group of sentences, in a process; `pickled`: the options, for one of devices.

    Raises the search's error; if that cannot be sent through a pipe, an NmtError with its text.
    """
    global _search_all, _pickled
    if _failure:
        raise NmtError(_failure)
    if pickled != _pickled:
        try:
            _search_all, _pickled = partial(search_all, _models, ForkingPickler.loads(pickled)), pickled
        except (AttributeError, ImportError) as error:
            raise NmtError(
                f"the processes of several devices cannot search: {error}. Define classes and functions of your "
                "own in a module, not in the script, or use one device."
            ) from None
    try:
        return _search_all(sentences)
    except Exception as error:
        try:
            ForkingPickler.loads(ForkingPickler.dumps(error))
        except Exception:
            raise NmtError(f"{type(error).__name__}: {error}") from None
        raise
