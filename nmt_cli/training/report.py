"""The reports of training: records to metrics.jsonl and to loggers, lines for people to the terminal and to train.log.

    record(values)   a record for programs           line(text)        a line that stays on the terminal
                                                     samples(texts)    all go to train.log, the first is also printed
                                                     progress(text)    at most one a minute; printed only without a bar
                                                     advance(updates)  the bar

On a terminal, or if a function receives the progress (`console.shows_progress`), a bar moves with every micro-batch,
and progress lines go only to train.log. Otherwise progress lines are also printed. Only rank 0 reports.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import console
from ..errors import TrainingError, write_failed
from ..storage.files import flush_to_disk
from .loggers import Logger, open_loggers
from .run import RunFolder

PROGRESS_SECONDS = 60.0
"""The smallest time between two progress lines. metrics.jsonl has every record."""


class Report:
    """Reports for rank 0. On other ranks, where `is_main` is false, it does nothing."""

    def __init__(self, run: RunFolder, is_main: bool, loggers: Sequence[str] = ()) -> None:
        """Open the loggers with the names `loggers`.

        Raises UsageError for a logger that is unknown or cannot be opened.
        """
        self.run, self.is_main = run, is_main
        self.has_bar = is_main and console.shows_progress()
        self.bar: Any = None
        self.progress_at = -math.inf
        """When the latest progress line was written, by time.monotonic."""
        self.loggers: list[Logger] = open_loggers(loggers, run.path) if is_main else []

    def rewind(self, size: int) -> None:
        """Truncate metrics.jsonl to `size` bytes: later records belong to updates that will be repeated.

        If the file is shorter, records are lost, and a warning reports it. Training does not need them.
        """
        if not self.is_main:
            return
        present = self.run.metrics.stat().st_size if self.run.metrics.exists() else 0
        if present > size:
            os.truncate(self.run.metrics, size)
        elif present < size:
            state = f"has {present:,} bytes" if self.run.metrics.exists() else "is missing"
            console.warn(
                f"{str(self.run.metrics)!r} {state}, at the last checkpoint it had {size:,}: records of "
                "earlier updates are lost. Training resumes without them."
            )

    def record(self, values: Mapping[str, Any]) -> None:
        """Append a record to metrics.jsonl, and pass it to the loggers."""
        if not self.is_main:
            return
        _append(self.run.metrics, json.dumps(values, ensure_ascii=False))
        for logger in self.loggers:
            logger.record(values)

    def flush(self) -> int:
        """Flush metrics.jsonl to the disk, and return its size in bytes."""
        if not self.run.metrics.exists():
            return 0
        flush_to_disk(self.run.metrics)
        return self.run.metrics.stat().st_size

    def line(self, text: str) -> None:
        """Print a line that stays, and append it to train.log."""
        if self.is_main:
            self.clear_bar()
            self._print(text, stays=True)

    def samples(self, texts: Sequence[str]) -> None:
        """Append sample translations to train.log, and print the first."""
        for number, text in enumerate(texts if self.is_main else ()):
            self._print(text, stays=number == 0)

    def progress(self, text: str) -> None:
        """Append a line to train.log, and print it if there is no bar. Do nothing within a minute after such a line."""
        if self.is_main and time.monotonic() - self.progress_at >= PROGRESS_SECONDS:
            self.progress_at = time.monotonic()
            self._print(text, stays=not self.has_bar)

    def start_bar(self, done: int, updates: int) -> None:
        """Show a bar of `updates` updates, of which `done` are done. Do nothing if this report has no bar."""
        if self.has_bar:
            self.bar = console.progress(
                updates, "training", "updates", initial=done, bar_format="{desc} |{bar}| ETA {remaining}"
            )
            self.bar.set_description_str(f"update {done:,}/{updates:,}")

    def advance(self, updates: float, describe: Callable[[], str]) -> None:
        """Move the bar to `updates` updates, and show the text that `describe` returns.

        Without a bar, `describe` is not called.
        """
        if self.bar is not None:
            self.bar.set_description_str(f"update {int(updates):,}/{self.bar.total:,} · {describe()}", refresh=False)
            self.bar.update(updates - self.bar.n)

    def clear_bar(self) -> None:
        """Remove the bar from the terminal until it next moves, so that something else can be printed."""
        if self.bar is not None:
            self.bar.clear()

    def close(self) -> None:
        """Close the bar and the loggers."""
        if self.bar is not None:
            self.bar.close()
        for logger in self.loggers:
            logger.close()

    def _print(self, text: str, stays: bool) -> None:
        if stays:
            console.say(text)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S  ")
        _append(self.run.log, stamp + text.replace("\n", "\n" + " " * len(stamp)))


def _append(path: Path, line: str) -> None:
    """Append a line to a file. Raises TrainingError."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    except OSError as error:
        raise write_failed(error, path, "the training records", TrainingError) from None
