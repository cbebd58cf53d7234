"""Tables on stdout: drawn by rich where a person looks on, plain columns everywhere else, with the same cells.

In plain tables cells are parted by two spaces or more, and the last column may hold spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    name: str
    width: int = 0
    """At least so many characters."""
    left: bool = False
    """Text stands at the left, numbers at the right."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """The title, the names of the columns, a line a row; no spaces at the end of lines."""
        cells = [[column.name for column in self.columns], *self.rows]
        widths = [max(column.width, *(len(row[place]) for row in cells)) for place, column in enumerate(self.columns)]
        lines = [
            "  ".join(cell.ljust(width) if column.left else cell.rjust(width) for cell, width, column in zip(row, widths, self.columns, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines])


def show(parts: Sequence[str | Table]) -> None:
    """Print text and tables, a blank line between them."""
    import sys

    from . import output

    if sys.stdout.isatty():
        _draw(parts)
    else:
        output.write("\n\n".join(part if isinstance(part, str) else part.plain() for part in parts))


def _draw(parts: Sequence[str | Table]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    def printable(text: str) -> str:
        return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"))

    console = Console(highlight=False, soft_wrap=True)
    for number, part in enumerate(parts):
        if number:
            console.print()
        if isinstance(part, str):
            console.print(printable(part))
            continue
        console.print(f"[bold]{printable(part.title)}[/bold]")
        table = RichTable()
        for column in part.columns:
            table.add_column(printable(column.name), justify="left" if column.left else "right", no_wrap=not column.left, overflow="fold")
        for row in part.rows:
            table.add_row(*(printable(cell) for cell in row))
        console.print(table)
