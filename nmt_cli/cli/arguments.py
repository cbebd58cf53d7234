"""Options that several commands share, and how a path is read from the command line.

Every command imports this file, also `nmt -h`. So it must import nothing that loads slowly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

STDIN = Path("-")
"""The path that means standard input."""
SEARCH = "Search"
"""A heading in --help."""
STDIN_TWICE = "'-' (standard input) was given more than once: it can be read only once."

Alpha = Annotated[
    float | None,
    typer.Option(
        "--alpha",
        metavar="A",
        rich_help_panel=SEARCH,
        help="Exponent of the length penalty gnmt; 0: no penalty.  [default: the recipe's, 0.6]",
        show_default=False,
    ),
]
BeamSize = Annotated[
    int | None,
    typer.Option(
        "--beam",
        metavar="W",
        rich_help_panel=SEARCH,
        help="Beam size (1: greedy).  [default: the recipe's, 4]",
        show_default=False,
    ),
]
DecodeOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="decode.KEY=VALUE",
        help="Override a key of the recipe's [decode]; repeatable.",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
MinLength = Annotated[
    int | None,
    typer.Option(
        "--min-length",
        metavar="N",
        rich_help_panel=SEARCH,
        help="Shortest output: N tokens that are not white space; 0 allows an empty output.  [default: the recipe's, 1]",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Override a key of the recipe; repeatable.", show_default=False
    ),
]


def output_path(value: str | Path) -> Path:
    """Return the path of an output. Raises typer.BadParameter for an empty name, which would be the working folder, for a NUL character and for the root folder."""
    text = str(value)
    if not text:
        raise typer.BadParameter("the name is empty; expected the path of a file or folder.")
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} contains a NUL character, which no path can contain.")
    if os.path.exists(text) and os.path.samefile(text, "/"):
        raise typer.BadParameter(f"{text!r} is the root folder; expected a file or folder of your own.")
    return Path(text)
