"""Untranslatable parts of a text: URLs, e-mail addresses, and the placeholders of message formats.

    "Mail {name} at a@b.org."  ──▶  find_placeholders  ──▶  [(5, 11), (15, 22)]

The parts are found before the text is split into sentences, so that a full stop inside a part ends no sentence.
"""

from __future__ import annotations

import re

_URL = r"(?:(?:https?|ftp)://|www\.)[^\s<>\"{}|\\^`\ufffc]*[^\s<>\"{}|\\^`\ufffc.,;:!?'”’»…)\]]"
_EMAIL = (
    r"(?<![\w.+-])[A-Za-z0-9](?:[\w.+-]{0,62}[\w+-])?@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}\.){1,8}[A-Za-z]{2,24}(?![\w@-])"
)
_BRACES = r"\$?\{\{[^{}\n]{1,100}\}\}|[$%#]?\{[^{}\s][^{}\n]{0,99}\}|\{\}"
_PRINTF = (
    r"(?<![\w%])%(?:\([^()\s]{1,64}\))?(?:\d{1,2}\$)?[-+#0]{0,5}\d{0,3}(?:\.\d{1,3})?"
    r"(?:hh?|ll?|[Lzjt])?[diouxXeEfFgGcrsa@](?![A-Za-z])|%%"
)
PLACEHOLDER = re.compile("|".join((_URL, _EMAIL, _BRACES, _PRINTF)))
"""Each repetition has an upper bound or its own character class, so the search takes time linear in the text."""


def find_placeholders(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each untranslatable part of a text, in order.

    Digits that touch a part belong to it.
    """
    spans: list[tuple[int, int]] = []
    done = 0
    for match in PLACEHOLDER.finditer(text):
        start, end = match.span()
        while start > done and text[start - 1].isdigit():
            start -= 1
        while end < len(text) and text[end].isdigit():
            end += 1
        spans.append((start, end))
        done = end
    return spans
