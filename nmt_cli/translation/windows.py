"""A stream of lines in windows: lists of lines that are processed together.

    lines ──▶ windows(lines, size)                                    in the caller's thread
    lines ── reader thread ──▶ queue
        ──▶ windows(lines, size, busy)   takes the lines that were read, and waits only when not busy

The first window is small, and each next window is up to twice as large. So output begins early, and batches fill up
later. With a reader thread a window holds the lines that were read since the last window.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

PATIENCE = 0.002
"""Seconds that a window waits for another line: too short to notice, long enough for a pipe to deliver more."""


@dataclass(frozen=True)
class WindowSize:
    """Lines of the first and of the largest window; and the characters of one, which limit memory for long lines."""

    first: int
    last: int
    characters: int = sys.maxsize


@dataclass(frozen=True)
class _End:
    """The end of the input, and the error that it ended with."""

    error: BaseException | None


def windows(
    lines: Iterable[Any], size: WindowSize, busy: Callable[[], bool] | None = None
) -> Generator[list[Any] | None, None, None]:
    """Yield `lines` in windows. A line is a string, or another object whose length is counted in characters.

    With `busy` a thread reads ahead; if `busy()` is true and no line is ready, None is yielded instead of waiting. An
    error that `lines` raises is raised here, after the lines that came before it.
    """
    items = _ended(lines)
    ahead = _ReadAhead(items, size.last) if busy else None
    count, item = size.first, None
    try:
        while not isinstance(item, _End):
            if ahead and busy and busy() and ahead.queue.empty():
                yield None
            window, characters = list[Any](), size.characters
            while len(window) < count and characters > 0:
                try:
                    item = ahead.queue.get(timeout=PATIENCE if window else None) if ahead else next(items)
                except queue.Empty:
                    break
                if isinstance(item, _End):
                    break
                window.append(item)
                characters -= sum(map(len, item)) if isinstance(item, tuple) else len(item)  # a tuple holds strings
            if window:
                yield window
            count = min(2 * count, size.last)
    finally:
        if ahead:
            ahead.closed.set()
    if item.error is not None:
        raise item.error


def _ended(lines: Iterable[Any]) -> Iterator[Any]:
    """Yield the lines, then an _End."""
    try:
        yield from lines
    except GeneratorExit:
        raise
    except BaseException as error:
        yield _End(error)
    else:
        yield _End(None)


class _ReadAhead:
    """A thread that reads items in advance, at most `count` of them, until it is `closed`."""

    def __init__(self, items: Iterable[Any], count: int) -> None:
        self.queue: queue.Queue[Any] = queue.Queue(count)
        self.closed = threading.Event()
        threading.Thread(target=self._read, args=(items,), daemon=True, name="nmt-reader").start()

    def _read(self, items: Iterable[Any]) -> None:
        for item in items:
            while not self.closed.is_set():
                with contextlib.suppress(queue.Full):
                    self.queue.put(item, timeout=0.1)
                    break
            else:
                return
