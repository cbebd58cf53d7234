"""The output of a format's reader: text, markup inside sentences, parts that stay unchanged, boundaries.

    reader ──▶ Text, Markup, Untranslated, Boundary, …  ──▶  runs: sentences and the text between them

The `raw` of all items, joined, is the document, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kinds of markup."""

    OPEN = "open"
    """Markup that begins an element."""
    CLOSE = "close"
    """Markup that ends an element."""
    POINT = "point"
    """Markup that encloses nothing: a void element, a comment, …"""


@dataclass(frozen=True, slots=True)
class Text:
    """Text to translate. `raw` holds the spelling of each character in the document: `&amp;` is one character.

    `raw` is a str if every character is spelled as itself.
    """

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
    """A part of a sentence that stays unchanged and counts as a word, such as `<code>x</code>`."""

    raw: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """A part of the document that stays unchanged and separates sentences, such as `<p>`."""

    raw: str


Item = Text | Markup | Untranslated | Boundary


def matched(markup: Sequence[Markup]) -> list[int | None]:
    """Return for each tag the index of its partner, None for points and for tags without a partner. Takes linear time.

    Pairs are nested. A closing tag ends the nearest open element of its name. Elements that were opened after that one
    get no partner.
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
