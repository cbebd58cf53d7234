"""The log on stderr: plain lines, or one JSON object per line. It never contains a text of a request or a key."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..errors import printable

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


def configure(form: str) -> None:
    """Write the server's log, and warnings and errors of uvicorn and asyncio, to stderr; `form`: "plain" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Plain())
    for name, level in (("nmt.serve", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        named_logger = logging.getLogger(name)
        named_logger.handlers, named_logger.propagate = [handler], False
        named_logger.setLevel(level)
    logging.raiseExceptions = False  # stderr may be a pipe without a reader


def say(text: str, **fields: Any) -> None:
    """Write a line to the log."""
    logger.info(text, extra={"fields": fields})


def warn(text: str, **fields: Any) -> None:
    """Write a warning to the log."""
    logger.warning(text, extra={"fields": fields})
