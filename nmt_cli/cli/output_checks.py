"""The checks of the outputs in `nmt score --src` as text: a table of counts, and the worst lines.

    one SystemOutputs per system (`interface.evaluation`) ──▶ texts

Each text is shown in one row. If it is too long for the row, its middle is left out. Control characters are written as
their numbers.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from ..interface.evaluation import SystemOutputs, WorstLine
from .table import Column, Table

ROW = 200
"""Characters of a row if the output is not a terminal."""
NARROWEST = 40
JOINERS = "\u200c\u200d"
"""Invisible characters that the spelling of some scripts needs. They are harmless."""


def texts(results: Sequence[SystemOutputs]) -> Iterable[str | Table]:
    """Yield the table of counts, then the worst lines of each system."""
    if not results:
        return
    names = list(results[0].counts)
    rows = [[str(result.lines), *(str(result.counts[name]) for name in names), result.system] for result in results]
    yield Table(
        "outputs  (lines with a fault)",
        [Column("lines", 6), *(Column(name) for name in names), Column("system", left=True)],
        rows,
    )
    width = max(shutil.get_terminal_size().columns, NARROWEST) if sys.stdout.isatty() else ROW
    for result in results:
        if result.worst:
            yield "\n".join([f"{result.system}  worst lines", *(_shown(line, width) for line in result.worst)])


def _shown(line: WorstLine, width: int) -> str:
    """Return four rows for one of the worst lines: number, errors and chrF; source; hypothesis; reference."""
    sides = (("SRC", line.source), ("HYP", line.hypothesis), ("REF", line.reference))
    head = f"line {line.number}  {', '.join(line.faults) or 'no fault'}  chrF2 {line.chrf:.2f}"
    return "\n".join([head, *(f"  {side}  {shortened(visible(text), width - 7)}".rstrip() for side, text in sides)])


def visible(text: str) -> str:
    """Return `text` in a form that cannot control a terminal: control characters become numbers, such as \\x1b, and
    every kind of space a plain space.
    """
    return "".join(
        character
        if character.isprintable() or character in JOINERS
        else " "
        if unicodedata.category(character) == "Zs"
        else repr(character)[1:-1]
        for character in text
    )


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` columns of a terminal. If it is longer, "…" replaces its middle."""
    columns = [_columns(character) for character in text]
    if sum(columns) <= width:
        return text
    return _fitting(text, (width - 1) - (width - 1) // 2) + "…" + _fitting(text[::-1], (width - 1) // 2)[::-1]


def _fitting(text: str, width: int) -> str:
    """Return the longest beginning of `text` that fits into `width` columns."""
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return text[:index]
    return text


def _columns(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
