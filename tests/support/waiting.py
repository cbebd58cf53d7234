"""Waiting for what another thread or process does, and a hold at which the code under test waits for the test.

A test waits for an event, never for a time. LIMIT only turns a hang into a failure.
"""

import fcntl
import select
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from forked import Process

T = TypeVar("T")

LIMIT = 180.0
"""Seconds."""


def wait_until(
    condition: Callable[..., T],
    failed: Callable[[], object] = lambda: "it never came true",
    by: Process | subprocess.Popen[Any] | None = None,
) -> T:
    """Wait until `condition()` is true, and return its value. `by` is the process that makes it true.

    Raises AssertionError, with `failed()`, after LIMIT seconds; and as soon as `by` has ended, with its stderr, too.
    """
    end = time.monotonic() + LIMIT
    while True:
        ended = by is not None and by.poll() is not None
        if value := condition():
            return value
        if ended and by:
            raise AssertionError(f"{failed()}; the process ended with {by.returncode}: {by.communicate()[1]!r}")
        assert time.monotonic() < end, failed()
        time.sleep(0.01)


def was_read(pipe: int) -> bool:
    """Return whether all that was written to a pipe has been read, or its reader has gone; `pipe` is the end for writing."""
    poll = select.poll()
    poll.register(pipe, 0)
    left = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return not any(left) or bool(poll.poll(0))


def alive(pid: int) -> bool:
    """Return whether a process runs, or one of its threads. One that has ended and was not waited for does not."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" or int(fields[16]) > 1
