"""Every fault that `nmt` names, as one tree; the command line catches `NmtError` once.

    NmtError                exit 1: a fault of data or state
    ├── RecipeError         a recipe that cannot be read or contradicts itself
    ├── DataError           corpora, tokenizers and shards
    ├── ModelError          a model folder, run folder or checkpoint
    ├── TrainingError       training cannot go on (a non-finite loss, a dead rank)
    ├── UsageError          exit 2: the command was called wrongly
    └── Stopped             exit 128 + signal: stopped by a signal, after saving

A message says four things: the bad value (`!r`), what was expected, where it stands, and how to mend it.
`write_failed` turns an `OSError` from writing into such a message.
"""

from __future__ import annotations

import errno
from pathlib import Path


class NmtError(Exception):
    """A named fault; its text is shown to the user as it is, without a traceback."""

    exit_code = 1


class RecipeError(NmtError):
    """A recipe that is missing, does not parse, or holds values that cannot be."""


class DataError(NmtError):
    """A corpus, tokenizer or shard folder that is missing, damaged or does not fit."""


class ModelError(NmtError):
    """A model folder, run folder or checkpoint that is missing, damaged or does not fit."""


class TrainingError(NmtError):
    """Training cannot go on."""


class UsageError(NmtError):
    """The command was called wrongly."""

    exit_code = 2


class Stopped(NmtError):
    """Stopped by a signal after the state was saved; `exit_code` is 128 + the signal's number."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def system_reason(error: OSError) -> str:
    """What the system says, with the file that it says it of."""
    return f"{error.filename!r}: {error.strerror}" if error.filename and error.strerror else str(error) or type(error).__name__


def write_failed(error: OSError, path: Path, what: str, kind: type[NmtError] = DataError) -> NmtError:
    """Name why `what` could not be written at `path`, and the way out."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return kind(f"cannot write {what} at {str(path)!r}: the disk is full. Free some space or choose another folder; nothing that stood there before was harmed.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return kind(f"cannot write {what} at {str(path)!r}: no write permission. Choose a folder that you may write to, or change its permissions.")
    return kind(f"cannot write {what} at {str(path)!r}: {error.strerror or error}.")
