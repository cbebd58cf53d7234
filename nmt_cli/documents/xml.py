"""XML: well-formed documents.

    text ──▶ check by defusedxml: well-formed, no declared entities, nothing from outside ──▶ tokens ──▶ markup.items_of

An element is part of a sentence if there is text beside it in its parent (mixed content), or if its parent is part of a
sentence. All other elements separate text. XHTML has the elements of HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from html.entities import html5
from xml.sax import ContentHandler, SAXParseException

from ..errors import DocumentError, extra_module
from .elements import BLOCKS
from .format import Format
from .items import Item, Untranslated
from .markup import decoded, items_of
from .tokens import Token, Type, checked

_TAG = r"""<(/?)([^\s/>!?][^\s/>]*+)(?:[^>"']++|"[^"]*+"|'[^']*+')*+>"""
_QUOTED = r""""[^"]*+"|'[^']*+'"""
_SUBSET = rf"""(?:[^\]"'<]++|{_QUOTED}|<!--.*?-->|<\?.*?\?>|<)*+"""
_OTHER = rf"""<!--.*?-->|<\?.*?\?>|<!DOCTYPE(?:[^\[>"']++|{_QUOTED})*+(?:\[{_SUBSET}\][^>]*+)?+>"""
TOKEN = re.compile(rf"{_TAG}|(<!\[CDATA\[.*?\]\]>)|({_OTHER})|[^<]++", re.DOTALL)
"""A token of well-formed XML."""
XHTML = "http://www.w3.org/1999/xhtml"
REFERENCE = re.compile(r"(&[^#;\s][^;\s]*;)")


def _items(text: str, split_sentences: str) -> Iterator[Item]:
    _check(text)
    token_list = list(checked(tokens(text), text))
    blocks = [token.name in BLOCKS for token in token_list] if _is_xhtml(token_list) else _blocks(token_list)
    return items_of(token_list, blocks, _decode, optional_end=False)


class _Nothing(ContentHandler):
    """A handler that ignores the content, because only errors matter."""


def _check(text: str) -> None:
    """Raise DocumentError if the XML is not well-formed, or cannot be read safely."""
    common = extra_module("defusedxml.common", "documents", "XML")
    parser = extra_module("defusedxml.sax", "documents", "XML").make_parser()
    parser.forbid_external = False  # the parser does not read the DTD that a doctype names
    parser.setContentHandler(_Nothing())
    try:
        parser.feed(text.removeprefix("\ufeff"))
        parser.close()
    except SAXParseException as error:
        where = f"line {error.getLineNumber():,}, column {(error.getColumnNumber() or 0) + 1:,}"
        raise DocumentError(
            f"the XML is not well-formed at {where}: {error.getMessage()}. Correct it, or read it as HTML."
        ) from None
    except common.EntitiesForbidden as error:
        raise DocumentError(
            f"the XML declares the entity {error.name!r}: expected a document without entities of its own, "
            "which can hold gigabytes. Expand them first."
        ) from None


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of well-formed XML."""
    for match in TOKEN.finditer(text):
        slash, name, cdata, other = match.groups()
        raw = match[0]
        if name is None:
            yield Token(Type.RAW if cdata else Type.OTHER if other else Type.TEXT, raw)
            continue
        yield Token(Type.CLOSE if slash else Type.EMPTY if raw.endswith("/>") else Type.OPEN, raw, name)


def _is_xhtml(tokens: Sequence[Token]) -> bool:
    root = next((token for token in tokens if token.name), None)
    return root is not None and (root.name == "html" or XHTML in root.raw)


def _blocks(tokens: Sequence[Token]) -> list[bool]:
    """Return for each token whether it is a tag that separates text."""
    mixed = _mixed(tokens)
    blocks: list[bool] = []
    parents: list[bool] = [False]
    """For each open element: whether its content is part of a sentence."""
    for index, token in enumerate(tokens):
        if token.type is Type.OPEN:
            blocks.append(not parents[-1])
            parents.append(parents[-1] or mixed[index])
        elif token.type is Type.CLOSE:
            parents.pop()
            blocks.append(not parents[-1])
        else:
            blocks.append(token.type is Type.EMPTY and not parents[-1])
    return blocks


def _mixed(tokens: Sequence[Token]) -> list[bool]:
    """Return for each start tag whether its element contains text directly."""
    mixed = [False] * len(tokens)
    parents: list[int] = []
    for index, token in enumerate(tokens):
        if token.type is Type.OPEN:
            parents.append(index)
        elif token.type is Type.CLOSE:
            parents.pop()
        elif parents and (token.type is Type.RAW or (token.type is Type.TEXT and token.raw.strip())):
            mixed[parents[-1]] = True
    return mixed


def _decode(raw: str) -> Iterator[Item]:
    """Yield the items of a text.

    References to HTML entities become characters; other references, which an outer DTD declares, stay unchanged.
    """
    for piece in REFERENCE.split(raw):
        if REFERENCE.fullmatch(piece) and piece[1:] not in html5:
            yield Untranslated(piece)
        elif piece:
            yield decoded(piece)


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML does not allow."""


def escape(text: str) -> str:
    """Return characters as they are written in XML. Characters that XML does not allow are left out."""
    return html.escape(_FORBIDDEN.sub("", text), quote=False)


FORMAT = Format(_items, escape, split_sentences="nonewlines")
