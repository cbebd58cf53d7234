"""Tables on stdout: columns that two or more spaces separate. The last column may contain spaces."""

from __future__ import annotations

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
    output.write("\n\n".join(part if isinstance(part, str) else part.plain() for part in parts))
