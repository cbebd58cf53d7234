"""Options that several commands share, and how a path is read from the command line.

Every command imports this file, also `nmt -h`. So it must import nothing that loads slowly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

STDIN = Path("-")
"""The path that means standard input."""
STDIN_TWICE = "'-' (standard input) was given more than once: it can be read only once."


def option(
    help: str, metavar: str | None = None, heading: str | None = None, names: tuple[str, ...] = (), **more: Any
) -> Any:
    """Return an option of a command.

    Without `names` it is called as its parameter; a flag needs one, else typer adds --no-NAME.

    `heading` is its heading in --help. `more`: see typer.Option.
    """
    return typer.Option(*names, metavar=metavar, rich_help_panel=heading, help=help, **more)


def argument(help: str, metavar: str | None = None, **more: Any) -> Any:
    """Return a positional argument of a command. `more`: see typer.Argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


def model_option(help: str, heading: str | None = None) -> Any:
    """Return the option of a model or run folder."""
    return option(help, "DIR", heading, names=("--model", "-m"))


def out_option(help: str, metavar: str = "DIR") -> Any:
    """Return the option of a file or folder to write."""
    return option(help, metavar, names=("--out", "-o"), parser=output_path)


def recipes(incomplete: str) -> list[str]:
    """Return the names of recipes that begin so, for the shell. Without any, the shell completes names of files."""
    from ..recipe import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


def output_path(value: str | Path) -> Path:
    """Return the path of an output.

    Raises typer.BadParameter for an empty name, which would be the working folder, for a NUL character and for the root
    folder.
    """
    text = str(value)
    if not text:
        raise typer.BadParameter("the name is empty; expected the path of a file or folder.")
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} contains a NUL character, which no path can contain.")
    if os.path.exists(text) and os.path.samefile(text, "/"):
        raise typer.BadParameter(f"{text!r} is the root folder; expected a file or folder of your own.")
    return Path(text)


MODEL_FOLDER = "Model folder, run folder (its averaged model, else the best, else the last), or a name in `nmt models`"
DEFAULT_MODEL = "  [env var: NMT_MODEL; default: runs/latest]"
"""Parts of help texts."""
ModelFolder = Annotated[Path, argument(f"{MODEL_FOLDER}.", "MODEL")]
RecipeName = Annotated[str, argument("Name of a recipe, or path of a .toml file.", "RECIPE", autocompletion=recipes)]
VerifiedText = Annotated[
    Path | None, option("Also compare on these lines, at most the first 1,000 (plain, .gz, .xz, .bz2, .zst).", "FILE")
]
DecodeOverrides = Annotated[
    list[str] | None,
    option("Override a key of the recipe's [decode]; repeatable.", "decode.KEY=VALUE", names=("--set",)),
]
Device = Annotated[str, option("auto, cpu, cuda, cuda:N or mps.", "D")]
Devices = Annotated[
    int | None,
    option(
        "Number of workers: CPU cores or GPUs.  [default: all cores that the process may use; 1 GPU]",
        "N",
        min=1,
        max=1024,
    ),
]
Precision = Annotated[
    str,
    option(
        "fp32, bf16, fp16, int8 or auto (the fastest on this hardware). fp32 is exact; the others differ "
        "from it by rounding.",
        "P",
    ),
]
InputFile = Annotated[
    Path | None,
    option("Read from FILE (plain, .gz, .xz, .bz2, .zst) instead of stdin.", "FILE", names=("--input", "-i")),
]
Overrides = Annotated[
    list[str] | None, option("Override a key of the recipe; repeatable.", "SECTION.KEY=VALUE", names=("--set",))
]
OutputFile = Annotated[
    Path | None,
    option(
        "Write to FILE instead of stdout, when everything is done; an existing file is replaced. The ending .gz, .xz, "
        ".bz2 or .zst compresses it.",
        "FILE",
        names=("--output", "-o"),
        parser=output_path,
    ),
]
