"""The classes of every command and group: what `--help` prints, and that an option with one value is refused if it is
given several values.

The help is plain text in two columns; a terminal shows it in colour. What a command does, its docstring, is at most
three lines, so that the options are seen. Ranges of numbers are left out: the error of a value outside them names them.
"""

from __future__ import annotations

import os
import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from ..errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"]}
"""The settings of every command and group."""
RANGE = re.compile(r"; [\d.]+<=x<=[\d.]+|  \[[\d.]+<=x<=[\d.]+\]")
"""A range of numbers, as click adds it to the help of an option."""
Rows = dict[str, list[tuple[str, str]]]
"""Rows of --help, name and text, by their heading."""


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the arguments and options of a command, by their headings."""
    rows = Rows(Arguments=[])
    for parameter in command.get_params(ctx):
        if record := parameter.get_help_record(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = getattr(parameter, "rich_help_panel", None) or kind
            rows.setdefault(heading, []).append((re.sub(r" <\S+>$", "", record[0]), RANGE.sub("", record[1])))
    _write(rows, formatter)


def _write(by_heading: Rows, formatter: Any) -> None:
    """Write rows of --help. The first column is as wide as the longest name, at most a third of the page."""
    width = min(max((len(name) for rows in by_heading.values() for name, _ in rows), default=0), formatter.width // 3)
    for heading, rows in by_heading.items():
        if not rows:
            continue
        with formatter.section(_styled(heading, bold=True)):
            formatter.write_dl([(_styled(name.ljust(width), fg="cyan"), text) for name, text in rows], width)


def _styled(text: str, **style: Any) -> str:
    """Return text with colours, which are left out where the output is no terminal."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else typer.style(text, **style)


class Group(TyperGroup):
    """`nmt` itself, or a command that has commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, by their headings, then the options."""
        _write(self.rows(ctx), formatter)
        write_parameters(self, ctx, formatter)

    def rows(self, ctx: Any) -> Rows:
        """Return the names of the commands, and what each does, by their headings."""
        commands: list[tuple[str, Any]] = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return {"Commands": [(name, " ".join((made.help or "").split("\n\n")[0].split())) for name, made in commands]}


class Command(TyperCommand):
    """A command of `nmt`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the line Usage: an argument that is required has no braces."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, by their headings."""
        write_parameters(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for two values of one option: click would drop the first."""
        single = [
            option
            for option in self.get_params(ctx)
            if isinstance(option, TyperOption) and not (option.multiple or option.count or option.is_eager)
        ]
        for option in single:
            option.multiple = True  # so that the parser returns all values
        try:
            values = self.make_parser(ctx).parse_args(args=list(args))[0]
        finally:
            for option in single:
                option.multiple = False
        for option in single:
            given = values.get(option.name or "", [])
            if len(dict.fromkeys(given) if option.is_flag else given) > 1 and not ctx.resilient_parsing:
                raise UsageError(_twice(option, given))
        return super().parse_args(ctx, args)


def command_of(name: str, found: Any, heading: str | None = None, help: str | None = None) -> Any:
    """Return the command `name` of a function, or of a group's Typer. Its help is the docstring unless it is given."""
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name, cls=Command, help=help, context_settings=CONTEXT)(function)
    made: Any = typer.main.get_command(found)
    made.rich_help_panel = heading
    return made


def _twice(option: TyperOption, given: list[Any]) -> str:
    if option.is_flag:
        return f"{option.opts[-1]} and {option.secondary_opts[-1]} were both given: give one of them."
    values = ", ".join(repr(str(value)) for value in given)
    return f"{option.opts[0]} was given {len(given)} times ({values}), and it takes one value. Give it once."
