"""The sources of the documentation site, for `make docs`: the project's own pages, and pages that are made here.

    python tools/documentation.py build/docs-source

The folder gets README, docs/, RESULTS and other pages in the places that they have in the repository, so that a link
works in both. A file of another kind that a page links to (a recipe, a source file, a notebook) becomes a page. Made
here are the references: the commands from the options of nmt_cli.cli.app, the recipe from nmt_cli.recipe, the public
names of Python, whose docstrings mkdocstrings reads, and the recipes in the package.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import griffe
import typer
from pydantic.fields import FieldInfo

import nmt_cli
from nmt_cli.cli.app import app
from nmt_cli.interface.options import TranslateKeywords
from nmt_cli.recipe import SECTIONS, Option, recipe_names

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "benchmarks/RESULTS.md"]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".toml": "toml"}


def main() -> None:
    """Write the sources into the folder in the arguments, which is emptied first."""
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs", ignore=shutil.ignore_patterns("*.ipynb"))
    for page in [*PAGES, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]:
        write(out / page, with_pages(page, (ROOT / page).read_text(encoding="utf-8"), out))
    reference = out / "docs" / "reference"
    write(reference / "commands.md", commands())
    write(reference / "recipe.md", recipe())
    write(reference / "recipes.md", recipes())
    write(reference / "python.md", python())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def with_pages(page: str, text: str, out: Path) -> str:
    """Return the text of a page with its links to files that are no pages led to pages that are made of them."""

    def linked(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(page), link[1]))
        if link[1].endswith((".md", ".png", ".svg")):
            return link[1]
        if not (ROOT / path).is_file():
            raise SystemExit(f"{page}: there is no {path}")
        write(out / f"{path}.md", page_of(ROOT / path))
        return f"{link[1]}.md"

    return LINK.sub(linked, text)


def page_of(path: Path) -> str:
    """Return a page that shows a file: a notebook's cells, or the text in a block of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "\n\n".join(notebook(json.loads(text)))
    return f"# {path.relative_to(ROOT)}\n\n{code(text, LANGUAGES.get(path.suffix, ''))}"


def notebook(content: dict[str, Any]) -> Iterator[str]:
    for cell in content["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else code(text, "python")
        for output in cell.get("outputs", ()):
            yield code("".join(output.get("text") or output.get("data", {}).get("text/plain", ())), "")


def code(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows]) + "\n"


def prose(text: str) -> str:
    """Return text of a docstring or of --help for Markdown: what is between backticks stays, the rest has no markup."""
    parts = " ".join(text.split()).split("`")
    plain = [re.sub(r"([*_\[\]|\\])", r"\\\1", html.escape(part, quote=False)) for part in parts[::2]]
    plain = [re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", part) for part in plain]
    marked = [f"`{part}`" for part in parts[1::2]]
    return "".join(part for pair in zip(plain, [*marked, ""], strict=True) for part in pair)


# --- commands ---


def commands() -> str:
    """Return the page of all commands: the help of each, and its options by their headings."""
    group = typer.main.get_command(app)
    context = group.make_context("nmt", [], resilient_parsing=True)
    intro = f"# Commands\n\n{prose(group.help or '')}\n\nEvery command has `--help`, which says the same.\n\n"
    return intro + "\n".join(of_group(group, context, 2))


def of_group(group: Any, context: Any, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        usage = code(" ".join([inner.command_path, *command.collect_usage_pieces(inner)]), "")
        paragraphs = "\n\n".join(prose(part) for part in (command.help or "").split("\n\n"))
        yield f"{'#' * level} {inner.command_path}\n\n{usage}\n{paragraphs}\n\n{''.join(options(command, inner))}"
        if hasattr(command, "list_commands"):
            yield from of_group(command, inner, level + 1)


def options(command: Any, context: Any) -> Iterator[str]:
    """Yield a table for each heading of a command's options."""
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and "--help" not in parameter.opts:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            name, _, rest = record[0].partition("  ")
            row = (f"`{' '.join([name, *rest.split()])}`", prose(record[1]))
            by_heading.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(row)
    for heading, rows in by_heading.items():
        yield table([heading, ""], rows)


# --- recipe ---


def recipe() -> str:
    """Return the page of the recipe's keys, by section."""
    texts = griffe.load("nmt_cli.recipe", search_paths=[str(ROOT)])
    page = "# The recipe\n\nThe keys of a recipe, by section. `--set section.key=value` overrides a key.\n\n"
    for section, kind in SECTIONS.items():
        head = texts[kind.__name__].docstring.value.partition(": ")[2].split("\n\n")[0]
        rows = [(f"`{key}`", *described(field, texts[kind.__name__][key])) for key, field in kind.model_fields.items()]
        page += f"## [{section}]\n\n{prose(head[:1].upper() + head[1:])}\n\n"
        page += table(["key", "default", ""], rows)
    return page


def described(field: FieldInfo, member: Any) -> tuple[str, str]:
    """Return the default of a key, and its values with what it is."""
    option = next((item for item in field.metadata if isinstance(item, Option)), None)
    texts = [option.help if option else "", member.docstring.value if member.docstring else ""]
    choices = [f"`{json.dumps(value)}`" for value in get_args(field.annotation) if isinstance(value, str)]
    values = ", ".join(choices) or getattr(field.annotation, "__name__", str(field.annotation))
    told = " ".join(text for text in texts if text)
    return f"`{json.dumps(field.default)}`", f"{values}{limits(field)}. {prose(told)}"


def limits(field: FieldInfo) -> str:
    """Return the bounds of a number in words."""
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    found = [
        f"{word} {number:,}" if isinstance(number := getattr(item, bound), int) else f"{word} {number:g}"
        for bound, word in words.items()
        for item in field.metadata
        if hasattr(item, bound)
    ]
    return f", {' '.join(found)}" if found else ""


def recipes() -> str:
    """Return the page of the recipes in the package."""
    texts = {name: (ROOT / "recipes" / f"{name}.toml").read_text(encoding="utf-8") for name in recipe_names()}
    return "# Recipes\n\nThe recipes in the package, each by its name: `nmt train NAME`.\n\n" + "\n".join(
        f"## {name}\n\n{code(text, 'toml')}" for name, text in texts.items()
    )


# --- Python ---


def python() -> str:
    """Return the page of the public names; mkdocstrings puts in what each is."""
    names = [name for name in vars(nmt_cli)["__all__"] if not name.startswith("__")]
    options = ", ".join(f"`{name}`" for name in TranslateKeywords.__annotations__)
    intro = (
        "# Python\n\n`import nmt_cli as nmt` has these names. [A guide](../python.md) shows how they are used.\n\n"
        f"`TranslateKeywords` are those of [`nmt translate`](commands.md#nmt-translate): {options}.\n\n"
    )
    return intro + "\n".join(f"::: nmt_cli.{name}\n" for name in names)


if __name__ == "__main__":
    main()
