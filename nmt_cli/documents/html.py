"""HTML: fragments and whole documents. Malformed HTML is accepted, as in browsers.

text ──▶ html_tokens ──▶ markup.items_of, which treats elements as browsers do (`elements`)
"""

from __future__ import annotations

import html
from collections.abc import Iterator

from .elements import BLOCKS, OPTIONAL_END
from .format import Format
from .html_tokens import tokens
from .items import Item
from .markup import decoded, items_of
from .tokens import Token, Type, check_depth


def _items(text: str, split_sentences: str) -> Iterator[Item]:
    token_list = list(_checked(text))
    return items_of(token_list, lambda index: token_list[index].name in BLOCKS, _decode, optional_end=True)


def _decode(raw: str) -> Iterator[Item]:
    yield decoded(raw, html.unescape)


def _checked(text: str) -> Iterator[Token]:
    """Yield the tokens. Raises DocumentError if elements are nested too deeply."""
    depth = done = 0
    for token in tokens(text):
        if token.name not in OPTIONAL_END:
            depth = depth + 1 if token.type is Type.OPEN else max(depth - 1, 0) if token.type is Type.CLOSE else depth
            check_depth(depth, text, done)
        done += len(token.raw)
        yield token


def escape(text: str) -> str:
    """Return characters as they are written in HTML."""
    return html.escape(text, quote=False).replace("\xa0", "&nbsp;")


FORMAT = Format(_items, escape, split_sentences="nonewlines", endings=(".html", ".htm"), media_type="text/html")
