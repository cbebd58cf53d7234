"""A sentence of a document: the line that the model translates, its markup, and its untranslatable parts.

line, markup, untranslatable parts ──▶ projection.project(…, translation) ──▶ text of the document
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol

from .items import Markup

OBJECT = "\ufffc"
"""Unicode's object replacement character: an untranslatable part in the text that is split into sentences."""

Escape = Callable[[str], str]
"""Characters → their spelling in the format."""


class Translated(Protocol):
    """The attributes of a translation that `Document.write` reads. `nmt_cli.Translation` has them."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def source_tokens(self) -> Sequence[str]: ...
    @property
    def alignment(self) -> Sequence[tuple[int, int]] | None: ...


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece of markup at an offset of the line. `spaced` is True if white space is on both sides of it."""

    markup: Markup
    offset: int
    spaced: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """An untranslatable part, with the start and end of its stand-in in the line."""

    start: int
    end: int
    raw: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence to translate."""

    line: str
    markup: tuple[Placed, ...] = ()
    stays: tuple[Stay, ...] = ()

    @property
    def aligned(self) -> bool:
        """Whether `projection.project` needs the alignment of the translation."""
        return bool(self.markup or self.stays)


def stand_ins(text: str) -> Iterator[str]:
    """Yield the words that stand for the untranslatable parts of a line: numbers that `text` does not contain.

    The numbers 11, 22, … 99 come first, because models copy short numbers most reliably.
    """
    numbers = set(re.findall(r"\d+", text))
    for number in chain(range(11, 100, 11), (number for number in range(12, 99) if number % 11), count(101)):
        if str(number) not in numbers:
            yield str(number)
