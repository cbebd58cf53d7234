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
from .tokens import checked


def _items(text: str, split_sentences: str) -> Iterator[Item]:
    token_list = list(checked(tokens(text), text, OPTIONAL_END))
    return items_of(token_list, [token.name in BLOCKS for token in token_list], _decode, optional_end=True)


def _decode(raw: str) -> Iterator[Item]:
    yield decoded(raw)


def escape(text: str) -> str:
    """Return characters as they are written in HTML."""
    return html.escape(text, quote=False).replace("\xa0", "&nbsp;")


FORMAT = Format(_items, escape, split_sentences="nonewlines", endings=(".html", ".htm"), media_type="text/html")
