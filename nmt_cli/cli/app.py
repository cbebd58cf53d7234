"""The command line: one file per subcommand, joined here. Only `run` turns errors into exit codes.

Exit codes: 0 success, 1 a named error of data or state, 2 wrong usage, 75 an error of the machine, 128 + signal (130
Ctrl-C, 143 SIGTERM).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer

from .. import __version__, console
from ..errors import MACHINE, RETRY, NeedsTorch, NmtError, shown
from . import output, process
from .arguments import option
from .command import CONTEXT, Group, command_of

COMPLETE = "_NMT_COMPLETE"
"""The environment variable with which the shell calls nmt on Tab, after `nmt --install-completion`."""
COMMANDS = {
    "From your text to a translator": {
        "init": ("init:init", "Write a recipe for your own text."),
        "preprocess": ("preprocess:preprocess", "Learn the subword vocabulary; write the shards for training."),
        "train": ("train:train", "Train a model, or resume its training."),
        "average": ("average:average", "Average a run's checkpoints into one model folder."),
        "translate": ("translate:translate", "Translate text: N lines in, N lines out, in order."),
        "job": ("job:group", "Translate a corpus on many machines: cut, done, joined."),
        "score": ("score:score", "Score translations against references, or by a model."),
    },
    "Models": {
        "models": ("models:group", "List models, and fetch ones that Mozilla publishes."),
        "import": ("import_model:import_model", "Convert a model of another toolkit, verified to be equal."),
        "export": ("export:export", "Convert a model for another library, verified to be equal."),
        "quantize": ("quantize:quantize", "Write a trained model in int8, in a quarter of the size."),
        "calibrate": ("calibrate:calibrate", "Fit the quality estimates of --confidence to your own data."),
    },
    "Serving": {"serve": ("serve:serve", "Serve translations over HTTP, with a page for people.")},
    "Looking inside": {
        "info": ("info:info", "Describe a recipe, run, model folder or shards."),
        "attend": ("attend:attend", "Show the attention of every head, as a page for the browser."),
    },
    "Data and trees": {
        "parse": ("parse:parse", "Parse sentences: N lines in, N trees out, in order."),
        "data": ("data:group", "Download a corpus, or turn treebanks into pairs."),
    },
}
"""The commands, in the order of --help: heading → name → where it is, and the first sentence of its own help, which
`nmt --help` shows without importing it.
"""


class _Commands(Group):
    """The commands of `nmt`. One is imported when it is named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names = [name for commands in COMMANDS.values() for name in commands]
        self.commands: Any = dict.fromkeys(names)  # typer suggests one of them for a wrong name

    def rows(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return names and what they do, by their headings."""
        return {
            heading: [(name, summary) for name, (_, summary) in commands.items()]
            for heading, commands in COMMANDS.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*self.commands]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None if there is none of that name."""
        for heading, commands in COMMANDS.items():
            if cmd_name in commands:
                module, _, name = commands[cmd_name][0].partition(":")
                return command_of(cmd_name, getattr(import_module(f"{__package__}.{module}"), name), heading)
        return None


app = typer.Typer(
    name="nmt",
    cls=_Commands,
    help='Train the Transformer of "Attention Is All You Need" on your own text, and translate with it.',
    epilog="To see it work on generated text: nmt preprocess && nmt train && nmt average",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    rich_markup_mode=None,
)


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
    from ..device.memory import of_memory

    no_memory = of_memory(error)
    if (why := _system_error(error, no_memory)) is None:
        return None
    console.fail(why)
    return RETRY if no_memory or (isinstance(error, OSError) and error.errno in MACHINE) else 1


def _system_error(error: BaseException, no_memory: bool) -> str | None:
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
    if no_memory:
        return (
            "out of memory: give smaller batches (--batch-tokens, --beam) or fewer --devices or --workers, or "
            "use a machine with more."
        )
    return None


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full. Free some space or choose another folder"
    if error.errno == errno.ENAMETOOLONG:
        return "the name is too long. Choose a shorter one"
    return error.strerror or str(error)
