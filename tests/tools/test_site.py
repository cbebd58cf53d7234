"""The documentation site: it builds strictly, loads nothing from elsewhere, and has every command, key and public name."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from in_process import commands
from shared import shared

import nmt_cli
from nmt_cli.recipe import SECTIONS, recipe_names

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "zensical.toml"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (find_spec("zensical") and find_spec("mkdocstrings")), reason="needs the extra docs: make docs installs it"
    ),
    pytest.mark.skipif(not CONFIG.exists(), reason="the documents are not here"),
]


def make(folder: Path) -> None:
    """Build the site; a link or an anchor that leads nowhere ends the build."""
    shutil.copy(CONFIG, folder)
    for link, target in {"nmt_cli": Path(nmt_cli.__file__).parent, "tools": ROOT / "tools"}.items():
        (folder / link).symlink_to(target)
    script = [sys.executable, str(ROOT / "tools" / "documentation.py"), str(folder / "build" / "docs-source")]
    subprocess.run(script, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "site", make)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "build" / "site"


class Page(HTMLParser):
    """What a page loads, and its anchors. Where links lead, the strict build looks."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if "src" in found or (tag == "link" and "href" in found):
            self.loads.append(found.get("src") or found["href"])


page = cache(Page)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert bool(page(path).loads) == (path.name != "404.html")  # which answers at any path: it loads nothing
        assert not re.search(r"(?m)^((\w+:)?//|\w+:)", "\n".join(page(path).loads)), path
    for path in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_search_has_the_words_of_guides_and_references(site: Path) -> None:
    """As a file that a script loads, too: pages opened as files cannot fetch."""
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    assert (site / "search.js").read_text(encoding="utf-8").startswith("var __index")
    for word, where in (
        ("BPE-dropout", "docs/training.html"),
        ("--no-repeat-ngram", "docs/reference/commands/translate.html"),
        ("warm_up", "docs/reference/python/translating.html"),
        ("bpe_dropout", "docs/reference/recipe.html"),
    ):
        found = [item for item in items if word in item["title"] + re.sub(r"<.*?>", "", item["text"])]
        assert where in {item["location"].partition("#")[0] for item in found}, word


def test_every_page_is_in_the_navigation(folder: Path) -> None:
    def named(entries: list[dict[str, Any]]) -> Iterator[str]:
        for value in (value for entry in entries for value in entry.values()):
            yield from [value] if isinstance(value, str) else named(value)

    source = folder / "build" / "docs-source"
    nav = list(named(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    for part in [name for name in nav if name.endswith("/")]:
        nav.remove(part)
        links = re.findall(r"\((.*?)\)", (source / part / ".nav.md").read_text(encoding="utf-8"))
        nav += [os.path.normpath(os.path.join(part, link)) for link in links]
    assert len(nav) == len({*nav})
    made = {str(path.relative_to(source)) for path in source.rglob("[!.]*.md")}
    assert made - {*nav} == {"nmt_cli/registry.py.md", "LICENSE.md"}


def test_every_command_and_option_has_an_entry(site: Path) -> None:
    folder = site / "docs" / "reference" / "commands"
    there = commands()
    assert len(there) > 15
    assert {f"{name.split()[0]}.html" for name in there} == {path.name for path in folder.iterdir()}
    for name, command in there.items():
        path = folder / f"{name.split()[0]}.html"
        text = html.unescape(re.sub(r"<.*?>", "", path.read_text(encoding="utf-8")))
        assert f"nmt-{name.replace(' ', '-')}" in page(path).ids
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        missing = [option for parameter in shown for option in parameter.opts if option.startswith("--")]
        assert [option for option in missing if option not in text] == []


def test_every_public_name_has_an_entry(site: Path) -> None:
    names = {f"nmt_cli.{name}" for name in vars(nmt_cli)["__all__"] if not name.startswith("__")}
    folder = site / "docs" / "reference" / "python"
    assert names <= {name for path in folder.iterdir() for name in page(path).ids}


def test_every_key_and_recipe_has_an_entry(site: Path) -> None:
    reference = site / "docs" / "reference"
    text = (reference / "recipe.html").read_text(encoding="utf-8")
    assert {*SECTIONS} <= page(reference / "recipe.html").ids
    for kind in SECTIONS.values():
        assert [key for key in kind.model_fields if f"<td><code>{key}</code></td>" not in text] == []
    assert {*recipe_names()} <= {name for path in (reference / "recipes").iterdir() for name in page(path).ids}
