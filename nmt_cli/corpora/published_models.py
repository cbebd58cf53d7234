"""The translation models that Mozilla publishes for Firefox: which there are, and the files of one.

    catalogue(url) ──▶ by name, such as "en-de": PublishedModels, the best one first
    fetch_files(model, folder) ──▶ each file: download, check ──▶ decompress, check ──▶ folder/NAME

The server is one of Remote Settings: `URL/buckets/main/collections/translations-models-v2/records` has a record for
each file of a model, and `URL/` says where the files are. A file is compressed by Zstandard; its record has the size
and the SHA-256 of both forms.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic.alias_generators import to_camel

from ..errors import DataError, writing
from ..storage.sealed_json import parse_json
from ..text.compression import Damaged, Unpacked
from .dataset import archive
from .download import fetch, get

MOZILLA = "https://firefox.settings.services.mozilla.com/v1"
"""The server that Firefox asks."""
RECORDS = "buckets/main/collections/translations-models-v2/records"
REGISTRY = "https://mozilla.github.io/translations/model-registry/"
"""Mozilla's page for people, which lists the same files."""
LICENSE = "MPL-2.0"
"""The licence of all of them, which no file names."""
ARCHITECTURES = ("tiny", "base-memory", "base")
"""From the smallest and fastest to the best."""
VERSION = re.compile(r"3\.(\d{1,9})((?:[a-z]\w*)?)", re.ASCII)
"""The versions in the format that is known, 3.N; 3.Na1 is not released yet."""
LARGEST = 1 << 26
"""Bytes of the largest answer that is read; all records have less than a hundredth."""
PIECE = 1 << 20

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, le=1 << 31)]
Language = Annotated[str, Field(pattern="^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$", max_length=35)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Attachment(BaseModel):
    """A file in the form in which it is downloaded."""

    hash: Digest
    size: Size
    location: Annotated[str, Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
    """Its path on the server of files."""


class Record(BaseModel, alias_generator=to_camel):
    """The record of a file, with what is read of it. Shortlists, of type "lex", are not: the engine needs none."""

    name: Name
    source_language: Language
    target_language: Language
    architecture: Name
    version: Annotated[str, Field(pattern=f"^{VERSION.pattern}$")]
    file_type: Literal["model", "vocab", "srcvocab", "trgvocab"]
    filter_expression: str = Field(default="", alias="filter_expression")
    """The versions and systems of Firefox for which it is."""
    decompressed_size: Size
    decompressed_hash: Digest
    attachment: Attachment


@dataclass(frozen=True)
class PublishedModel:
    """A model that can be fetched."""

    name: str
    """Its languages, such as "en-de"."""
    files: dict[str, Record]
    """By their types."""
    server: str
    """The address of the server of files."""

    @property
    def model(self) -> Record:
        """The record of the weights."""
        return self.files["model"]

    @property
    def title(self) -> str:
        """Its name, architecture and version, such as "en-de-tiny-3.0"."""
        return f"{self.name}-{self.model.architecture}-{self.model.version}"

    @property
    def size(self) -> int:
        """The bytes to download."""
        return sum(record.attachment.size for record in self.files.values())

    def address(self, record: Record) -> str:
        """Return the address of one of its files."""
        return f"{self.server}/{record.attachment.location}"

    @property
    def identity(self) -> str:
        """The address and the SHA-256 of the weights."""
        return f"{self.address(self.model)}#sha256={self.model.decompressed_hash}"

    def is_complete(self) -> bool:
        return "model" in self.files and ("vocab" in self.files or {"srcvocab", "trgvocab"} <= self.files.keys())

    def rank(self) -> tuple[bool, int, int, str]:
        """Return a key by which the best one is the largest: released, of the best architecture, and the newest."""
        known = VERSION.fullmatch(self.model.version)
        assert known
        architecture = self.model.architecture
        rank = ARCHITECTURES.index(architecture) if architecture in ARCHITECTURES else -1
        return not known[2], rank, int(known[1]), known[2]


def catalogue(url: str = MOZILLA) -> dict[str, list[PublishedModel]]:
    """Return what a server publishes, by name: of each architecture the newest model, the best one first.

    Records in another form or version are left out. Raises DataError.
    """
    server = _answer(f"{url}/").get("capabilities", {})
    try:
        server = server["attachments"]["base_url"]
        records = _answer(f"{url}/{RECORDS}")["data"]
        if not isinstance(records, list) or not server.startswith(("http://", "https://")):
            raise TypeError
    except (AttributeError, KeyError, TypeError):
        raise DataError(f"{url} is no server of models: expected one of Remote Settings, such as {MOZILLA}.") from None
    groups: dict[tuple[str, ...], dict[str, Record]] = defaultdict(dict)
    for record in filter(None, map(_known, records)):
        name = f"{record.source_language}-{record.target_language}"
        groups[name, record.architecture, record.version, record.filter_expression][record.file_type] = record
    models = [PublishedModel(key[0], files, server.rstrip("/")) for key, files in groups.items()]
    found: dict[str, dict[str, PublishedModel]] = defaultdict(dict)
    for model in sorted(filter(PublishedModel.is_complete, models), key=PublishedModel.rank, reverse=True):
        found[model.name].setdefault(model.model.architecture, model)
    return {name: [*found[name].values()] for name in sorted(found)}


def _answer(url: str) -> dict[str, Any]:
    return parse_json(get(url, LARGEST), url, DataError, "Is it a server of Remote Settings?")


def _known(record: Any) -> Record | None:
    try:
        return Record.model_validate(record)
    except ValidationError:
        return None


def fetch_files(model: PublishedModel, downloads: Path, folder: Path) -> None:
    """Write the files of a model into `folder`, checked and decompressed; a download begun in `downloads` resumes.

    Raises DataError.
    """
    for record in model.files.values():
        attachment = record.attachment
        wanted = archive(model.address(record), f"sha256:{attachment.hash}", attachment.size)
        packed = downloads / fetch(wanted, downloads, way_out="or").file
        with writing(folder / record.name, "a file of the model"):
            _unpack(packed, folder / record.name, record)


def _unpack(packed: Path, path: Path, record: Record) -> None:
    """Write the content of a compressed file. Raises DataError if it is not what its record says, OSError."""
    digest, size, found = hashlib.sha256(), 0, ""
    with packed.open("rb") as file, path.open("wb") as written:
        content = Unpacked(file.read)
        try:
            while size <= record.decompressed_size and (piece := content.read(PIECE)):
                written.write(piece)
                digest.update(piece)
                size += len(piece)
        except Damaged as error:
            found = f"damaged data ({error})"
    if found or (size, digest.hexdigest()) != (record.decompressed_size, record.decompressed_hash):
        raise DataError(
            f"{record.name!r} of {packed.name!r} is not what the server's record says: expected "
            f"{record.decompressed_size:,} bytes with the SHA-256 {record.decompressed_hash}, found "
            f"{found or digest.hexdigest()}. Nothing was imported: try again later, or another --url."
        )
