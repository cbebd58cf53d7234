"""Plain text. An empty line or a tab always ends a sentence. A single line end does so if `split_sentences` is "1"."""

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


FORMAT = Format(_items, str, split_sentences="1", endings=(".txt",), media_type="text/plain")
