"""Runs a job on a stream of items, in several processes.

The workers are spawned, not forked, so they share no memory with this process. Only a few items are in flight, so
memory does not grow with the stream. A terminal sends Ctrl-C and SIGHUP to all processes; the workers block these
signals, and this process ends its workers when it fails. `end_with_parent` ends a worker whose parent is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from ..device.signals import blocked
from ..errors import DataError, of_machine

FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP)
INTERVAL = 0.5
"""Seconds between two checks whether the parent is gone."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def end_with_parent(parent: int, end: Callable[[], object] | None = None) -> None:
    """End this process, or call `end` in a thread of its own, as soon as `parent`, the number of its parent, is gone,
    even if it was killed.

    Not by a signal of Linux (PR_SET_PDEATHSIG): it comes when the thread ends that started this process.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(INTERVAL)
        end() if end else os._exit(1)

    threading.Thread(target=watch, name="nmt-parent", daemon=True).start()


@contextmanager
def pool(
    job: Callable[[ItemT], ResultT], workers: int
) -> Iterator[Callable[[Iterable[ItemT]], Iterator[tuple[ItemT, ResultT]]]]:
    """Provide a function that runs `job` over items and yields (item, result) in order.

    `job` is pickled once per worker.
    """
    if workers <= 1:
        yield lambda items: ((item, job(item)) for item in items)
        return
    earlier = set(multiprocessing.active_children())
    with blocked(FROM_TERMINAL):  # also in the helper process that multiprocessing starts with the pool
        executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (job, os.getpid()))
    try:
        yield lambda items: _ordered(executor, items, 3 * workers)
    except BrokenProcessPool:
        died = DataError("a worker process has died, perhaps for want of memory: try fewer with --workers N.")
        raise of_machine(died) from None
    except BaseException:
        for child in set(multiprocessing.active_children()) - earlier:
            child.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _ordered(executor: ProcessPoolExecutor, items: Iterable[ItemT], ahead: int) -> Iterator[tuple[ItemT, Any]]:
    pending: deque[tuple[ItemT, Future[Any]]] = deque()
    for item in items:
        pending.append((item, _submit(executor, item)))
        if len(pending) >= ahead:
            first, future = pending.popleft()
            yield first, future.result()
    for first, future in pending:
        yield first, future.result()


def _submit(executor: ProcessPoolExecutor, item: Any) -> Future[Any]:
    with blocked(FROM_TERMINAL):  # in the workers, which are started here on demand
        return executor.submit(_work, item)


_job: Callable[[Any], Any]


def _start(job: Callable[[Any], Any], parent: int) -> None:
    from tqdm import tqdm

    global _job
    _job = job
    tqdm.set_lock(threading.RLock())  # its default is a semaphore, which a killed worker would leave behind
    end_with_parent(parent)


def _work(item: Any) -> Any:
    return _job(item)
