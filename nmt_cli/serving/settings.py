"""The options of `nmt serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .keys import Keys


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of requests. 0: no limit."""

    body: int = 10 * 2**20
    """Largest body of a request, in bytes."""
    characters: int = 500_000
    """Characters of all texts of a request together."""
    sentences: int = 20_000
    """Sentences of a request. A text without a sentence counts as one."""
    queue: int = 50_000
    """Sentences that wait for a worker. A request that would exceed this number is refused."""
    seconds: float = 120.0
    """Seconds for the translation of a request."""
    reading: float = 30.0
    """Seconds in which a request must arrive, and in which its answer must be read."""
    alternatives: int = 9
    """Other translations of a text, besides the best one."""
    connections: int = 1000
    """Connections that are open at the same time."""
    quota: int = 0
    """Characters for each key since the start of the server."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All options of the server."""

    models: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    """0: any free port."""
    keys: Keys = field(default_factory=Keys)
    open_to_all: bool = False
    """Whether other machines may use the server without a key."""
    limits: Limits = field(default_factory=Limits)
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the server; "*": all."""
    device: str = "auto"
    devices: int | None = None
    processes: int = 1
    """Processes that serve, each with models of its own."""
    precision: str = "auto"
    overrides: tuple[str, ...] = ()
    """Changes of the recipes' [decode], as decode.KEY=VALUE."""
    beam: int | None = None
    """Beam size; None: the value in each model's recipe."""
    log: str = "plain"
    """One of `logs.FORMATS`."""
    grace: float = 30.0
    """Seconds for running requests when the server is stopped."""
