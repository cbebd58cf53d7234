"""JSON files with a hash of their own content, which is checked when they are read.

    to_json(record)                              record ──▶ JSON with content_sha256
    read_record(path, kind, error, remedy)       file ──▶ JSON ──▶ version ──▶ hash ──▶ kind, strictly typed

A `Record` is a pydantic model with `format_version`. The file also has the key `content_sha256`: the SHA-256 of the
content in canonical form, which is JSON without that key, with sorted keys and no spaces. Another layout of the same
content is accepted, but every change of the content is an error. Records of format versions before `sealed` have no
hash.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .. import __version__
from ..errors import NmtError, reading, shown, shown_name
from .files import read_bounded, sha256

HASH = "content_sha256"


class Entry(BaseModel):
    """A part of a record. Types are strict; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class FileEntry(Entry):
    """A file by its name or path, with its size and SHA-256 when the record was written."""

    file: str
    bytes: int
    sha256: str


def file_entry(path: Path, name: str = "") -> FileEntry:
    """Return the entry of a file, under `name` if it is given. Raises DataError."""
    with reading(path):
        return FileEntry(file=name or path.name, bytes=path.stat().st_size, sha256=sha256(path))


class Record(Entry):
    """The content of a JSON file."""

    newest: ClassVar[int] = 2
    """The format version that is written, and the newest version that is read."""
    sealed: ClassVar[int] = 2
    """The first format version with a hash."""
    largest: ClassVar[int] = 1 << 24
    """Largest size of a file that is read, in bytes."""

    format_version: int

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the content of a file in the form of the newest version.

        A class whose form has changed overrides this.
        """
        return values


RecordT = TypeVar("RecordT", bound=Record)


def content_hash(values: dict[str, Any]) -> str:
    """Return the SHA-256 of a record's content, in hex."""
    content = {key: value for key, value in values.items() if key != HASH}
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "surrogatepass"
        )
    ).hexdigest()


def to_json(record: Record) -> bytes:
    """Return the record as indented JSON with its hash."""
    values = record.model_dump(mode="json", by_alias=True)
    return (json.dumps({**values, HASH: content_hash(values)}, indent=2, allow_nan=False) + "\n").encode()


def read_record(path: Path, kind: type[RecordT], error: type[NmtError], remedy: str) -> RecordT:
    """Read a record and check version, hash and types.

    If one of them is wrong, raises `error` with the file, the cause and the `remedy`. Raises FileNotFoundError or
    NotADirectoryError if the file does not exist.
    """
    try:
        data = read_bounded(path, kind.largest)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as cause:
        raise error(f"cannot read {str(path)!r}: {cause.strerror or cause}. {remedy}") from None
    return parse_record(data, path, kind, error, remedy)


def parse_record(data: bytes, path: Path | str, kind: type[RecordT], error: type[NmtError], remedy: str) -> RecordT:
    """Return the record in `data`, which is from `path`, as `read_record` does."""
    values = kind.upgrade(parse_json(data, path, error, remedy))
    version = values.get("format_version")
    if type(version) is not int or version < 1:
        state = "is damaged" if "format_version" in values else "is not of nmt, or is damaged"
        raise error(
            f"{str(path)!r} {state}: format_version is {shown(version)}, expected a whole number from 1 to "
            f"{kind.newest}. "
            f"{remedy}"
        )
    if version > kind.newest:
        raise error(
            f"{str(path)!r} has format version {version}; this nmt {__version__} reads up to {kind.newest}. "
            "Install a newer nmt."
        )
    if (version >= kind.sealed or HASH in values) and values.get(HASH) != content_hash(values):
        raise error(
            f"{str(path)!r} was changed or damaged: its content does not have the SHA-256 that it states "
            f"({HASH}). {remedy}"
        )
    values.pop(HASH, None)
    try:
        return kind.model_validate(values)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        key = shown_name(".".join(map(str, first["loc"]))) or "the file"
        raise error(
            f"{str(path)!r} is damaged: {key}: {first['msg'][:1].lower()}{first['msg'][1:]}. {remedy}"
        ) from None


def parse_json(data: bytes, path: Path | str, error: type[NmtError], remedy: str) -> dict[str, Any]:
    """Return the JSON object in `data`, which is from `path`.

    Raises `error` for data that is not UTF-8 or not JSON, for NaN and infinite numbers, and for too deep nesting.
    """
    try:
        values = json.loads(data.decode("utf-8"))
        json.dumps(values, allow_nan=False)  # nesting that Python can read may be too deep to write
    except RecursionError:
        raise error(f"{str(path)!r} is damaged: it is nested too deeply. {remedy}") from None
    except ValueError as cause:
        raise error(f"{str(path)!r} is damaged: it is not JSON ({shown_name(str(cause))}). {remedy}") from None
    if not isinstance(values, dict):
        raise error(f"{str(path)!r} is damaged: expected a JSON object, found {type(values).__name__}. {remedy}")
    return values
