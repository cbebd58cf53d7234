"""The commands that README, docs and RESULTS show: where they are, and whether they can be called so.

Two kinds are found. `Command.shown`: a command in a code block, or a benchmark in a sentence; it must be right as it
stands. Others are mentions: a name and options in a sentence, which must exist.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from nmt_cli.cli.app import app
from nmt_cli.errors import NmtError
from nmt_cli.recipe import load_recipe, recipe_names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), RESULTS]
PROGRAMS = "(?:nmt|python|torchrun|make|pip|curl)"
START = re.compile(rf"(?:srun )?{PROGRAMS}(?= |$)")
INSIDE = re.compile(rf"^(?:\w+=\S* )*(?:srun )?{PROGRAMS} |^awk |(?:\||&&|;) {PROGRAMS} ")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|(?<=\n\n)((?:^    \S.*\n)+)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PLACEHOLDERS = {
    r"\[--small\]": "--small",
    r"\bRECIPE\b": "multi30k_en_de",
    r"\$RANK\b|\$SLURM_(NNODES|JOB_ID|CPUS_PER_TASK)\b": "1",
    r"\$host\b": "HOST",
}
"""What stands for a choice in a document, and one of its values."""


@dataclass(frozen=True)
class Command:
    """A command line of a document."""

    where: str
    """Document and line."""
    text: str
    """One line, without its comment."""
    shown: bool = False
    comment: str = ""
    section: str = ""
    """Of a command in a block: its document and the line of the heading. A tutorial is one section: it is read from the top."""


def commands(document: Path) -> list[Command]:
    """Return the commands of a document: those in blocks in their order, then those in sentences."""
    text, name = document.read_text(encoding="utf-8"), document.relative_to(ROOT)
    found = []
    for block in BLOCK.finditer(text):
        if block[1] in (None, "", "bash", "sh"):
            first, variables = text.count("\n", 0, block.start(2 if block[3] is None else 3)) + 1, dict[str, str]()
            heading = 1 if name.parent.name == "tutorials" else _heading(text, block.start())
            for number, line in _logical_lines(block[2] if block[3] is None else block[3]):
                where = f"{name}:{first + number}"
                for variable, value in variables.items():
                    line = line.replace(f"${variable}", value)
                if " · nmt " in line:  # a list of commands
                    found += [Command(where, part) for part in line.split(" · ")]
                elif INSIDE.search(f"{line} "):
                    found.append(Command(where, *_without_comment(line), f"{name}:{heading}"))
                elif assigned := re.match(r"([A-Z])=\"(.*)\"$", line):
                    variables[assigned[1]] = assigned[2]
    blank = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for span in SPAN.finditer(blank):
        line = " ".join(span[1].split())
        if START.match(line) and "\n\n" not in span[1]:
            where = f"{name}:{blank.count(chr(10), 0, span.start()) + 1}"
            found.append(Command(where, line, line.startswith("python benchmarks/")))
    return found


def _heading(text: str, position: int) -> int:
    """Return the number of the line of the last heading before a position."""
    headings = [match.start() for match in re.finditer(r"^#+ ", text[:position], re.MULTILINE)]
    return text.count("\n", 0, headings[-1]) + 1 if headings else 1


def _logical_lines(body: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 0; a backslash at the end of a line, and an open quote of awk, join the next one."""
    joined, begun = "", 0
    for number, line in enumerate(body.split("\n")):
        begun = begun if joined else number
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
        elif joined.lstrip().startswith("awk ") and joined.count("'") % 2:
            joined += "\n"
        else:
            whole = re.sub(r"  +", " ", joined) if "'" not in joined else joined
            yield begun, whole.strip().removeprefix("$ ")
            joined = ""


def _without_comment(line: str) -> tuple[str, bool, str]:
    """Return a command, True, and the comment behind it."""
    split = re.match(r"((?:'[^']*'|\"[^\"]*\"|[^'\"#]|(?<=\S)#)*?)(?:\s+#\s*(.*))?$", line)
    return (split[1], True, split[2] or "") if split else (line, True, "")


def chosen(line: str) -> str:
    """Return a command line with a value for each of `PLACEHOLDERS`."""
    for placeholder, value in PLACEHOLDERS.items():
        line = re.sub(placeholder, value, line)
    return line


def wrong(line: str) -> str:
    """Return why a command cannot be called so, or ""."""
    line = chosen(line)
    return next((why for words in simple_commands(line) if (why := _wrong(words))), "")


