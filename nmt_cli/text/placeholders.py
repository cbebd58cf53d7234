"""Untranslatable parts of a text: URLs, e-mail addresses, the placeholders of message formats, and characters that a
model lacks.

    "&Mail {name} at a@b.org."  ──▶  find_placeholders  ──▶  [Found(0, 1, hidden), Found(6, 12), Found(16, 23)]

The parts are found before the text is split into sentences, so that a full stop inside a part ends no sentence. Most
parts are words for the model: it reads a number in their place. In place of the parts that are `hidden` it reads
nothing: the mark of a menu's key, escapes, symbols that the model lacks.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from . import messages
from .scripts import IN_SCRIPT


class Found(NamedTuple):
    """An untranslatable part of a text, from `start` to `end`."""

    start: int
    end: int
    hidden: bool = False
    """Whether it is no word: the model reads nothing in its place. Else the model reads a number."""
    texts: tuple[tuple[int, int], ...] = ()
    """Starts and ends of the texts inside it that are to be translated, in order."""


_URL = r"(?:(?:https?|ftp)://|www\.)[^\s<>\"{}|\\^`\ufffc]*[^\s<>\"{}|\\^`\ufffc.,;:!?'”’»…)\]]"
_EMAIL = (
    r"(?<![\w.+-])[A-Za-z0-9](?:[\w.+-]{0,62}[\w+-])?@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}\.){1,8}[A-Za-z]{2,24}(?![\w@-])"
)
_BRACES = r"\$?\{\{[^{}\n]{1,100}\}\}|[$%#]?\{(?: [\w.]{1,64} |[^{}\s][^{}\n]{0,99})\}|\{\}"
_PRINTF = (
    r"(?<![\d%])%(?:\([^()\s]{1,64}\))?(?:\d{1,2}\$)?[-+#0']{0,5}(?:\d{1,3}|\*)?(?:\.(?:\d{1,3}|\*))?"
    r"(?:<PRI\w{1,12}>|(?:hh?|ll?|[Lzjt])?(?:[A-Za-z@](?![A-Za-z])|[dsu](?![A-Za-z]{3})))|%%"
)
_NUMBERED = r"(?<![\d%])(?:%L?\d{1,2})+%?(?!\w)"
"""Those of Qt, KDE and Boost: %1, %L1, %1%."""
_NAMED = (
    r"(?<![\w%])%[A-Za-z_][\w.-]{0,63}%(?!\w)"
    r"|(?<![^\s(\[{\"'“«]):[A-Za-z_]\w{1,63}(?!\w):?"
    r"|(?<![\w$])\$[A-Za-z_]\w{0,63}|(?<![\w@.])@[A-Za-z_]\w{0,63}(?!\w)"
)
"""%total%, :count, $name, @name."""
_REFERENCE = r"(?P<reference>\$[1-9](?!\w|[.,]\d))"
"""$1, $2, … in a text that has $1: in others they are money."""
_FIRST = re.compile(r"\$1(?!\w|[.,]\d)")
_PATH = r"(?<!\w)[A-Za-z]:\\[^\s\"'<>|*?,;]*"
_TAG = r"(?P<tag></?[A-Za-z][\w:.-]{0,63}(?:\s[^<>]{0,500})?/?>)"
_CLOSED = re.compile(r"</([A-Za-z][\w:.-]{0,63})")
_ENTITY = r"(?P<entity>&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][\w.-]{1,31});)"
_CODE = r"`[^`'\s](?:[^`'\n]{0,98}[^`'\s])?`"
_ESCAPE = r"(?P<escape>(?:\\[nrt\"'])+)"
_KEY = r"(?P<key>(?<![\w&])&(?=[^\W_])|(?<=[^\W\d_])&(?=[a-z])|(?<!\w)_(?=[^\W\d_]))"
"""The mark before the letter that chooses an entry of a menu: E&xit and _Open, but not R&D and my_file."""
MARK = re.compile(r"[@{%$&<\\`]|://|www\.|(?<!\w)[:_]\w")
"""Every text with such a part matches it. Most texts do not."""


@cache
def _pattern(with_messages: bool, in_message: bool) -> re.Pattern[str]:
    """Each repetition has an upper bound or its own character class, so the search takes time linear in the text."""
    message = [rf"(?P<message>{messages.HEADER})"] * with_messages + [messages.IN_TEXT] * in_message
    plain = (_URL, _EMAIL, _BRACES, _PATH, _PRINTF, _NUMBERED, _NAMED, _CODE, "&&")
    return re.compile("|".join([*message, *plain, _REFERENCE, _TAG, _ENTITY, _ESCAPE, _KEY]))


def find_placeholders(text: str, lacking: Collection[str] = (), in_message: bool = False) -> list[Found]:
    """Return the untranslatable parts of a text, in order.

    Digits that touch a part belong to it. `lacking` are the characters for which the model has no pieces. `in_message`:
    the text is one of those inside an argument of ICU (`messages`).
    """
    parts = [*_formats(text, in_message)] if in_message or MARK.search(text) else []
    keys = Counter(text[part.start] for part in parts if _is_key(text, part))
    found = [part for part in parts if not (_is_key(text, part) and keys[text[part.start]] > 1)]
    return sorted([*found, *_lacking(text, lacking, found)]) if lacking else found


def _is_key(text: str, part: Found) -> bool:
    return part.hidden and text[part.start : part.end] in ("&", "_")


def _formats(text: str, in_message: bool) -> Iterator[Found]:
    done, with_messages, closed, has_first = 0, True, set(_CLOSED.findall(text)), _FIRST.search(text)
    while match := _pattern(with_messages, in_message).search(text, done):
        (start, end), kind = match.span(), match.lastgroup
        if kind == "message":
            argument = messages.message_at(text, end)
            with_messages = argument is not None  # behind a malformed one, braces are braces
            if argument:
                yield Found(start, argument[0], texts=argument[1])
            done = argument[0] if argument else start
            continue
        hidden = _is_hidden(text, match, closed)
        belongs = str.isalnum if kind == "entity" else str.isdigit
        while not hidden and start > done and belongs(text[start - 1]):
            start -= 1
        while not hidden and belongs(text[end : end + 1]):
            end += 1
        if kind != "reference" or has_first:
            yield Found(start, end, hidden)
        done = end


def _is_hidden(text: str, match: re.Match[str], closed: Collection[str]) -> bool:
    """Return whether a part is no word. `closed` are the names of elements that are closed in the text."""
    raw, kind = match[0], match.lastgroup
    if kind == "tag":
        return "/" in (raw[1], raw[-2]) or re.split(r"[\s>]", raw[1:])[0] in closed
    if kind != "entity":
        return kind in ("key", "escape")
    character = html.unescape(raw)
    before, behind = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    is_word = len(character) > 1 or character.isalnum() or (before.isalpha() and behind.isalpha())
    return not is_word and bool((before + behind).strip())


_JOINERS = "\u200d\ufe0e\ufe0f\u20e3" + "".join(map(chr, range(0xE0020, 0xE0080)))
"""What joins and changes the characters of an emoji."""
_RUN = re.compile(r"[Ll]+|[Cc]+|(?:[Ssj]+ ?)+")


def _lacking(text: str, lacking: Collection[str], others: Sequence[Found]) -> list[Found]:
    """Return the words and the symbols outside `others` that have characters of `lacking`; such words in a row are one
    part, and such symbols. A symbol between words, or beside a digit, is a word.
    """
    marks = [_kind(character, character in lacking) for character in text]
    for part in others:
        marks[part.start : part.end] = "." * (part.end - part.start)
    kinds = "".join(marks)
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    words, symbols = [Found(-1, -1)], list[Found]()
    for run in _RUN.finditer(kinds):
        start, end = run.start(), run.start() + len(run[0].rstrip())
        if "L" in run[0] or ("C" in run[0] and "c" not in run[0]):
            joined = kinds[words[-1].end : start] == " "
            words.append(Found(words.pop().start if joined else start, end))
        elif "S" in run[0]:
            start -= text[start] in _JOINERS and text[start - 1 : start] in tuple("0123456789#*")  # a keycap
            before, behind = text[start - 1 : start], text[end : end + 1]
            between = before.isspace() and behind.isspace() and first < start and end < last
            symbols.append(Found(start, end, hidden=not (between or before.isdigit() or behind.isdigit())))
    return words[1:] + symbols


def _kind(character: str, lacking: bool) -> str:
    """Return the kind of a character: l for a letter or digit, c for one of a script without spaces, s for a symbol, j
    for what joins symbols. A capital: the model lacks it.
    """
    category = unicodedata.category(character)
    if character in _JOINERS and not (lacking and category == "Me"):
        return "j"
    kind = "c" if IN_SCRIPT.match(character) else "l" if category[0] in "LMN" and category != "Me" else "s"
    if kind == "s" and not lacking and category not in ("So", "Sk"):
        return " " if character.isspace() else "."
    return kind.upper() if lacking else kind
