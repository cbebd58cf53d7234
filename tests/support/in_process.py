"""Commands of `nmt` in this process: what they print and what they refuse. What concerns the process itself needs `forked`.

printed("score hyp --ref ref", "--width", 1)      the words of a line, and arguments that stay as they are
"""

import json
import shlex
from typing import Any

import torch
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from nmt_cli.cli.app import app
from nmt_cli.errors import NmtError


def commands(group: Any = None, path: str = "") -> dict[str, Any]:
    """Every command by its words."""
    found: dict[str, Any] = {}
    group = group or typer.main.get_command(app)
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        words = f"{path} {name}".strip()
        found |= commands(command, words) if isinstance(command, TyperGroup) else {words: command}
    return found


def invoke(line: str, *more: object, stdin: str | bytes = b"") -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, [*shlex.split(line), *map(str, more)], input=stdin)
    torch.set_num_threads(threads)
    return result


def ran(line: str, *more: object, stdin: str | bytes = b"") -> Result:
    """A command that must succeed."""
    result = invoke(line, *more, stdin=stdin)
    assert result.exit_code == 0, (line, more, result.exception, result.output)
    return result


def printed(line: str, *more: object, stdin: str | bytes = b"") -> str:
    """What it prints on stdout; it must succeed."""
    return ran(line, *more, stdin=stdin).stdout


def objects(line: str, *more: object, stdin: str | bytes = b"") -> list[Any]:
    """The JSON that it prints, a value a line."""
    return [json.loads(one) for one in printed(line, *more, stdin=stdin).split("\n")[:-1]]


def warnings(line: str, *more: object, stdin: str | bytes = b"") -> list[str]:
    """What it says on stderr; it must succeed."""
    return [one.removeprefix("warning: ") for one in ran(line, *more, stdin=stdin).stderr.splitlines()]


def refused(line: str, *more: object, stdin: str | bytes = b"", code: int = 2) -> str:
    """Why a command refuses what it is given, by a named error or by the parser, with nothing on stdout."""
    result = invoke(line, *more, stdin=stdin)
    error = result.exception
    assert isinstance(error, NmtError | SystemExit), (line, more, error, result.output)
    status = error.exit_code if isinstance(error, NmtError) else result.exit_code
    assert (status, result.stdout) == (code, ""), (line, more, error, result.output)
    return str(error) if isinstance(error, NmtError) else result.stderr


def unnamed(line: str, rows: str, code: int = 2) -> list[str]:
    """Rows whose command is not refused by naming what the row says: "arguments → words", several words behind ` & `."""
    wrong = []
    for row in filter(str.strip, rows.splitlines()):
        arguments, _, words = row.partition(" → ")
        said = refused(f"{line} {arguments}", code=code)
        wrong += [f"{row.strip()}: {said}"] * any(word.strip() not in said for word in words.split(" & "))
    return wrong
