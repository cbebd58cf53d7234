"""What several commands' options share: how a path is read from the command line."""

from __future__ import annotations

from pathlib import Path

import typer


def output_path(value: str | Path) -> Path:
    """Read the path of an output; an empty one would mean the working directory. Raises typer.BadParameter."""
    text = str(value)
    if not text:
        raise typer.BadParameter("the name is empty; expected the path of a file or folder.")
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} holds a NUL character, which no path can.")
    return Path(text)
