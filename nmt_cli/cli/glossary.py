"""Recognise a glossary, a list of pairs of source and target, where a file with an entry for each input line was
expected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..scripts import IN_SCRIPT

SEPARATORS = ("\t", ";", ",", "=")
"""Characters between source and target, as in tables, CSV files and lists."""


def glossary_pair(entries: Sequence[str], lines: Sequence[str], separators: Sequence[str] = SEPARATORS) -> list[str]:
    """Return a pair of the glossary that `entries` seem to be: [source, target]. Return [] if they are no glossary.

    In a glossary, all entries have the same number of columns, two or more, and none is blank. At least half of the
    sources occur in the input `lines`, and their targets do not. Terms are target text, so they rarely look like this.
    """
    for separator in separators:
        rows = [[cell.strip(' "') for cell in entry.split(separator)] for entry in entries]
        if all(len(row) == len(rows[0]) > 1 and row[0] and row[1] for row in rows):
            text = "\n".join(lines).casefold()
            pairs = [row[:2] for row in rows if _occurs(row[0], text) and not _occurs(row[1], text)]
            if pairs and 2 * len(pairs) >= len(rows):
                return pairs[0]
    return []


def _occurs(term: str, text: str) -> bool:
    """Return whether a word of the text begins with the term; in scripts without spaces, whether the text contains
    it.
    """
    begins = "" if IN_SCRIPT.match(term) else r"(?<!\w)"
    return re.search(begins + re.escape(term.casefold()), text) is not None
