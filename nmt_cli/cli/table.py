"""Tables on stdout: on a terminal rich prints them with lines, elsewhere they are plain columns with the same cells.

In a plain table, two or more spaces separate the cells, and the last column may contain spaces.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import output


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    width: int = 0
    """Minimum width, in characters."""
    left: bool = False
    """True: align left, as text. False: align right, as numbers."""


@dataclass(frozen=True)
class Table:
    """A table of cells that are text already."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """Return the title, if there is one, the column names, and one line per row, without spaces at line ends."""
        cells = [[column.name for column in self.columns], *self.rows]
        widths = [max(column.width, *(len(row[index]) for row in cells)) for index, column in enumerate(self.columns)]
        lines = [
            "  ".join(
                cell.ljust(width) if column.left else cell.rjust(width)
                for cell, width, column in zip(row, widths, self.columns, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines] if self.title else lines)


def show(parts: Sequence[str | Table]) -> None:
    """Print text and tables with blank lines between them."""
    if sys.stdout.isatty():
        _print_rich(parts)
    else:
        output.write("\n\n".join(part if isinstance(part, str) else part.plain() for part in parts))


def _print_rich(parts: Sequence[str | Table]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    def printable(text: str) -> str:
        return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"))

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    for number, part in enumerate(parts):
        if number:
            console.print()
        if isinstance(part, str):
            console.print(printable(part))
            continue
        console.print(f"[bold]{printable(part.title)}[/bold]")
        table = RichTable()
        for column in part.columns:
            table.add_column(
                printable(column.name),
                justify="left" if column.left else "right",
                no_wrap=not column.left,
                overflow="fold",
            )
        for row in part.rows:
            table.add_row(*(printable(cell) for cell in row))
        console.print(table)
