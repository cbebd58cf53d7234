"""The set-up of the process for every command, before other imports: descriptors, signals, the garbage collector.

    run_guarded(command)  opens closed standard descriptors on /dev/null, so that no later file gets their numbers;
    installs
                          stdout and stderr of `output`; lets SIGTERM and SIGHUP raise `Terminated` in the main thread,
                          as Ctrl-C raises KeyboardInterrupt, so that context managers clean up

A signal that was ignored at the start, as SIGHUP is under nohup, stays ignored. Only the first SIGTERM or SIGHUP
raises: schedulers send these signals more than once, and the second must not interrupt the clean-up.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..errors import Terminated
from ..training.stopping import Finished
from . import output

if TYPE_CHECKING:
    from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


def run_guarded(command: Callable[[], int]) -> int:
    """Run `command` and return its exit status.

    `command` reports its own errors. For an interrupt that it does not handle, return 128 + signal.
    """
    collect_garbage_rarely()
    try:
        output.install(_closed_descriptors())
        _raise_on_signals()
        sys.unraisablehook = _send_again(sys.unraisablehook)
        return command()
    except KeyboardInterrupt as interrupt:
        return 128 + signal_of(interrupt)
    finally:
        gc.freeze()  # at its end Python looks for cycles among all objects, which takes 0.05 s after a short command
        for number in (signal.SIGINT, *ENDING):  # nothing is left to clean up
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_IGN if Finished.reached else signal.SIG_DFL)


def collect_garbage_rarely() -> None:
    """Let Python look for reference cycles less often.

    By default it visits torch's objects so often that `import torch` takes 10 % longer.
    """
    gc.set_threshold(100_000, 20, 100)


def signal_of(interrupt: KeyboardInterrupt) -> int:
    """Return the number of the signal behind an interrupt."""
    return interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT


def signal_behind(error: BaseException) -> int | None:
    """Return the number of the signal that ended the command, or None.

    An interrupted library may raise its own error: then the received signal is returned.
    """
    if isinstance(error, KeyboardInterrupt):
        return signal_of(error)
    return _received if isinstance(error, Exception) else None


_received: int | None = None


def _closed_descriptors() -> set[int]:
    """Return which of stdin, stdout and stderr were closed, and open each of them on /dev/null."""
    closed = set()
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.add(descriptor)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `descriptor`
    return closed


def _raise_on_signals() -> None:
    """Let the first of ENDING raise `Terminated`; ignored signals stay ignored."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    global _received
    if Finished.reached:
        return
    _received = number
    for ending in ENDING:
        if signal.getsignal(ending) is _raise:
            signal.signal(ending, _ignore)
    raise Terminated(number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN, child processes do not inherit this."""


AGAIN = 0.1
"""Seconds after which a signal is sent again: Python has then left the place where it drops exceptions."""


def _send_again(otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a hook for interrupts that were raised where Python drops exceptions, such as in `__del__`.

    It sends the signal again; other exceptions go to `otherwise`.
    """

    def hook(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            otherwise(dropped)
            return
        number = signal_of(dropped.exc_value)
        try:
            if number in ENDING:
                _raise_on_signals()
            threading.Timer(AGAIN, os.kill, (os.getpid(), number)).start()
        except KeyboardInterrupt as interrupt:  # it came here, where it would be dropped too: the machine is slow
            hook(SimpleNamespace(exc_value=interrupt))

    return hook
