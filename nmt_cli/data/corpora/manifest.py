"""manifest.json of a laid-out data set: what was written, from which archives, and their hashes.

It is there from the first file on and says which files are ours; a text whose files are all recorded is not made again.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import DataError
from ..lines import write_aside

NAME = "manifest.json"
FORMAT = 1


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")


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


class Manifest(_Entry):
    """The whole; `complete` once every text is there."""

    format: int = FORMAT
    dataset: str
    complete: bool = False
    texts: list[TextEntry] = Field(default_factory=list)
    archives: list[ArchiveEntry] = Field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Raises DataError where nothing can be written."""
        write_aside(folder / NAME, (json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n").encode(), "the manifest")


def load(folder: Path) -> Manifest | None:
    """The manifest of a folder, None where there is none. Raises DataError for one that cannot be understood."""
    path = folder / NAME
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise DataError(f"{str(folder)!r} is not a folder: choose another --out.") from None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:
        raise _unknown(path, str(error)) from None
    if isinstance(values, dict) and isinstance(values.get("format"), int) and values["format"] > FORMAT:
        raise DataError(f"{str(path)!r} has format {values['format']}, this nmt reads {FORMAT}: it was written by a newer one. Use that, or choose another --out.")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        raise _unknown(path, f"{error.error_count()} faults, the first: {error.errors()[0]['msg']}") from None


def _unknown(path: Path, why: str) -> DataError:
    return DataError(f"{str(path)!r} is no manifest of nmt data ({why}). Move it away, or choose another --out.")
