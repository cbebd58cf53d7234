"""The record NAME.trees.json beside the files of a conversion. With it the next conversion may replace these files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from ..errors import DataError
from ..storage.sealed_json import Record, read_record


class Conversion(Record):
    """A record of the files that `nmt data trees` wrote."""

    files: dict[str, str]
    """SHA-256 of the files, by name."""
    terminals: Literal["xx", "tags", "words", "both"] = "xx"
    """The terminals of NAME.linear, one of `linearization.TERMINALS`. Files of earlier versions do not have it."""


def conversion_of(path: Path, remedy: str = "Move it away.") -> Conversion | None:
    """Return the record beside a file NAME.words, NAME.linear or NAME.ptb; None if there is no record.

    Raises DataError, with the `remedy`, for a damaged record.
    """
    try:
        return read_record(path.with_suffix(".trees.json"), Conversion, DataError, remedy)
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_terminals(targets: Iterable[Path], terminals: str) -> None:
    """Raise DataError if linearised trees were written with another kind of terminals than `terminals`.

    Trees without a record pass.
    """
    for path in targets:
        conversion = conversion_of(path)
        if conversion is not None and path.name in conversion.files and conversion.terminals != terminals:
            raise DataError(
                f"the words of the trees in {str(path)!r} are written as {conversion.terminals}, the recipe has "
                f"data.terminals = {terminals!r}. Write the trees again, into another folder: nmt data trees … "
                f"--terminals {terminals} --out DIR. Or give --set data.terminals={conversion.terminals}."
            )
