"""Reads WMT's .sgm files (before 2021) as lines: the text of each <seg>, in order.

The files are not parsed as SGML, and nothing is unescaped, so the lines are the same as in sacrebleu and for published
scores. A run of Unicode white space inside a segment becomes one space; white space at its ends is removed. An empty
segment is an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import DataError

OPENING = re.compile(r"<seg(\s[^>]*)?>", re.IGNORECASE)
CLOSING = re.compile(r"</seg\s*>", re.IGNORECASE)


def segments(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the segments in the lines of the .sgm file called `name`.

    Raises DataError if a segment is not closed, or if there is none.
    """
    count, text, begun = 0, "", 0
    for number, line in enumerate(lines, 1):
        text += line
        while True:
            if not begun:
                opening = OPENING.search(text)
                if opening is None:
                    text = ""
                    break
                text, begun = text[opening.end() :], number
            closing, again = CLOSING.search(text), OPENING.search(text)
            if again is not None and (closing is None or again.start() < closing.start()):
                raise _unclosed(name, begun)
            if closing is None:
                text += "\n"
                break
            yield " ".join(text[: closing.start()].split())
            text, begun, count = text[closing.end() :], 0, count + 1
    if begun:
        raise _unclosed(name, begun)
    if not count:
        raise DataError(f"{name!r} holds no <seg>: expected an .sgm file of WMT, with a <seg> … </seg> for each line.")


def _unclosed(name: str, line: int) -> DataError:
    return DataError(
        f"{name!r}: the <seg> of line {line:,} is not closed by </seg>. The file is cut or damaged; fetch it again."
    )
