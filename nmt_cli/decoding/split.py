"""Split lines that are too long for the model into shorter parts.

    text ──▶ parts_of ──▶ token ids of each part, at most `longest`

A text is split at sentence ends. A sentence that is still too long is split at clause punctuation, a clause at white space,
and a word between any two subwords. The parts are about equally long. Nothing is lost: the texts of the parts, joined, are
the text.
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
"""The patterns after which a text may be split, best first."""


def parts_of(text: str, encode: Encode, longest: int, level: int = 0) -> list[list[int]]:
    """Return the ids of the parts of a text, in order: one part if the text is short enough, none if it has no tokens."""
    [ids] = encode([text])
    if len(ids) <= longest:
        return [ids] if ids else []
    while level < len(LEVELS):
        units = _units(text, LEVELS[level])
        if len(units) > 1:
            sizes = [len(unit_ids) for unit_ids in encode(units)]
            # a unit that is too long is split at the next level, as are joined units that have more ids than the sum of their parts
            packed = _packed(units, sizes, longest)
            if len(packed) > 1:
                return [part for unit in packed for part in parts_of(unit, encode, longest, level)]
        level += 1
    count = -(-len(ids) // longest)
    return [ids[len(ids) * i // count : len(ids) * (i + 1) // count] for i in range(count)]


def _units(text: str, end: re.Pattern[str]) -> list[str]:
    """Return the text, split after each match of `end`."""
    cuts = [0, *(match.end() for match in end.finditer(text) if match.end() < len(text)), len(text)]
    return [text[left:right] for left, right in itertools.pairwise(cuts) if right > left]


def _packed(units: list[str], sizes: list[int], longest: int) -> list[str]:
    """Join neighbouring units into parts of at most `longest` ids, about equally long. Return the parts."""
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
