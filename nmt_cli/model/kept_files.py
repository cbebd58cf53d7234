"""Files that were computed from a model, kept in a subfolder of the cache folder.

    read(key, parse) ──▶ CACHE/NAME/KEY-SHA256.safetensors ──▶ what `parse` returns; None: there is no such file
    write(key, data)

A key is a hash of everything that the file depends on, so a file is never out of date. When the folder is full, the files with the
oldest use are removed. The rules of `cache` apply: a file is used only if no other user can have written it and its content has the
hash in its name. An error of the cache never ends a command. This file does not load torch.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..cache import check_private, remembered_sha256, subfolder, write_private
from ..errors import ModelError

DAY = 86_400.0
"""Seconds. The modification time of a file shows its last use; it is updated at most once per day."""

Content = TypeVar("Content")


@dataclass(frozen=True)
class KeptFiles:
    """The files of one subfolder."""

    name: str
    most_files: int
    """The largest number of files."""
    most_bytes: int
    """Their largest total size. A larger single file is kept too."""

    def read(self, key: str, parse: Callable[[Path], Content]) -> Content | None:
        """Return parse(path) of the file with this key; None if there is none. A file that is damaged, or for which `parse` raises
        OSError, ValueError or ModelError, is removed."""
        folder = subfolder(self.name)
        for path in sorted(folder.glob(f"{key}-*.safetensors")) if folder else ():
            try:
                return _parsed(path, parse)
            except (OSError, ValueError, ModelError):  # damaged, or written by another user
                with suppress(OSError):
                    path.unlink()
        return None

    def write(self, key: str, data: bytes) -> None:
        """Keep a file, and make room for it first."""
        folder = subfolder(self.name)
        if folder is None:
            return
        with suppress(OSError):
            self._make_room(folder, len(data))
            write_private(folder / f"{key}-{hashlib.sha256(data).hexdigest()}.safetensors", data)

    def has(self, key: str) -> bool:
        """Return whether there is a file with this key, damaged or not."""
        folder = subfolder(self.name)
        return folder is not None and any(folder.glob(f"{key}-*.safetensors"))

    def _make_room(self, folder: Path, more: int) -> None:
        """Remove the files with the oldest use until `more` bytes fit into the limits. Raises OSError."""
        kept = sorted(folder.glob("*.safetensors"), key=lambda path: path.lstat().st_mtime)
        while kept and (
            len(kept) >= self.most_files or sum(path.lstat().st_size for path in kept) + more > self.most_bytes
        ):
            kept.pop(0).unlink(missing_ok=True)


def _parsed(path: Path, parse: Callable[[Path], Content]) -> Content:
    """Return parse(path). Raises OSError if the file is not as it was written, and the errors of `parse`."""
    check_private(path)
    if path.stem.rpartition("-")[2] != remembered_sha256(path):
        raise OSError("its content is not what was written")
    content = parse(path)
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(
                path
            )  # mark the file as used; not at every use, because a new time makes `remembered_sha256` read it again
    return content
