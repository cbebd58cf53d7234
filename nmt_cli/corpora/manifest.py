"""manifest.json in the folder of a data set: the files that were written, the archives they come from, and their
hashes.

The manifest is written before the first file. It lists the files that `nmt data` wrote. A text whose files are all
listed is not written again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from ..errors import DataError
from ..storage.files import write_named
from ..storage.sealed_json import Entry, FileEntry, Record, read_record, to_json

NAME = "manifest.json"


class WrittenFile(FileEntry):
    """A file that was written, and its number of lines."""

    lines: int


class TextEntry(Entry):
    """A text that is complete. `fingerprint` is a hash of how it was built."""

    fingerprint: str
    files: list[WrittenFile]
    read: int
    """Number of pairs that were read. The pairs that were not written are counted in `dropped`."""
    dropped: int = 0
    replaced: int = 0
    """Number of lines with invalid UTF-8, which was replaced by U+FFFD."""


class ArchiveEntry(Entry):
    """An archive that was used.

    `url` is None if `nmt data` never downloaded it. `verified` is True if its published checksum was compared.
    """

    file: str
    url: str | None
    sha256: str
    verified: bool


class Manifest(Record):
    """manifest.json. `complete` is True when every text has been written."""

    format_version: int = Record.newest
    dataset: str
    complete: bool = False
    texts: list[TextEntry] = Field(default_factory=list)
    archives: list[ArchiveEntry] = Field(default_factory=list)

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Rename the key `format` of format version 1."""
        if values.get("format") == 1 and "format_version" not in values:
            values["format_version"] = values.pop("format")
        return values

    def save(self, folder: Path) -> None:
        """Write the manifest into `folder`. Raises DataError."""
        self.format_version = Record.newest
        write_named(folder / NAME, to_json(self), "the manifest")


def load(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if it has none.

    Raises DataError if the manifest is damaged or was changed.
    """
    try:
        return read_record(
            folder / NAME,
            Manifest,
            DataError,
            "It is no manifest of nmt data, or was changed. Move it away, or choose another --out.",
        )
    except FileNotFoundError:
        return None
