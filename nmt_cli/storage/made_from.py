"""What a file was made from, in a record beside it, so that a command need not make the same file again.

    made = MadeFrom(…)               all that the bytes of the file depend on
    resumable(path)                  before the work: the file and its record may be written here
    is_whole(path, made)             the file is there as its record says, and was made from the same
    record(path, made, entry, lines) after the work; the entry is what the record says of the file

`out.zst` has the record `out.zst.nmt.json`. It is written when the file has its name: a file without a record, or with
one that does not fit, is made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ..errors import UsageError
from .files import write_named
from .sealed_json import FileEntry, Record, file_entry, read_record, to_json


class MadeFrom(Record):
    """The record of a file."""

    newest: ClassVar[int] = 1
    sealed: ClassVar[int] = 1

    package_version: str
    input_sha256: list[str]
    model_sha256: list[str]
    """SHA-256 of each model's config.json, which holds those of all its files."""
    options: dict[str, Any]
    """What the output depends on besides; files by their SHA-256."""
    output: FileEntry | None = None
    lines: int = 0
    """Number of lines that were read."""
    seconds: float = 0.0
    """How long it took, where that is measured."""

    def fits(self, made: MadeFrom) -> bool:
        """Return whether the file was made from the same."""
        return self.model_copy(update={"output": None, "lines": 0, "seconds": 0.0}) == made


RECORD = ".nmt.json"
"""The end of the name of a record."""


def record_of(path: Path) -> Path:
    """Return the path of the record of a file."""
    return path.with_name(f"{path.name}{RECORD}")


def _read(path: Path) -> MadeFrom | None:
    """Return the record of a file, None if it has none. Raises UsageError for something else in its place."""
    try:
        return read_record(record_of(path), MadeFrom, UsageError, "Remove it, or choose another output.")
    except (FileNotFoundError, NotADirectoryError):
        return None


def resumable(path: Path) -> None:
    """Raise UsageError if `path` is no regular file, or if what lies in the place of its record is none."""
    if path.exists() and not path.is_file():
        raise UsageError(f"--resume needs a file as --output, and {str(path)!r} is none. Leave out --resume.")
    _read(path)


def is_whole(path: Path, made: MadeFrom) -> bool:
    """Return whether the file was made from the same, and has the size and the hash that its record says.

    Raises UsageError for a damaged record.
    """
    written = _read(path)
    return written is not None and written.fits(made) and path.is_file() and written.output == file_entry(path)


def record(path: Path, made: MadeFrom, output: FileEntry, lines: int) -> None:
    """Write the record of a file. Raises DataError."""
    whole = made.model_copy(update={"output": output, "lines": lines})
    write_named(record_of(path), to_json(whole), "the record of the output")
