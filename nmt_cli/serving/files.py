"""Translated files that wait for their download: in memory, for a while."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

LIFETIME = 1800.0
"""Seconds that a file is kept."""
CAPACITY = 256 * 2**20
"""Largest size of all files together, in bytes. The oldest files are removed first."""


@dataclass(frozen=True)
class File:
    """A translated file."""

    name: str
    content: bytes
    kind: str
    """Its media type."""
    stored: float


class Files:
    """Translated files. Each has a name that cannot be guessed."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, File] = OrderedDict()
        self._size = 0

    def add(self, name: str, content: bytes, kind: str) -> str:
        """Keep a file. Return the name by which it can be fetched."""
        key = f"{secrets.token_urlsafe(16)}.{name}"
        self._files[key] = File(name, content, kind, time.monotonic())
        self._size += len(content)
        self._forget()
        return key

    def get(self, key: str) -> File | None:
        """Return a file; None if no file has this name, or the file was removed."""
        self._forget()
        return self._files.get(key)

    def _forget(self) -> None:
        oldest_allowed = time.monotonic() - LIFETIME
        while self._files and (self._size > CAPACITY or next(iter(self._files.values())).stored < oldest_allowed):
            self._size -= len(self._files.popitem(last=False)[1].content)
