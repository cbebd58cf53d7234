"""The checks of the outputs in `nmt score --src` as text: a table of counts, and the worst lines.

    one SystemOutputs per system (`interface.evaluation`) ──▶ texts

Each text is shown in one row. If it is too long for the row, its middle is left out. Control characters are written as
their numbers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from ..errors import printable
from ..interface.evaluation import SystemOutputs, WorstLine
from .table import Column, Table

ROW = 200
"""Characters of a row if the output is not a terminal."""
NARROWEST = 40


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
    head = f"line {line.line}  {', '.join(line.faults) or 'no fault'}  chrF2 {line.chrf:.2f}"
    return "\n".join([head, *(f"  {side}  {shortened(printable(text), width - 7)}".rstrip() for side, text in sides)])


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` columns of a terminal. If it is longer, "…" replaces its middle."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - end)}…{set_cell_size(text[::-1], end)[::-1]}"
