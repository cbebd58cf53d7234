"""The sources of the documentation site, for `make docs`: the project's own pages, and pages that are made here.

    python tools/documentation.py build/docs-source

The folder gets docs/, RESULTS and other pages in the places that they have in the repository, so that a link works in
both; only docs/index.md, the home page, is at the top. A file of another kind that a page links to (a recipe, a source
file, a notebook) becomes a page. Made here are the references: the commands from the options of nmt_cli.cli.app, the
recipe from nmt_cli.recipe, the public names of Python, whose docstrings mkdocstrings reads, and the recipes in the
package. A reference of many entries is an index, a folder of pages, and their navigation in `.nav.md`.
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
from nmt_cli.options import Option
from nmt_cli.recipe import SECTIONS, recipe_names

ROOT = Path(__file__).parents[1]
HOME, RESULTS, SCORES = "docs/index.md", "benchmarks/RESULTS.md", "benchmarks/SCORES.md"
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", RESULTS]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
CODE = re.compile(r"`([^`]+)`")
FENCE = re.compile(r" *(```+)")
LANGUAGES = {".py": "python", ".toml": "toml"}
PYTHON = {
    "translating": ["interface.translator", "interface.models"],
    "translations": ["translation.line", "interface.parsing", "interface.attention"],
    "training": [
        "interface.init",
        "interface.planning",
        "interface.commands",
        "interface.information",
        "interface.progress",
    ],
    "scoring": ["interface.evaluation", "interface.calibration"],
    "data": ["interface.fetching", "interface.trees"],
    "errors": ["errors"],
}
"""The pages of the reference of Python, and the modules of nmt_cli whose public names each has."""


def main() -> None:
    """Write the sources into the folder in the arguments, which is emptied first."""
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs", ignore=shutil.ignore_patterns("*.ipynb", "*.md"))
    for page in [*PAGES, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]:
        text = with_pages(page, (ROOT / page).read_text(encoding="utf-8"), out)
        if page == RESULTS:
            text = without_scores(text, out)
        if page == HOME:
            text = LINK.sub(lambda link: os.path.normpath(os.path.join("docs", link[1])), text)
        write(out / (Path(page).name if page == HOME else page), text)
    reference = out / "docs" / "reference"
    write(reference / "recipe.md", recipe())
    for name, pages in {"commands": commands(), "python": python(), "recipes": recipes()}.items():
        for page, text in pages.items():
            write(reference / (f"{name}/{page}.md" if page else f"{name}.md"), text)
        names = "".join(f"* [{page}]({page}.md)\n" for page in pages if page)
        write(reference / name / ".nav.md", f"* [Index](../{name}.md)\n{names}")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = FENCE.match(line)
        lines.append(line if fence or mark else breakable(line))
        if mark and fence in ("", line.strip()):
            fence = "" if fence else mark[1]
    path.write_text("\n".join(lines), encoding="utf-8")


def breakable(line: str) -> str:
    """Return a line of Markdown. Options, and all code in tables, may be broken at their spaces only (site.css)."""

    def by_words(span: re.Match[str]) -> str:
        words = [
            re.sub(r"\W", lambda sign: f"&#{ord(sign[0])};", word) for word in span[1].replace(r"\|", "|").split(" ")
        ]
        if line.startswith("|"):
            return f"<code>{' <wbr>'.join(words)}</code>" if len(words) > 1 else span[0]
        return f'<code class="option">{" <wbr>".join(words)}</code>' if span[1].startswith("-") else span[0]

    return line if line.startswith("    ") or line.count("`") % 2 else CODE.sub(by_words, line)


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


def without_scores(text: str, out: Path) -> str:
    """Return RESULTS without its section of scores, which is a page of its own: one page would be too long."""
    before, _, rest = text.partition("\n## Scores\n")
    scores, _, after = rest.partition("\n## ")
    write(out / SCORES, "# Scores\n" + re.sub(r"^##(#+ )", r"#\1", scores, flags=re.MULTILINE))
    return (
        f"{before}\n## Scores\n\nBLEU, F1 and the like are on [a page of their own]({Path(SCORES).name}).\n\n## {after}"
    )


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

Pages = dict[str, str]
"""The pages of a reference by name; the index has the name ""."""


def commands() -> Pages:
    """Return a page for each command: its help, and its options by their headings."""
    group = typer.main.get_command(app)
    context: Any = group.make_context("nmt", [], resilient_parsing=True)
    by_heading: dict[str, list[tuple[str, str]]] = {}
    pages = {}
    for name, command, inner in members(group, context):
        row = (f"[`{name}`](commands/{name}.md)", prose((command.help or "").partition("\n\n")[0]))
        by_heading.setdefault(panel(command) or "Commands", []).append(row)
        pages[name] = "\n".join(of_command(command, inner, 1))
    index = f"# Commands\n\n{prose(group.help or '')}\n\nEvery command has `--help`, which says the same.\n\n"
    for heading, rows in by_heading.items():
        index += (f"## {heading}\n\n" if len(by_heading) > 1 else "") + table(["command", "what it does"], rows)
    return {"": index, **pages}


def members(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the command and the context of each command of a group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield name, command, command.context_class(command, info_name=name, parent=context)


def of_command(command: Any, context: Any, level: int) -> Iterator[str]:
    usage = code(" ".join([context.command_path, *command.collect_usage_pieces(context)]), "")
    paragraphs = "\n\n".join(prose(part) for part in (command.help or "").split("\n\n"))
    tables = "".join(options(command, context, level + 1))
    yield f"{'#' * level} {context.command_path}\n\n{usage}\n{paragraphs}\n\n{tables}"
    if hasattr(command, "list_commands"):
        for _, part, inner in members(command, context):
            yield from of_command(part, inner, level + 1)


def options(command: Any, context: Any, level: int) -> Iterator[str]:
    """Yield a table for each heading of a command's options."""
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and "--help" not in parameter.opts:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            name, _, rest = record[0].partition("  ")
            row = (f"`{' '.join([name, *rest.split()])}`", prose(record[1]))
            by_heading.setdefault(panel(parameter) or kind, []).append(row)
    for heading, rows in by_heading.items():
        column = "argument" if heading == "Arguments" else "option"
        yield f"{'#' * level} {heading}\n\n{table([column, 'what it does'], rows)}"


