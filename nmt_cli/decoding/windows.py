"""A stream of lines in windows: what is there, up to a size, without keeping anyone waiting.

    lines ──thread──▶ queue ──▶ windows(lines, busy) ──▶ windows of lines; None: none is there, and there is work to do

A window begins with the first line that is there and takes what follows at once; the first is small and each next one
larger, so that output begins early and batches fill up later.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

FIRST_WINDOW, LAST_WINDOW = 64, 4096
"""Lines of the first window, and of the largest; each may be twice as large as the one before."""
WINDOW_CHARACTERS = 1 << 21
"""And a window's characters, so that memory stays bounded whatever the lines hold."""
PATIENCE = 0.002
"""Seconds that a window waits for another line: unnoticed by a person, long enough for a pipe to go on."""

_END = object()


def windows(lines: Iterable[Any], busy: Callable[[], bool]) -> Generator[list[Any] | None, None, None]:
    """`lines` in windows, read ahead of by a thread. Where `busy()` and nothing is there, None instead of waiting.

    What `lines` raises is raised here, after the lines that came before it.
    """
    waiting: queue.Queue[Any] = queue.Queue(LAST_WINDOW)
    closed = threading.Event()

    def put(item: Any) -> None:
        while not closed.is_set():
            with contextlib.suppress(queue.Full):
                return waiting.put(item, timeout=0.1)

    def read() -> None:
        try:
            for line in lines:
                put((line,))
                if closed.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(error)

    threading.Thread(target=read, daemon=True, name="nmt-reader").start()
    size, last = FIRST_WINDOW, None
    try:
        while last is None:
            if busy() and waiting.empty():
                yield None
            window, last = _one_window(waiting, size)
            if window:
                yield window
            size = min(2 * size, LAST_WINDOW)
    finally:
        closed.set()
    if isinstance(last, BaseException):
        raise last


def _one_window(waiting: queue.Queue[Any], size: int) -> tuple[list[Any], Any]:
    """The next lines, and what ended the input (None: nothing has)."""
    window: list[Any] = []
    characters = 0
    while len(window) < size and characters < WINDOW_CHARACTERS:
        try:
            item = waiting.get(timeout=PATIENCE) if window else waiting.get()
        except queue.Empty:
            break
        if not isinstance(item, tuple):
            return window, item
        window.append(item[0])
        characters += sum(map(len, item[0])) if isinstance(item[0], tuple) else len(item[0])
    return window, None
