"""What `nmt serve` was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .keys import Keys


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request may ask for. 0: no limit."""

    body: int = 10 * 2**20
    """Bytes of a request."""
    characters: int = 500_000
    """Of all texts of a request."""
    sentences: int = 20_000
    """Of a request."""
    queue: int = 50_000
    """Sentences that wait for a worker; while there are more, requests are refused."""
    seconds: float = 120.0
    """For the translation of a request."""
    reading: float = 30.0
    """Seconds in which a request has to arrive."""
    alternatives: int = 9
    """Other translations of a text, besides the best one."""
    connections: int = 1000
    """Open at once."""
    quota: int = 0
    """Characters for each key, from the start of the server on."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All options of the server."""

    models: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    """0: any that is free."""
    keys: Keys = field(default_factory=Keys)
    open_to_all: bool = False
    """Whether other machines may use the server without a key."""
    limits: Limits = field(default_factory=Limits)
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the server; "*": all."""
    device: str = "auto"
    devices: int | None = None
    precision: str = "auto"
    overrides: tuple[str, ...] = ()
    """Changes of the recipes' [decode], as decode.KEY=VALUE."""
    beam: int | None = None
    """None: the recipe's."""
    log: str = "plain"
    """One of `logs.FORMATS`."""
    grace: float = 30.0
    """Seconds for requests that are under way when the server is stopped."""
