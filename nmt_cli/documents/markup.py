"""Turns the tokens of HTML or XML into items.

tokens ──▶ each element: a boundary, markup inside a sentence, or a part that stays unchanged ──▶ items
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from .elements import BLOCKS, INVISIBLE, OPTIONAL_END, UNTRANSLATED, translated
from .items import Boundary, Item, Kind, Markup, Text, Untranslated
from .tokens import Token, Type

KINDS = {Type.OPEN: Kind.OPEN, Type.CLOSE: Kind.CLOSE, Type.EMPTY: Kind.POINT}


MOST_SWITCHES = 8
"""Maximum number of nested switches between translated and untranslated elements. Elements nested deeper stay
unchanged."""


MOST_IN_NOTE = 16
"""Maximum number of tokens of a footnote's mark. Wikipedia's have 11."""


def items_of(
    tokens: Sequence[Token], blocks: Sequence[bool], decode: Callable[[str], Iterator[Item]], optional_end: bool
) -> Iterator[Item]:
    """Yield the items of a document.

    `blocks` holds for each token whether it is a tag that separates text. `decode` turns text of the document
    into items. `optional_end` is True if elements may end without an end tag, as in HTML.
    """
    switches = {index: translated(token) for index, token in enumerate(tokens) if token.type in (Type.OPEN, Type.EMPTY)}
    opened = [index for index, switch in switches.items() if switch]

    def items(start: int, stop: int, depth: int) -> Iterator[Item]:
        """Yield the items of a range of tokens. The text in them stays unchanged if `depth` is odd."""
        staying = depth % 2 == 1
        index = start
        while index < stop:
            token = tokens[index]
            if token.name in ("sup", "a") and not staying and (count := _note(tokens, index, stop)):
                yield Markup("".join(token.raw for token in tokens[index : index + count]), Kind.POINT)
                index += count
                continue
            if switches.get(index) is staying and not (staying and depth >= MOST_SWITCHES):
                end = min(stop, _end(tokens, index, optional_end)) if token.type is Type.OPEN else index + 1
                if staying or (depth < MOST_SWITCHES and bisect_left(opened, end) > bisect_left(opened, index)):
                    yield _tag(token, blocks[index])
                    yield from items(index + 1, end, depth + 1)
                else:
                    yield _staying(tokens[index:end], blocks[index])
                index = end
                continue
            if token.type is Type.TEXT:
                yield from _kept(token.raw) if staying else decode(token.raw)
            elif token.type is Type.RAW:
                yield Untranslated(token.raw)
            elif token.type is Type.OTHER:
                yield Markup(token.raw, Kind.POINT)
            else:
                yield _tag(token, blocks[index])
            index += 1

    return items(0, len(tokens), 0)


def _note(tokens: Sequence[Token], start: int, stop: int) -> int:
    """Return the number of tokens of an element behind a word that the model had better not read: `<sup>` without
    letters (a footnote, an exponent), `<a>` without letters and digits (¶). Return 0 for others, and for an end tag.
    """
    before = next((token for token in reversed(tokens[max(start - 3, 0) : start]) if token.type is Type.TEXT), None)
    element = tokens[start : min(start + MOST_IN_NOTE, stop)]
    element = element[: _end(element, 0, optional_end=False)]
    name, last = tokens[start].name, element[-1]
    if before is None or before.raw[-1].isspace() or last.type is not Type.CLOSE or last.name != name:
        return 0
    text = html.unescape("".join(token.raw for token in element if token.type is Type.TEXT)).strip()
    plain = all(token.type is not Type.RAW and token.name not in BLOCKS | UNTRANSLATED for token in element)
    return len(element) if text and plain and not any(map(str.isalpha if name == "sup" else str.isalnum, text)) else 0


def _tag(token: Token, block: bool) -> Item:
    return Boundary(token.raw) if block else Markup(token.raw, KINDS[token.type], token.name)


def _kept(raw: str) -> Iterator[Item]:
    """Yield the items of text that stays unchanged, and of the white space around it."""
    text = raw.strip()
    before, _, behind = raw.partition(text) if text else (raw, "", "")
    yield Text(before, before)
    if text:
        yield Untranslated(text)
        yield Text(behind, behind)


def _staying(tokens: Sequence[Token], block: bool) -> Item:
    """Return an element that stays unchanged as one item."""
    raw = "".join(token.raw for token in tokens)
    if block:
        return Boundary(raw)
    visible = tokens[0].name not in INVISIBLE and any(
        token.raw.strip() for token in tokens if token.type in (Type.TEXT, Type.RAW)
    )
    return Untranslated(raw) if visible else Markup(raw, Kind.POINT)


def _end(tokens: Sequence[Token], start: int, optional_end: bool) -> int:
    """Return the index after the element that begins at `start`.

    It is the index after the end tag. If the element ends without an end tag, it is the index of the tag that ends the
    element.
    """
    depths = {tokens[start].name: 1}
    name = tokens[start].name
    open_names = [name]
    for index in range(start + 1, len(tokens)):
        token = tokens[index]
        if token.type is Type.OPEN:
            if optional_end and len(open_names) == 1 and name in OPTIONAL_END and token.name == name:
                return index
            open_names.append(token.name)
            depths[token.name] = depths.get(token.name, 0) + 1
        elif token.type is Type.CLOSE:
            if not depths.get(token.name):
                if optional_end and name in OPTIONAL_END and len(open_names) == 1:
                    return index
                continue
            while True:
                last = open_names.pop()
                depths[last] -= 1
                if last == token.name:
                    break
            if not open_names:
                return index + 1
    return len(tokens)


ENTITY = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[A-Za-z][A-Za-z0-9]{1,31};?)")


def decoded(raw: str) -> Text:
    """Return text as characters instead of entities."""
    if "&" not in raw:
        return Text(raw, raw)
    characters: list[str] = []
    spelled: list[str] = []
    done = 0
    for match in ENTITY.finditer(raw):
        entity, text = match[0], html.unescape(match[0])
        while (
            text and entity and text != entity and text[-1] == entity[-1] and entity[-1] != ";"
        ):  # `&ampx` is "&" and "x"
            entity, text = entity[:-1], text[:-1]
        if text == match[0]:
            continue
        plain = raw[done : match.start()]
        characters += [plain, text]
        spelled += [*plain, entity, *[""] * (len(text) - 1)]
        done = match.start() + len(entity)
    characters.append(raw[done:])
    return Text("".join(characters), [*spelled, *raw[done:]])
