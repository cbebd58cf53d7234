"""The log on stderr: plain lines, or one JSON object per line. It never contains a text of a request or a key.

A line is written at once, or with those that follow it within GATHER seconds: a busy server then makes ten writes per
second, not hundreds.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from ..errors import printable

FORMATS = ("plain", "json")
GATHER = 0.1
"""Seconds between two writes. Warnings and errors do not wait."""
logger = logging.getLogger("nmt.serve")


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        text = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in fields.items())])
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        # only a record's first line begins with a time
        lines = printable(f"{level}{text}{trace}").replace("\n", "\n    ")
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))} {lines}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        values = {
            "time": when,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(values, ensure_ascii=False))


class _Lines(logging.Handler):
    """Writes lines to a stream, together if they come soon after each other."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._written = -math.inf  # monotonic time of the last write
        self._waiting = threading.Event()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`, which holds a lock during this call."""
        try:
            self._lines.append(f"{self.format(record)}\n")
            if record.levelno > logging.INFO or time.monotonic() - self._written > GATHER:
                self.flush()
            else:
                self._write_soon()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Write the lines that wait."""
        self.acquire()
        try:
            if self._lines:
                text = "".join(self._lines)
                self._lines.clear()
                self._written = time.monotonic()
                self._stream.write(text)
                self._stream.flush()
        finally:
            self.release()

    def _write_soon(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_late, daemon=True, name="nmt-log")
            self._thread.start()
        self._waiting.set()

    def _write_late(self) -> None:
        while True:
            self._waiting.wait()
            time.sleep(GATHER)
            self._waiting.clear()
            with suppress(Exception):
                self.flush()


def configure(form: str) -> None:
    """Write the server's log, and warnings and errors of uvicorn and asyncio, to stderr. `form` is one of FORMATS."""
    handler = _Lines(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Plain())
    for name, level in (("nmt.serve", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        named_logger = logging.getLogger(name)
        named_logger.handlers, named_logger.propagate = [handler], False
        named_logger.setLevel(level)
    logging.raiseExceptions = False  # stderr may be a pipe without a reader


def flush() -> None:
    """Write the lines that wait."""
    for handler in logger.handlers:
        handler.flush()


def say(text: str, **fields: Any) -> None:
    """Write a line to the log."""
    logger.info(text, extra={"fields": fields} if fields else None)


def warn(text: str, **fields: Any) -> None:
    """Write a warning to the log."""
    logger.warning(text, extra={"fields": fields} if fields else None)
