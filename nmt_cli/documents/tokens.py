"""Tokens of HTML and XML. The `raw` of all tokens, joined, is the document, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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


def checked(tokens: Iterable[Token], text: str, optional_end: frozenset[str] = frozenset()) -> Iterator[Token]:
    """Yield the tokens of a document.

    Raises DocumentError for a tag that is too long, and for elements nested too deeply, not counting those of
    `optional_end`.
    """
    depth = done = 0
    for token in tokens:
        if token.name and len(token.raw) > MOST_IN_TAG:
            raise DocumentError(
                f"{position(text, done)}: the tag {token.raw[:40]!r}… has {len(token.raw):,} characters: expected at "
                f"most {MOST_IN_TAG:,}. Shorten its attributes."
            )
        if token.name not in optional_end:
            depth = max(depth + (token.type is Type.OPEN) - (token.type is Type.CLOSE), 0)
        if depth > MOST_NESTED:
            raise DocumentError(
                f"{position(text, done)}: elements are nested {depth:,} deep: expected at most {MOST_NESTED:,}. "
                "Close elements that are left open."
            )
        done += len(token.raw)
        yield token


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
