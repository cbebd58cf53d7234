"""What several commands' options share: how a path is read from the command line."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def output_path(value: str | Path) -> Path:
    """Read the path of an output; an empty one would mean the working directory. Raises typer.BadParameter."""
    text = str(value)
    if not text:
        raise typer.BadParameter("the name is empty; expected the path of a file or folder.")
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} holds a NUL character, which no path can.")
    if os.path.exists(text) and os.path.samefile(text, "/"):
        raise typer.BadParameter(f"{text!r} is the root folder; expected a file or folder of your own.")
    return Path(text)
