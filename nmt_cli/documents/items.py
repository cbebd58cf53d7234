"""What a reader of a format yields: text, markup inside sentences, parts that stay as they are, boundaries.

    reader ──▶ Text, Markup, Untranslated, Boundary, …  ──▶  runs: sentences and what is between them

All items' `raw`, joined, are the document, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a piece of markup does to the text after it."""

    OPEN = "open"
    """It begins an element."""
    CLOSE = "close"
    """It ends an element."""
    POINT = "point"
    """It encloses nothing: a void element, a comment, …"""


@dataclass(frozen=True, slots=True)
class Text:
    """Characters, and how each is written in the document: `&amp;` is one character. A str where every character stands for itself."""

    characters: str
    raw: Sequence[str]


@dataclass(frozen=True, slots=True)
class Markup:
    """A tag or another piece of markup that sentences may contain; `name` pairs opening and closing tags."""

    raw: str
    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Untranslated:
    """A part of a sentence that stays as it is and stands for a word, such as `<code>x</code>`."""

    raw: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """A part of the document that stays as it is and separates sentences, such as `<p>`."""

    raw: str


Item = Text | Markup | Untranslated | Boundary


def matched(markup: Sequence[Markup]) -> list[int | None]:
    """Return for each opening and closing tag the index of its partner, None for points and tags without one. Linear in time.

    Pairs are nested. A closing tag ends the nearest open element of its name; those that were opened after it stay without partner.
    """
    partners: list[int | None] = [None] * len(markup)
    stack: list[int] = []
    opened: dict[str, int] = {}
    for index, item in enumerate(markup):
        if item.kind is Kind.OPEN:
            stack.append(index)
            opened[item.name] = opened.get(item.name, 0) + 1
        elif item.kind is Kind.CLOSE and opened.get(item.name):
            while True:
                last = stack.pop()
                opened[markup[last].name] -= 1
                if markup[last].name == item.name:
                    break
            partners[last], partners[index] = index, last
    return partners
