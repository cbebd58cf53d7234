"""Messages of ICU: arguments with a text for each number or word.

    {count, plural, =0 {no files} one {# file} other {# files}}  ──▶  message_at  ──▶  its end, the span of each text

A text may hold further arguments. An apostrophe before a brace begins a part that is read as it is, up to the next one.
"""

from __future__ import annotations

import re

HEADER = r"\{\s*[\w.-]{1,64}\s*,\s*(?:plural|select|selectordinal)\s*,(?:\s*offset:\d{1,9})?"
"""What an argument begins with, before its texts."""
DEEPEST = 32
"""An argument whose braces are nested deeper is malformed."""
_SELECTOR = re.compile(r"\s*(?:=\d{1,9}|[\w-]{1,64})\s*\{")
_END = re.compile(r"\s*\}")
_BRACE = re.compile(r"''|'[{}#|][^']*+'|[{}]")
IN_TEXT = r"(?<!')'[{}#|][^']*+'|(?<![&\w#])#(?![\w#])"
"""Parts of the texts that are no words: what apostrophes quote, and the sign of the number."""


def message_at(text: str, at: int) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return the end of an argument and the spans of its texts; `at` is the end of its HEADER.

    Return None if it is malformed. Takes time linear in the length of the text.
    """
    spans = []
    while selector := _SELECTOR.match(text, at):
        depth = 1
        for brace in _BRACE.finditer(text, selector.end()):
            depth += (brace[0] == "{") - (brace[0] == "}")
            if not 0 < depth < DEEPEST:
                break
        if depth:
            return None
        spans.append((selector.end(), brace.start()))
        at = brace.end()
    end = _END.match(text, at)
    return (end.end(), tuple(spans)) if end and spans else None
