"""Published models, as a server of Remote Settings has them: records of files, and the files, compressed by Zstandard."""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from backports import zstd
from marian_models import student, students_files
from website import Site, serve


@functools.cache
def model_files(seed: int = 1) -> dict[str, tuple[str, bytes]]:
    """Name and content of each file of a small model, by their types."""
    return by_type(students_files(student(layers=(1, 1), seed=seed)))


def by_type(files: Mapping[str, bytes]) -> dict[str, tuple[str, bytes]]:
    """Name and content of each file of a model, by the types that the names begin with."""
    return {name.partition(".")[0]: (name, content) for name, content in files.items()}


def publish(
    site: Site,
    languages: str,
    architecture: str = "tiny",
    version: str = "3.0",
    /,
    files: dict[str, tuple[str, bytes]] | None = None,
    **changes: Any,
) -> list[dict[str, Any]]:
    """Add a model to what the site has, and return its records. `changes` are made to each."""
    source, _, target = languages.partition("-")
    added = []
    for kind, (file, content) in (files or model_files()).items():
        packed = zstd.compress(content, 1)
        location = f"main-workspace/translations-models-v2/{hashlib.sha256(content + version.encode()).hexdigest()}.zst"
        site.files[location.rsplit("/", 1)[-1]] = packed
        added.append(
            {
                "name": file,
                "sourceLanguage": source,
                "targetLanguage": target,
                "architecture": architecture,
                "version": version,
                "fileType": kind,
                "filter_expression": "",
                "decompressedSize": len(content),
                "decompressedHash": hashlib.sha256(content).hexdigest(),
                "attachment": {"hash": hashlib.sha256(packed).hexdigest(), "size": len(packed), "location": location},
                **changes,
            }
        )
    records = json.loads(site.files["records"])["data"] + added
    site.files["records"] = json.dumps({"data": records}).encode()
    return added


@contextmanager
def settings_server() -> Iterator[Site]:
    """A server without models; its `address` is what --url names."""
    with serve() as site:
        base = f"{site.address}/attachments/"
        site.files[""] = json.dumps({"capabilities": {"attachments": {"base_url": base}}}).encode()
        site.files["records"] = b'{"data": []}'
        site.address += "/v1"
        yield site
