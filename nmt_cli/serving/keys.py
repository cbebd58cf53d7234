"""API keys: who may use the server, and how many characters each has used.

A file of keys has one per line: the key and, behind white space, a name for it. Blank lines and lines that begin with #
are skipped. Keys are compared by their hashes in constant time, so that the time of an answer reveals nothing about
them.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError, UsageError
from ..text.lines import decode_line, iter_lines, open_binary

SHORTEST = 8
"""Smallest number of characters of a key."""


@dataclass
class Key:
    """A key's name, its hash, and the number of characters that count for its quota."""

    name: str
    digest: bytes
    characters: int = 0


@dataclass
class Keys:
    """All keys. Without keys, everyone may use the server, and all count as one user."""

    keys: list[Key] = field(default_factory=list)
    everyone: Key = field(default_factory=lambda: Key("", b""))

    @property
    def required(self) -> bool:
        """Whether a request needs a key."""
        return bool(self.keys)

    def find(self, text: str) -> Key | None:
        """Return the key whose text is `text`, or None."""
        digest, match = _digest(text), None
        for key in self.keys:  # compares with all keys, so that the time is constant
            if hmac.compare_digest(key.digest, digest):
                match = key
        return match


def read_keys(path: Path) -> Keys:
    """Return the keys of a file. Raises UsageError, DataError."""
    keys: list[Key] = []
    with open_binary(path) as stream:
        lines = [decode_line(raw)[0] for raw in iter_lines(stream)]
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where, (text, *name) = f"{str(path)!r}, line {number}", line.split(maxsplit=1)
        if len(text) < SHORTEST:
            raise UsageError(
                f"{where}: an API key has at least {SHORTEST} characters, this one has {len(text)}. A good "
                "one: python -c 'import secrets; print(secrets.token_urlsafe())'."
            )
        key = Key("".join(name).strip() or f"key{len(keys) + 1}", _digest(text))
        if key.digest in {earlier.digest for earlier in keys}:
            raise UsageError(f"{where}: this API key was given before. Give each key once.")
        keys.append(key)
    if not keys:
        raise DataError(f"{str(path)!r} has no API key: expected one per line.")
    return Keys(keys)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
