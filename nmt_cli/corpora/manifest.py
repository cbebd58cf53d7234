"""manifest.json of a laid-out data set: what was written, from which archives, and their hashes.

It is there from the first file on and says which files are ours; a text whose files are all recorded is not made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..errors import DataError
from ..files import write_named
from ..records import Record, read_record, to_json

NAME = "manifest.json"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FileEntry(_Entry):
    """A file that was written: its name in the folder, size in bytes, SHA-256 and number of lines."""

    file: str
    bytes: int
    sha256: str
    lines: int


class TextEntry(_Entry):
    """A text that is complete. `fingerprint`: what it was made from and how, in short."""

    fingerprint: str
    files: list[FileEntry]
    read: int
    """Pairs read; what is not written was `dropped`."""
    dropped: int = 0
    replaced: int = 0
    """Lines with invalid UTF-8, replaced by U+FFFD."""


class ArchiveEntry(_Entry):
    """An archive as it was used. `verified`: by a checksum that is published."""

    file: str
    url: str | None
    sha256: str
    verified: bool


class Manifest(Record):
    """The whole; `complete` once every text is there."""

    format_version: int = Record.newest
    dataset: str
    complete: bool = False
    texts: list[TextEntry] = Field(default_factory=list)
    archives: list[ArchiveEntry] = Field(default_factory=list)

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Format version 1 called it `format`."""
        if values.get("format") == 1 and "format_version" not in values:
            values["format_version"] = values.pop("format")
        return values

    def save(self, folder: Path) -> None:
        """Raises DataError where nothing can be written."""
        self.format_version = Record.newest
        write_named(folder / NAME, to_json(self), "the manifest")


def load(folder: Path) -> Manifest | None:
    """The manifest of a folder, None where there is none. Raises DataError for one that cannot be understood."""
    try:
        return read_record(folder / NAME, Manifest, DataError, "It is no manifest of nmt data, or was changed. Move it away, or choose another --out.")
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise DataError(f"{str(folder)!r} is not a folder: choose another --out.") from None
