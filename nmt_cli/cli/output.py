"""Standard output and standard error: everything that commands print goes through this file.

    write(text)     writes text at once, in UTF-8 whatever the locale
    stream()        returns a stream of bytes; the writer flushes it

`install` replaces the raw stream under `sys.stdout` by one that turns failures into errors that name stdout. This works
for commands, typer's help and a library's print. A closed pipe is not an error (`ReaderLeft`, exit status 0). After the
first failure, further output is dropped, so that Python does not fail again at exit. Text that cannot be written to
stderr is dropped: a remark never stops a command.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ..errors import NmtError, OutputError, ReaderLeft, of_machine

if TYPE_CHECKING:
    from collections.abc import Set

    from _typeshed import ReadableBuffer


class _StandardStream(io.RawIOBase):
    """Stdout or stderr. Errors name the stream."""

    def __init__(self, descriptor: int, closed: bool) -> None:
        self._descriptor, self._was_closed, self._failed = descriptor, closed, False
        self.name = "<stderr>" if descriptor == 2 else "<stdout>"
        self.mode = "wb"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return not self._was_closed and os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            if self._was_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._write_all(data)
        except OSError as error:
            self._failed = True
            if self._descriptor == 2:
                return memoryview(data).nbytes
            raise self._error(error) from None

    def _write_all(self, data: ReadableBuffer) -> int:
        """Write as `os.write` does, but wait if another program made the descriptor non-blocking."""
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    def _error(self, error: OSError) -> NmtError:
        if isinstance(error, BrokenPipeError):
            return ReaderLeft()
        if self._was_closed:
            return OutputError("standard output is closed: expected a terminal, a file or a pipe to write to.")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return of_machine(
                OutputError(
                    "cannot write to standard output: the disk is full. Free some space, or send the output elsewhere."
                )
            )
        return OutputError(f"cannot write to standard output: {error.strerror or error}.")


def install(closed: Set[int]) -> None:
    """Install new streams as `sys.stdout` and `sys.stderr`. `closed`: the descriptors that were closed at the start.

    Printed text keeps the encoding of the terminal. A character that the encoding does not have is written as its
    number.
    """
    if 0 in closed:
        sys.stdin = None
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        encoding = getattr(before, "encoding", None) or "utf-8"
        raw = _StandardStream(number, number in closed)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=number == 2 or raw.isatty()
        )
        setattr(sys, name, stream)


def write(text: str) -> None:
    """Print a text and a newline on stdout."""
    sink = stream()
    sink.write(_utf8(text) + b"\n")
    sink.flush()


def write_json(value: Any) -> None:
    """Print a value as indented JSON."""
    write(json.dumps(value, indent=2, ensure_ascii=False))


def _utf8(text: str) -> bytes:
    """Return text in UTF-8. The text may have bytes of file names that Python could not decode by the locale.

    If these bytes are UTF-8, they become characters again; otherwise they are written as numbers.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        with contextlib.suppress(UnicodeEncodeError):
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return text.encode("utf-8", "backslashreplace")


def stream() -> BinaryIO:
    """Return stdout as a stream of bytes."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)


def flush() -> None:
    """Write the text that is still buffered. Raises `NmtError` if stdout fails."""
    sys.stdout.flush()


def drain() -> None:
    """Flush stdout after the command has failed. A second error is not reported."""
    with contextlib.suppress(NmtError):
        flush()
