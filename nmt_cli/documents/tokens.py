"""Tokens of HTML and XML. The `raw` of all tokens, joined, is the document, byte for byte."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ..errors import DocumentError

MOST_IN_TAG = 1 << 20
"""Maximum number of characters in a tag. A picture in an attribute fits."""
MOST_NESTED = 10_000
"""Maximum depth of nested elements."""


class Type(Enum):
    """The kinds of tokens."""

    TEXT = "text"
    OPEN = "start tag"
    EMPTY = "start tag of an element without content"
    CLOSE = "end tag"
    RAW = "content that stays as it is"
    """The content of `<script>`, CDATA sections, …"""
    OTHER = "comment, doctype or processing instruction"


@dataclass(frozen=True, slots=True)
class Token:
    """A part of the document. `name` is the element's name if the token is a tag."""

    type: Type
    raw: str
    name: str = ""


def check_size(raw: str, text: str, start: int) -> None:
    """Raise DocumentError if the tag at `start` is too long."""
    if len(raw) > MOST_IN_TAG:
        raise DocumentError(
            f"{position(text, start)}: the tag {raw[:40]!r}… has {len(raw):,} characters: expected at most "
            f"{MOST_IN_TAG:,}. Shorten its attributes."
        )


def check_depth(depth: int, text: str, start: int) -> None:
    """Raise DocumentError if elements are nested too deeply."""
    if depth > MOST_NESTED:
        raise DocumentError(
            f"{position(text, start)}: elements are nested {depth:,} deep: expected at most {MOST_NESTED:,}. "
            "Close elements that are left open."
        )


def position(text: str, offset: int) -> str:
    """Return the line and column of an offset, as text for messages."""
    return f"line {text.count(chr(10), 0, offset) + 1:,}, column {offset - text.rfind(chr(10), 0, offset):,}"


_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s>]*+)))?+""")


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a start tag, names in lower case, values unchanged.

    The name of the element is also included.
    """
    values: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(tag, 1):
        values.setdefault(match[1].lower(), match[2] or match[3] or match[4] or "")
    return values
