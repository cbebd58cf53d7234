"""The translation models that Mozilla publishes for Firefox: which there are, and the files of one.

The server is one of Remote Settings: `URL/buckets/main/collections/translations-models-v2/records` has a record for
each file of a model, and `URL/` says where the files are. A file is compressed by Zstandard; its record has the size
and the SHA-256 of both forms. Shortlists, of type "lex", are not read: the engine needs none.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from pydantic.alias_generators import to_camel

from ..errors import DataError, writing
from ..storage.sealed_json import parse_json
from ..text.compression import Damaged, Unpacked
from .dataset import archive
from .download import fetch, get

MOZILLA = "https://firefox.settings.services.mozilla.com/v1"
RECORDS = "buckets/main/collections/translations-models-v2/records"
LICENSE = "MPL-2.0"
"""The licence of all of them, which no file names."""
ARCHITECTURES = {"tiny": 1, "base-memory": 2, "base": 3}
"""The better, the larger the number; the smaller, the faster."""
VERSION = re.compile("3[.]([0-9]{1,9})([a-z][a-z0-9]*)?")
"""The versions in the format that is known: 3.N, or 3.Na1 before a release."""
LARGEST = 1 << 26
"""Bytes of the largest answer that is read; all records have less than a tenth."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, le=1 << 31)]
Language = Annotated[str, Field(pattern="^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$", max_length=35)]
Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Attachment(BaseModel):
    """A file in the form in which it is downloaded, and its path on the server of files."""

    hash: Digest
    size: Size
    location: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]


class Record(BaseModel, alias_generator=to_camel):
    """What is read of the record of a file."""

    name: Name
    source_language: Language
    target_language: Language
    architecture: Name
    version: Annotated[str, Field(pattern=f"^{VERSION.pattern}$")]
    file_type: Literal["model", "vocab", "srcvocab", "trgvocab"]
    filter_expression: str = Field(default="", alias="filter_expression")
    """For which versions and systems of Firefox it is: the files of a model have the same."""
    decompressed_size: Size
    decompressed_hash: Digest
    attachment: Attachment


class PublishedModel(NamedTuple):
    """A model that can be fetched: the records of its files by their types, and the address of the server of files."""

    files: dict[str, Record]
    server: str

    @property
    def weights(self) -> Record:
        return self.files["model"]

    @property
    def name(self) -> str:
        """Its languages, such as "en-de"."""
        return f"{self.weights.source_language}-{self.weights.target_language}"

    def address(self, record: Record) -> str:
        """Return the address of one of its files."""
        return f"{self.server.rstrip('/')}/{record.attachment.location}"

    def rank(self) -> tuple[bool, int, int, str]:
        """Return a key, the largest for the best one: released, of the best architecture, and the newest."""
        minor, unreleased = VERSION.fullmatch(self.weights.version).groups("")  # type: ignore[union-attr]
        return not unreleased, ARCHITECTURES.get(self.weights.architecture, 0), int(minor), unreleased


def catalogue(url: str) -> list[PublishedModel]:
    """Return what a server publishes, by name: of each architecture the newest model, the best one first.

    Records in another form or version are left out. Raises DataError.
    """
    try:
        server = _answer(f"{url}/")["capabilities"]["attachments"]["base_url"]
        records = _answer(f"{url}/{RECORDS}")["data"]
        if not isinstance(records, list) or not server.startswith(("http://", "https://")):
            raise TypeError
    except (AttributeError, KeyError, TypeError):
        raise DataError(f"{url} is no server of models: expected one of Remote Settings, such as {MOZILLA}.") from None
    groups: dict[tuple[str, ...], dict[str, Record]] = defaultdict(dict)
    for values in records:
        with suppress(ValidationError):
            one = Record.model_validate(values)
            key = (one.source_language, one.target_language, one.architecture, one.version, one.filter_expression)
            groups[key].setdefault(one.file_type, one)  # the server has the latest record first
    needed: list[set[str]] = [{"model", "vocab"}, {"model", "srcvocab", "trgvocab"}]
    found = [PublishedModel(one, server) for one in groups.values() if any(types <= one.keys() for types in needed)]
    newest: dict[tuple[str, str], PublishedModel] = {}
    for model in sorted(found, key=PublishedModel.rank, reverse=True):
        newest.setdefault((model.name, model.weights.architecture), model)
    return sorted(newest.values(), key=lambda model: model.name)


def _answer(url: str) -> dict[str, Any]:
    return parse_json(get(url, LARGEST), url, DataError, "Is it a server of Remote Settings?")


def fetch_files(model: PublishedModel, downloads: Path, folder: Path) -> None:
    """Write the files of a model into `folder`, checked and decompressed; a download begun in `downloads` resumes.

    Raises DataError.
    """
    for record in model.files.values():
        packed = archive(model.address(record), f"sha256:{record.attachment.hash}", record.attachment.size)
        path = downloads / fetch(packed, downloads, way_out="or").file
        with writing(folder / record.name, "a file of the model"):
            _unpack(path, folder / record.name, record)


def _unpack(packed: Path, path: Path, record: Record) -> None:
    """Write the content of a compressed file. Raises DataError if it is not what its record says, OSError."""
    digest, size, found = hashlib.sha256(), 0, ""
    with packed.open("rb") as file, path.open("wb") as written:
        content = Unpacked(file.read)
        try:
            while size <= record.decompressed_size and (piece := content.read(1 << 20)):
                size += written.write(piece)
                digest.update(piece)
        except Damaged as error:
            found = f"damaged data ({error})"
    if found or (size, digest.hexdigest()) != (record.decompressed_size, record.decompressed_hash):
        raise DataError(
            f"{record.name!r} of {packed.name!r} is not what the server's record says: expected "
            f"{record.decompressed_size:,} bytes with the SHA-256 {record.decompressed_hash}, found "
            f"{found or digest.hexdigest()}. Nothing was imported: try again later, or another --url."
        )
