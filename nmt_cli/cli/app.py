"""The command line: one file per subcommand, joined here. Only `run` turns errors into exit codes.

Exit codes: 0 success, 1 a named error of data or state, 2 wrong usage, 128 + signal (130 Ctrl-C, 143 SIGTERM).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__, console
from ..errors import NeedsTorch, NmtError, shown
from . import output, process
from .arguments import option
from .attend import attend
from .average import average
from .calibrate import calibrate
from .command import CONTEXT, Command, Group
from .completion import COMPLETE
from .data import group as data
from .export import export
from .import_model import import_model
from .info import info
from .init import init
from .parse import parse
from .preprocess import preprocess
from .quantize import quantize
from .score import score
from .serve import serve
from .train import train
from .translate import translate

app = typer.Typer(
    name="nmt",
    cls=Group,
    help='Train the Transformer of "Attention Is All You Need" on your own text, and translate with it.',
    epilog="To see it work on generated text: nmt preprocess && nmt train && nmt average",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    rich_markup_mode=None,
)
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "From your text to a translator": {
        "init": init,
        "preprocess": preprocess,
        "train": train,
        "average": average,
        "translate": translate,
        "score": score,
    },
    "Models": {"import": import_model, "export": export, "quantize": quantize, "calibrate": calibrate},
    "Serving": {"serve": serve},
    "Looking inside": {"info": info, "attend": attend},
    "Data and trees": {"parse": parse},
}
"""The commands, in the order of --help: heading → name → function. `nmt data` follows under the last heading."""
for heading, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, context_settings=CONTEXT, rich_help_panel=heading)(command)
app.add_typer(data, rich_help_panel=[*COMMANDS][-1])


def _version(wanted: bool) -> None:
    if wanted:
        output.write(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, option("Print the version and exit.", names=("--version",), callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of `nmt` itself."""


FAULT = (
    "this is a fault of nmt, not of what it was given. Please report it with the lines above and with what "
    "`nmt info --report` prints, which holds no paths and no text. CONTRIBUTING.md says how."
)
"""What the user is told after the traceback of an error that no command names."""


def run() -> int:
    """Run the command line and return its exit code."""
    try:
        code = _invoke()
        output.flush()
        return code
    except BaseException as error:
        exit_code = _report(error)
        output.drain()  # prints output from before the error that is still buffered
        if exit_code is not None:
            return exit_code
        if not isinstance(error, Exception):
            raise
        traceback.print_exception(error)
        console.fail(FAULT)
        return 1


def _invoke() -> int:
    """Run the command in the arguments and return its exit code. (`Typer.__call__` would turn interrupts and errors of
    stdout into its own codes.)
    """
    command = typer.main.get_command(app)
    if COMPLETE in os.environ:
        command.main(prog_name="nmt")  # answers the shell and exits
    try:
        with command.make_context("nmt", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def _report(error: BaseException) -> int | None:
    """Print on stderr why the command ends and return its exit code; None for an error of the program itself."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        error = NeedsTorch(" ".join(["nmt", *sys.argv[1:2]]))
    if isinstance(error, NmtError):
        if str(error) and not error.reported:
            console.fail(str(error))
        return error.exit_code
    if (number := process.signal_behind(error)) is not None:
        console.say("interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}")
        return 128 + number
    if (show := getattr(error, "show", None)) is not None:  # an error of typer: the command was called wrongly
        show()
        return int(getattr(error, "exit_code", 2))
    if (why := _system_error(error)) is None:
        return None
    console.fail(why)
    return 1


def _system_error(error: BaseException) -> str | None:
    """Return the message for an error of the system that no command has turned into an NmtError; None for any other
    error.
    """
    if isinstance(error, OSError):
        names = " → ".join(shown(name) for name in (error.filename, error.filename2) if name is not None)
        return f"cannot use {names}: {_reason(error)}." if names else f"the system refuses: {_reason(error)}."
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{shown(error.object)} contains characters that UTF-8 does not have: expected a name in UTF-8. Rename it."
        )
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "a file name contains a NUL character: expected one without."
    if isinstance(error, RecursionError):
        return "the input is nested too deeply."
    if isinstance(error, MemoryError) or _out_of_memory(error):
        return (
            "out of memory: give smaller batches (--batch-tokens, --beam) or fewer --devices or --workers, or "
            "use a machine with more."
        )
    return None


def _out_of_memory(error: BaseException) -> bool:
    """Return whether torch is loaded and `error` means that it could not allocate memory."""
    from ..hardware import out_of_memory

    return "torch" in sys.modules and isinstance(error, RuntimeError) and out_of_memory(error)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full. Free some space or choose another folder"
    if error.errno == errno.ENAMETOOLONG:
        return "the name is too long. Choose a shorter one"
    return error.strerror or str(error)
