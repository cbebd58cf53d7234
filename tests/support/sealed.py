"""JSON records changed as nobody should, with a hash that fits again: what is behind the hash can be tested so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt_cli.storage.files import sha256
from nmt_cli.storage.sealed_json import HASH, content_hash


def change(path: Path, **values: Any) -> None:
    """Set keys of the record at `path`; None removes one."""
    record = {**json.loads(path.read_text(encoding="utf-8")), **values}
    write(path, {key: value for key, value in record.items() if value is not None})


def again(folder: Path, name: str, record: str = "config.json") -> None:
    """Write the hash of a file that was changed into the folder's record of hashes."""
    hashes = json.loads((folder / record).read_text(encoding="utf-8"))["sha256"]
    change(folder / record, sha256={**hashes, name: sha256(folder / name)})


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record with its hash."""
    path.write_text(json.dumps({**record, HASH: content_hash(record)}), encoding="utf-8")


def flipped(data: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield versions of `data` with one bit changed: all of them, or every `step`-th. A step of 7 reaches every byte."""
    for number in range(0, 8 * len(data), step):
        at, bit = divmod(number, 8)
        yield bytes([*data[:at], data[at] ^ (1 << bit), *data[at + 1 :]])
