"""The options of `nmt serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ..options import Option
from .keys import Keys

MOST, MOST_SECONDS = 10**12, 10**7
"""Highest values of limits: numbers, and seconds, which a timer of the system can wait."""


def _limit(help: str, metavar: str = "N", most: float = MOST) -> Option:
    return Option(help, metavar, "Limits", 0, most)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of requests, as options of `nmt serve`. 0: no limit."""

    max_bytes: Annotated[int, _limit("Bytes of a request; 0, here and below: no limit.")] = 10 * 2**20
    max_characters: Annotated[int, _limit("Characters of a request's texts.")] = 500_000
    max_sentences: Annotated[int, _limit("Sentences of a request.")] = 20_000
    """A text without a sentence counts as one."""
    max_queue: Annotated[int, _limit("Sentences that wait: with more, requests are refused.")] = 50_000
    max_seconds: Annotated[float, _limit("Time for the translation of a request.", "S", MOST_SECONDS)] = 120.0
    max_reading: Annotated[
        float, _limit("Time in which a request has to arrive, and its answer to be read.", "S", MOST_SECONDS)
    ] = 30.0
    max_connections: Annotated[int, _limit("Connections at once.")] = 1000
    quota: Annotated[int, _limit("Characters for each key, until the server ends.")] = 0


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
    """Or "json"."""
    grace: float = 30.0
    """Seconds for running requests when the server is stopped."""
