"""The command line: a file a subcommand, put together here. The one place that turns faults into exit codes.

Exit: 0 done, 1 a named fault of data or state, 2 usage, 130 / 143 stopped by a signal.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .. import __version__, console
from ..errors import NmtError
from .attend import attend
from .average import average
from .data import group as data
from .export import export
from .info import info
from .preprocess import preprocess
from .score import score
from .train import train
from .translate import translate

app = typer.Typer(
    name="nmt",
    help='The Transformer of "Attention Is All You Need": from two text files to a scored translation.',
    epilog="nmt data · nmt preprocess · nmt train · nmt average · nmt translate < input · nmt score",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)
for command in (preprocess, train, average, translate, score, attend, export, info):
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(command)
app.add_typer(data)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False) -> None:
    """Options of `nmt` itself."""


def run() -> int:
    """Run the command line and return its exit code."""
    try:
        returned = app(standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        console.say("interrupted")
        return 130
    except NmtError as error:
        if str(error):
            console.fail(str(error))
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away: nothing to say, nothing to flush
        return 0
    except Exception as error:
        show = getattr(error, "show", None)  # typer's own: the command was called wrongly
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    return returned if isinstance(returned, int) else 0
