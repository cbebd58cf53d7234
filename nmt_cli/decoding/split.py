"""Lines that are too long for the model, in parts that are not.

    text ──▶ parts_of ──▶ ids of each part, at most `longest`

A text is cut at sentence ends; a sentence that is still too long, at clause punctuation; a clause, at white space; a
word, between any two pieces. Cuts are taken where the parts come out about equally long. Nothing is lost: the parts'
texts, one after the other, are the text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

Encode = Callable[[list[str]], list[list[int]]]

LEVELS = (
    re.compile(r"(?:[.!?…]+[\"'»”’)\]]*\s+|[。！？]+[」』”]?\s*)"),
    re.compile(r"(?:[,;:–—]+\s+|\s[–—-]+\s|[、，；：]\s*)"),
    re.compile(r"\s+"),
)
"""What a unit ends with, best first."""


def parts_of(text: str, encode: Encode, longest: int, level: int = 0) -> list[list[int]]:
    """Ids of the text's parts, in order; one part when the text is short enough, none when it holds nothing."""
    [ids] = encode([text])
    if len(ids) <= longest:
        return [ids] if ids else []
    while level < len(LEVELS):
        units = _units(text, LEVELS[level])
        if len(units) > 1:
            sizes = [len(unit_ids) for unit_ids in encode(units)]
            # a unit that is too long is cut at the next level; joined units are one part, or cut again if they grew
            packed = _packed(units, sizes, longest)
            if len(packed) > 1:
                return [part for several in packed for part in parts_of(several, encode, longest, level)]
        level += 1
    count = -(-len(ids) // longest)
    return [ids[len(ids) * i // count : len(ids) * (i + 1) // count] for i in range(count)]


def _units(text: str, end: re.Pattern[str]) -> list[str]:
    cuts = [0, *(match.end() for match in end.finditer(text) if match.end() < len(text)), len(text)]
    return [text[left:right] for left, right in itertools.pairwise(cuts) if right > left]


def _packed(units: list[str], sizes: list[int], longest: int) -> list[str]:
    """Neighbouring units joined to parts of at most `longest` ids, about equally long."""
    total = sum(sizes)
    enough = -(-total // -(-total // longest))  # the size at which a part is closed
    parts: list[str] = []
    size = longest + 1
    for unit, more in zip(units, sizes, strict=True):
        if size + more > longest or size >= enough:
            parts.append("")
            size = 0
        parts[-1] += unit
        size += more
    return parts
