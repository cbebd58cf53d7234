"""Reasons for an early stop of training.

The signal handler only stores the signal; the loop stops at the end of an update.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signal_handler(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install a handler of these signals while the block runs.

    Outside the main thread, where Python allows no handlers, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def not_ignored(numbers: Iterable[int]) -> list[int]:
    """Return the signals that this process does not ignore. Under nohup, for example, it ignores SIGHUP."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class Finished:
    """Whether the training of this process has finished. Then a signal does not change its exit status."""

    reached = False


class PendingSignal:
    """The signal that this process has received, if any."""

    number: int = 0
    """The signal's number; 0: none yet."""

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch SIGINT, SIGTERM and SIGHUP while the block runs.

        A SIGINT after another of these signals raises KeyboardInterrupt at once. If SIGHUP is ignored, as under nohup,
        it stays ignored. Outside the main thread, where Python allows no handlers, nothing is caught.
        """
        with signal_handler((signal.SIGINT, signal.SIGTERM, *not_ignored((signal.SIGHUP,))), self._handle):
            yield

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