def panel(item: Any) -> str | None:
    """Return the heading under which --help shows a command or an option, if it has one."""
    heading = getattr(item, "rich_help_panel", None)
    return heading if isinstance(heading, str) else None


# --- recipe ---


def recipe() -> str:
    """Return the page of the recipe's keys, by section."""
    texts = griffe.load("nmt_cli.recipe", search_paths=[str(ROOT)])
    page = "# The recipe\n\nThe keys of a recipe, by section. `--set section.key=value` overrides a key.\n\n"
    for section, kind in SECTIONS.items():
        head = texts[kind.__name__].docstring.value.partition(": ")[2].split("\n\n")[0]
        rows = [(f"`{key}`", described(field, texts[kind.__name__][key])) for key, field in kind.model_fields.items()]
        page += f"## [{section}]\n\n{prose(head[:1].upper() + head[1:])}\n\n"
        page += table(["key", "values, default and meaning"], rows)
    return page


def described(field: FieldInfo, member: Any) -> str:
    """Return the values of a key, its default, and what it is."""
    option = next((item for item in field.metadata if isinstance(item, Option)), None)
    texts = [option.help if option else "", member.docstring.value if member.docstring else ""]
    choices = [f"`{json.dumps(value)}`" for value in get_args(field.annotation) if isinstance(value, str)]
    values = ", ".join(choices) or getattr(field.annotation, "__name__", str(field.annotation))
    told = " ".join(text for text in texts if text)
    return f"{values}{limits(field)}; default `{json.dumps(field.default)}`. {prose(told)}"


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


def recipes() -> Pages:
    """Return a page for each family of the recipes in the package: those with the same first word."""
    index: list[tuple[str, str]] = []
    pages: Pages = {}
    for name in recipe_names():
        text = (ROOT / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
        family = name.partition("_")[0]
        index.append((f"[`{name}`](recipes/{family}.md#{name})", prose(text.partition("\n")[0].lstrip("# "))))
        pages[family] = pages.get(family, f"# Recipes: {family}\n\n") + f"## {name}\n\n{code(text, 'toml')}\n"
    intro = "# Recipes\n\nThe recipes in the package, each by its name: `nmt train NAME`.\n\n"
    return {"": intro + table(["recipe", "what it is for"], index), **pages}


# --- Python ---


def python() -> Pages:
    """Return the pages of the public names; mkdocstrings puts in what each is."""
    modules = {name: module for name, module in vars(nmt_cli)["_NAMES"].items() if not name.startswith("__")}
    if homeless := {*modules.values()} - {module for page in PYTHON.values() for module in page}:
        raise SystemExit(f"tools/documentation.py: PYTHON has no page for {', '.join(homeless)}")
    texts = griffe.load("nmt_cli", search_paths=[str(ROOT)], resolve_aliases=False)

    def summary(name: str) -> str:
        docstring = texts[f"{modules[name]}.{name}"].docstring
        return prose(docstring.value.partition("\n\n")[0]) if docstring else ""

    index = "# Python\n\n`import nmt_cli as nmt` has these names. [A guide](../python.md) shows how they are used.\n\n"
    pages = {}
    for page, of_page in PYTHON.items():
        names = [name for name, module in modules.items() if module in of_page]
        rows = [(f"[`{name}`](python/{page}.md#nmt_cli.{name})", summary(name)) for name in names]
        index += f"## {page.capitalize()}\n\n{table(['name', 'what it is'], rows)}"
        pages[page] = f"# Python: {page}\n\n" + "\n".join(f"::: nmt_cli.{name}\n" for name in names)
    options = ", ".join(f"`{name}`" for name in TranslateKeywords.__annotations__)
    index += f"## TranslateKeywords\n\nThese are options of [`nmt translate`](commands/translate.md): {options}.\n"
    return {"": index, **pages}


if __name__ == "__main__":
    main()
