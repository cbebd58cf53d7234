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
    """Lines of the first window and of the largest window; and the characters of a window, which limit the memory for
    long lines.
    """

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
    source = _Direct(lines) if busy is None else _ReadAhead(lines, size.last)
    count, end = size.first, None
    try:
        while end is None:
            if busy is not None and busy() and source.empty():
                yield None
            window, end = _one_window(source, count, size.characters)
            if window:
                yield window
            count = min(2 * count, size.last)
    finally:
        source.close()
    if end.error is not None:
        raise end.error


def _one_window(source: _Direct | _ReadAhead, count: int, characters: int) -> tuple[list[Any], _End | None]:
    """Return the next lines, and the `_End` of the input if it was reached."""
    window: list[Any] = []
    while len(window) < count and characters > 0:
        try:
            item = source.get(PATIENCE if window else None)
        except queue.Empty:
            break
        if isinstance(item, _End):
            return window, item
        window.append(item)
        characters -= sum(map(len, item)) if isinstance(item, tuple) else len(item)  # a tuple holds strings
    return window, None


class _Direct:
    """A source of lines that reads each line when `get` asks for it."""

    def __init__(self, lines: Iterable[Any]) -> None:
        self.lines: Iterator[Any] = iter(lines)

    def empty(self) -> bool:
        return False

    def get(self, timeout: float | None) -> Any:
        """Return the next line, or an _End."""
        try:
            return next(self.lines)
        except StopIteration:
            return _End(None)
        except Exception as error:
            return _End(error)

    def close(self) -> None:
        pass


class _ReadAhead:
    """A source of lines that a thread reads in advance, at most `count` of them."""

    def __init__(self, lines: Iterable[Any], count: int) -> None:
        self.queue: queue.Queue[Any] = queue.Queue(count)
        self.closed = threading.Event()
        threading.Thread(target=self._read, args=(lines,), daemon=True, name="nmt-reader").start()

    def empty(self) -> bool:
        """Return whether no line is ready."""
        return self.queue.empty()

    def get(self, timeout: float | None) -> Any:
        """Return the next line, or an _End. Raises queue.Empty after `timeout` seconds."""
        return self.queue.get(timeout=timeout)

    def close(self) -> None:
        """Tell the thread to end after the current line."""
        self.closed.set()

    def _read(self, lines: Iterable[Any]) -> None:
        try:
            for line in lines:
                self._put(line)
                if self.closed.is_set():
                    return
            self._put(_End(None))
        except BaseException as error:
            self._put(_End(error))

    def _put(self, item: Any) -> None:
        while not self.closed.is_set():
            with contextlib.suppress(queue.Full):
                return self.queue.put(item, timeout=0.1)