def simple_commands(line: str) -> list[list[str]]:
    """Return the words of each command of a pipeline or list, without redirections."""
    found: list[list[str]] = [[]]
    words = iter(split(line))
    for word in words:
        if word in ("|", "&&", ";"):
            found.append([])
        elif word in ("<", ">", ">>"):
            next(words, None)
        else:
            found[-1].append(word)
    return found


def split(line: str) -> list[str]:
    """Return the words of a command line; operators of the shell are words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def _wrong(words: Sequence[str]) -> str:
    if words[:1] == ["srun"]:
        words = words[1:]
    match words:
        case ["nmt", *rest]:
            return _wrong_nmt(rest)
        case ["python", "-m", "nmt_cli", *rest]:
            return _wrong_nmt(rest)
        case ["python", script, *rest] if script.startswith("benchmarks/"):
            return _wrong_benchmark(script, rest)
        case ["torchrun", *rest]:
            return _wrong_torchrun(rest)
        case ["make", target]:
            done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
            return done.stderr if done.returncode else ""
        case ["pip", "install", *rest]:
            return _wrong_pip(rest)
    return ""


@cache
def _nmt() -> Any:
    return typer.main.get_command(app)


def _named(words: Sequence[str]) -> tuple[Any, Any, list[str]]:
    """Return the command of nmt that words name, its context, and the words behind the name."""
    command, rest = _nmt(), list(words)
    context = command.make_context("nmt", [], resilient_parsing=True)
    while rest and hasattr(command, "get_command") and (inner := command.get_command(context, rest[0])):
        command, name = inner, rest.pop(0)
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    return command, context, rest


def _wrong_nmt(words: Sequence[str]) -> str:
    command, context, rest = _named(words)
    if command is _nmt() and rest and not rest[0].startswith("-"):
        return f"nmt has no command {rest[0]!r}"
    if {"-h", "--help"} & {*rest}:
        return ""
    try:
        asked = command.make_context(context.info_name, rest, parent=context.parent).params
        recipe = str(asked.get("recipe") or "demo")
        known = recipe in recipe_names()
        load_recipe(recipe if known else "demo", asked.get("overrides") or [])
        return "" if known or recipe.endswith(".toml") or "recipe" not in asked else f"no recipe is called {recipe!r}"
    except NmtError as error:
        return str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's errors of usage have it
            raise
        return str(error.format_message())


def unknown_options(line: str) -> list[str]:
    """Return what a mention of nmt has that does not exist: its command, or options."""
    command, _, rest = _named(split(line.replace("…", ""))[1:])
    if command is _nmt() and rest and re.fullmatch("[a-z]+", rest[0]):
        return rest[:1]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    return [option for option in options if option not in {*known, "-h", "--help"}]


class _Parsed(Exception):
    """The options of a benchmark are right."""


def _wrong_benchmark(script: str, words: Sequence[str]) -> str:
    if not (ROOT / script).is_file():
        return f"there is no {script}"
    parse = argparse.ArgumentParser.parse_args

    def stop(*arguments: Any, **options: Any) -> None:
        parse(*arguments, **options)
        raise _Parsed

    def fail(_: Any, message: str) -> None:
        raise ValueError(message)

    with (
        patch.object(sys, "path", [str(ROOT / "benchmarks"), *sys.path]),
        patch.object(sys, "argv", [script, *words]),
        patch.object(argparse.ArgumentParser, "parse_args", stop),
        patch.object(argparse.ArgumentParser, "error", fail),
    ):
        try:
            import_module(Path(script).stem).main()
        except _Parsed:
            return ""
        except ValueError as error:
            return str(error)
    return f"{script} does not read its options first"


def _wrong_torchrun(words: Sequence[str]) -> str:
    from torch.distributed.run import get_args_parser

    try:
        options = get_args_parser().parse_args([*words])
    except SystemExit:
        return "torchrun does not know these options"
    rest = [word for word in options.training_script_args if word != "--"]
    return _wrong_nmt(rest) if options.training_script == "nmt_cli" else f"torchrun runs {options.training_script!r}"


def _wrong_pip(words: Sequence[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    files = [words[number + 1] for number, word in enumerate(words) if word == "-c"]
    if missing := [name for name in files if not (ROOT / name).is_file()]:
        return f"there is no {missing[0]}"
    for word in words:
        if word.startswith("nmt"):
            return "no index has this package: install it from its folder"
        if (extra := re.fullmatch(r"\.\[(\w+)\]", word)) and extra[1] not in extras:
            return f"there is no extra {extra[1]!r}"
    return ""
