"""Plain text. A line end ends a sentence; an empty line and a tab do so in every case."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .format import Format
from .items import Boundary, Item, Text

LINE_ENDS = re.compile(r"([\n\r\t\v\f\x85\u2028\u2029]+)")
PARAGRAPH_ENDS = re.compile(r"(\t+|\n[^\S\n]*\n\s*|\u2029)")


def _items(text: str, split_sentences: str) -> Iterator[Item]:
    ends = LINE_ENDS if split_sentences == "1" else PARAGRAPH_ENDS
    for index, piece in enumerate(ends.split(text)):
        yield Boundary(piece) if index % 2 else Text(piece, piece)


FORMAT = Format(_items, str, split_sentences="1")
