"""The edge of the program: what surrounds every command before anything else is imported.

    guarded(command)     standard descriptors that were closed lead to /dev/null, so that no file that is opened later gets
                         the number of one; stdout and stderr are those of `output`; SIGTERM and SIGHUP raise `Terminated`
                         in the main thread, as Ctrl-C raises KeyboardInterrupt: context managers clean up on the way out

A signal that was ignored when the program started, as SIGHUP is under nohup, stays ignored. Only the first SIGTERM or
SIGHUP raises: schedulers send it more than once, and the second must not interrupt the cleaning up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Terminated
from . import output

if TYPE_CHECKING:
    from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


def guarded(command: Callable[[], int]) -> int:
    """Run `command` and return its exit status. `command` reports its own errors; a signal that it does not is a status too."""
    try:
        output.install(_closed_descriptors())
        _raise_on_signals()
        sys.unraisablehook = _send_again(sys.unraisablehook)
        return command()
    except KeyboardInterrupt as interrupt:
        return 128 + signal_of(interrupt)
    finally:
        for number in (signal.SIGINT, *ENDING):  # from here on there is nothing to clean up
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def signal_of(interrupt: KeyboardInterrupt) -> int:
    """The signal that an interrupt stands for."""
    return interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT


def signal_behind(error: BaseException) -> int | None:
    """The signal that ended the command, or None. A library that is interrupted midway may answer with an error of its own."""
    if isinstance(error, KeyboardInterrupt):
        return signal_of(error)
    return _received if isinstance(error, Exception) else None


_received: int | None = None


def _closed_descriptors() -> set[int]:
    """Which of stdin, stdout and stderr were closed; each of them is /dev/null now."""
    closed = set()
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.add(descriptor)
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    return closed


def _raise_on_signals() -> None:
    """Let the first of ENDING raise `Terminated`; those that are ignored stay so."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    for other in ENDING:
        if signal.getsignal(other) is _raise:
            signal.signal(other, _ignore)
    raise Terminated(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Unlike SIG_IGN, this is not inherited by programs that are started."""


def _send_again(otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An interrupt that was raised where Python drops exceptions, such as in `__del__`, comes again a moment later."""

    def hook(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            otherwise(dropped)
            return
        number = signal_of(dropped.exc_value)
        if number in ENDING:
            _raise_on_signals()
        threading.Timer(0.01, os.kill, (os.getpid(), number)).start()

    return hook
