"""A sentence of a document: the line that the model translates, its markup, and its untranslatable parts.

line, markup, untranslatable parts ──▶ projection.project(…, translation) ──▶ text of the document
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import NamedTuple, Protocol

from .items import Markup

HIDDEN = "hidden"
"""The name of a point of markup that is an untranslatable part."""
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
    @property
    def restored(self) -> int: ...


class Written(NamedTuple):
    """A translated text, and the number of untranslatable parts that the model did not copy and that were put back."""

    text: str
    restored: int


@dataclass(frozen=True, slots=True)
class Stay:
    """An untranslatable part, with the start and end of its stand-in in the line."""

    start: int
    end: int
    parts: Sequence[Part]
    """Its text, with the sentences inside a message."""
    raw: str = ""
    """Its text in the translated document, which `Document.write` sets."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence to translate.

    `spelled` holds the characters and the markup of the sentence, and the white space around it, as the document spells
    them; `indices` the index in it of each character of the line. They are empty if the format spells the line as the
    document does. A stand-in has several stays if markup stands inside it.
    """

    line: str
    markup: Mapping[int, Markup] = field(default_factory=dict)
    """Index in `spelled` → markup, in order."""
    stays: tuple[Stay, ...] = ()
    spelled: Sequence[str] = ()
    indices: Sequence[int] = ()

    @property
    def aligned(self) -> bool:
        """Whether `projection.project` needs the alignment of the translation."""
        return bool(self.spelled)


Part = str | Segment
"""A part of a document: a sentence, or text that stays as it is."""


def stand_ins(text: str) -> Iterator[str]:
    """Yield the words that stand for the untranslatable parts of a line: numbers that `text` does not contain.

    The numbers 11, 22, … 99 come first, because models copy short numbers most reliably.
    """
    numbers = set(re.findall(r"\d+", text))
    for number in chain(range(11, 100, 11), (number for number in range(12, 99) if number % 11), count(101)):
        if str(number) not in numbers:
            yield str(number)
