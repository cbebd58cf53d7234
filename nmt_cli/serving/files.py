"""Translated files that wait for their download: in a folder that all processes of a server share, for a while."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

LIFETIME = 1800.0
"""Seconds that a file is kept."""
CAPACITY = 256 * 2**20
"""Largest size of all files together, in bytes. The oldest files are removed first."""
LEAST = 2**16
"""A file counts as so many bytes at least: a small one costs more than its content."""


class Files:
    """Translated files in a folder of their own, from the first file to `close`. Each has a name that cannot be
    guessed; in the folder the hash of it is its name.
    """

    def __init__(self) -> None:
        self._name = f"nmt-serve-{secrets.token_hex(16)}"

    @property
    def _folder(self) -> Path:
        return Path(tempfile.gettempdir(), self._name)

    def close(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, name: str, content: bytes) -> str:
        """Keep a file. Return the name by which it can be fetched."""
        key = f"{secrets.token_urlsafe(16)}.{name}"
        self._folder.mkdir(0o700, exist_ok=True)
        self._path(key).write_bytes(content)
        self._forget()
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the name that a file was given, and its content; None if no file has this name, or it was removed."""
        with suppress(FileNotFoundError):
            self._forget()
            return key.partition(".")[2], self._path(key).read_bytes()
        return None

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()

    def _forget(self) -> None:
        files: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process has removed it
                status = path.stat()
                files.append((status.st_mtime, max(LEAST, status.st_size), path))
        oldest_allowed, total = time.time() - LIFETIME, 0
        for stored, size, path in sorted(files, reverse=True):
            total += size
            if total > CAPACITY or stored < oldest_allowed:
                path.unlink(missing_ok=True)
