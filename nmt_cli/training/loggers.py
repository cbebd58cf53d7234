"""Loggers: additional outputs for training records, beside the run's metrics.jsonl.

`nmt train --logger NAME` selects them.

A logger is a class that `registry.LOGGERS` lists. Rank 0 creates it with the run folder, a Path, at the start, and
calls

    record(values)   for each record; metrics.py describes the records
    close()          at the end, also after an error

A logger that cannot be opened raises UsageError. When a resumed run repeats updates, loggers get the records of these
updates again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .. import registry
from ..errors import extra_module


def open_loggers(names: Sequence[str], run: Path) -> list[Logger]:
    """Return the loggers with these names. Raises UsageError for a logger that is unknown or cannot be opened."""
    return [registry.load(registry.LOGGERS, name, "--logger")(run) for name in names]


def check_loggers(names: Sequence[str]) -> None:
    """Raise the errors of `open_loggers`. Nothing is written into a run."""
    with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
        for logger in open_loggers(names, Path(folder)):
            logger.close()


class Logger(Protocol):
    """The interface of a logger."""

    def __init__(self, run: Path) -> None: ...

    def record(self, values: Mapping[str, Any]) -> None:
        """Log one record."""

    def close(self) -> None:
        """Write what is still buffered."""


class TensorBoardLogger:
    """Writes the numbers of each record as TensorBoard scalars "TYPE/KEY", to RUN/tensorboard."""

    def __init__(self, run: Path) -> None:
        """Open the TensorBoard writer. Raises UsageError when tensorboard is not installed."""
        extra_module("tensorboard", "tensorboard", "--logger tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(run / "tensorboard"))

    def record(self, values: Mapping[str, Any]) -> None:
        """Log the record's floats at its update."""
        for key, value in values.items():
            if isinstance(value, float):
                self.writer.add_scalar(f"{values['type']}/{key}", value, values["update"])

    def close(self) -> None:
        """Write what is still buffered."""
        self.writer.close()
