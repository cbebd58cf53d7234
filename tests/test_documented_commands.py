"""Every command of README, docs and RESULTS can be called as it stands there; those that need no other text run in small.

The commands of a section of a document run one after another, in a folder with the files that documents name.
"""

import ast
import gzip
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import forked
import in_small
import pytest
from documented import DOCUMENTS, RESULTS, ROOT, chosen, commands, split, unknown_options, wrong
from marian_models import marian
from shared import shared
from untrained import write_untrained_parser
from waiting import wait_until

from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.recipe import Recipe, recipe_names

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the documents are not here")
COMMANDS = [command for document in DOCUMENTS if document.exists() for command in commands(document)]
SHOWN = [command for command in COMMANDS if command.shown]
LEFT_OUT = re.compile(
    r"\bneeds\b|DIR\b|multi30k|wmt14|newstest|\.trees\.gz|--data-dir text|^(?:python benchmarks|pip|make) "
)
"""Sections with such a command do not run: it needs a corpus, a network, several machines."""


def sections() -> dict[str, list[str]]:
    """The command lines of each section of which all commands can run here."""
    found = dict[str, list[str]]()
    read = (one for one in SHOWN if one.section and not one.section.startswith("benchmarks/"))
    for section, group in groupby(read, key=lambda one: one.section):
        several = [one for one in group if not one.text.startswith("pip ")]
        if several and not any(LEFT_OUT.search(f"{one.text} {one.comment}") for one in several):
            found[section] = [chosen(one.text) for one in several]
    return found


SECTIONS = sections()
PARSE = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n"
FILES = {"page.html": "<p>the <b>dog</b> sleeps.</p>\n", "glossary.tsv": "dog\tHund\n", "parses": PARSE, "gold": PARSE}
LINES = {
    ("en", 700): "text.en medical.en",
    ("de", 700): "text.de medical.de",
    ("en", 60): "valid.en",
    ("de", 60): "valid.de",
    ("en", 4): "input input.en input.gz source source.en",
    ("de", 4): "output.de reference.de target terms.txt",
}
"""Names of texts in the documents, by language and number of lines."""
MODELS = "latest mine general en_de first second"
"""Runs that a section has which does not train them itself."""
SMALLER = {"nmt serve": "--port 0 --device cpu", "nmt train": "--device cpu"}
"""Options behind a command that make it small; the last one counts."""


def wrong_of(lines: Iterable[tuple[object, str]]) -> list[str]:
    """Command lines that cannot be called so, each with where it is and why."""
    return [f"{where}: {line}: {why}" for where, line in lines if (why := wrong(line))]


def test_every_command_can_be_called_so() -> None:
    whole = [one for one in COMMANDS if one.shown or one.text.startswith(("pip ", "make "))]
    assert len(whole) > 100
    assert wrong_of((one.where, one.text) for one in whole) == []


def test_every_option_in_a_sentence_exists() -> None:
    told = [
        f"{command.where}: {command.text}: {' '.join(unknown)}"
        for command in COMMANDS
        if not command.shown and command.text.startswith("nmt ") and (unknown := unknown_options(command.text))
    ]
    retired = [line for line in told if line.endswith(": --prune")]  # docs/reliability.md shows what is said of it
    assert len(retired) == 1
    assert told == retired, "\n".join(told)


def test_every_setting_exists() -> None:
    """Also where options stand without their command."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for section, key in re.findall(r"--set\s+'?(\w+)\.([a-z]\w+)=", text):
            keys = Recipe.model_fields[section].annotation if section in Recipe.model_fields else None
            known = key in getattr(keys, "model_fields", {}) or (section, key) == ("section", "key")
            assert known, f"{document.name}: {section}.{key}"


def test_benchmarks_their_tables_and_recipes_say_how_they_are_called() -> None:
    lines: list[tuple[object, str]] = []
    for script in (ROOT / "benchmarks").glob("*.py"):
        said = re.sub(r"\n {10,}(?=\[)", " ", ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "")
        for line in re.findall(r"^ *(python benchmarks/\S.*?)(?:  +.*)?$", said, re.MULTILINE):
            example = re.sub(r"[\[\]…]|(?<=\w)\|\w+", "", re.sub(r" (MINUTES|N)\b", " 1", line))
            lines.append((script.name, example))
    for table in (ROOT / "benchmarks").glob("*.toml"):
        entries = tomllib.loads(table.read_text(encoding="utf-8")).values()
        lines += [(table.name, command) for entry in entries for command in entry["commands"]]
    for recipe in recipe_names():
        text = (ROOT / "recipes" / f"{recipe}.toml").read_text(encoding="utf-8")
        shown = re.search(r"^# Command (.*(?:\n# {5}.*)*)", text, re.MULTILINE)
        parts = re.findall(r"(?:^|&&|#) +(nmt (?:(?!&&|  ).)*)", shown[1], re.MULTILINE) if shown else []
        assert parts, f"{recipe}: expected a line that begins with # Command"
        lines += [(recipe, part) for part in parts]
    assert wrong_of(lines) == []


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, a run of the demo recipe, made by the commands of `make demo`, and other models."""

    def build(folder: Path) -> None:
        made = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        lines = [line.partition("/bin/")[2] for line in made.split("\n") if "/bin/nmt " in line and "echo" not in line]
        assert [line.split()[1] for line in lines] == ["preprocess", "train", "average", "translate", "score"]
        for line in lines:
            run(folder, line, [])
        write_untrained_parser(folder / "runs/parser", "tags")
        for name in MODELS.split():
            (folder / "runs" / name).unlink(missing_ok=True)
            (folder / "runs" / name).symlink_to("demo")
        marian().zip(folder / "opus-2020-02-26.zip")
        for name, content in FILES.items():
            (folder / name).write_text(content, encoding="utf-8")
        sides = [[f"{line}\n".encode() for line in side] for side in zip(*demo_pairs()["train"], strict=True)]
        for (language, count), names in LINES.items():
            text = b"".join(sides[language == "de"][:count])
            for name in names.split():
                (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    return shared(tmp_path_factory, "documented", build)


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: re.sub(r"\W+", "-", section))
def test_it_runs(section: str, things: Path, tmp_path: Path) -> None:
    """The commands of a section, one after another."""
    lines = SECTIONS[section]
    place = shutil.copytree(things, tmp_path / "place", symlinks=True)
    for name in re.findall(r"nmt train (\w+)", "\n".join(lines)):
        made = place / "runs" / name
        if made.is_symlink():
            made.unlink()
        elif made.exists():
            shutil.rmtree(made)
    servers: list[forked.Process] = []
    try:
        for line in lines:
            run(place, line, servers)
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
    assert [server.wait() for server in servers] == [143] * len(servers)


def run(folder: Path, line: str, servers: list[forked.Process]) -> None:
    """Run a command line of the shell: pipes, redirections and `&&`. Raises AssertionError if a command fails."""
    text, words = b"", list[str]()
    out: Path | None = None
    tokens = iter([*split(line), "&&"])
    for token in tokens:
        if token == "<":
            text = (folder / next(tokens)).read_bytes()
        elif token in (">", ">>"):
            out = folder / next(tokens)
        elif token in ("|", "&&"):
            text = simple(folder, words, text, servers)
            if out:
                out.write_bytes(text)
            text, words, out = b"" if token == "&&" else text, [], None
        else:
            words.append(token)


def simple(folder: Path, words: list[str], text: bytes, servers: list[forked.Process]) -> bytes:
    """Run a command; return what it prints. A server ends with the section. Raises AssertionError if it fails."""
    words = [*words, *split(SMALLER.get(" ".join(words[:2]), ""))]
    if words[:2] == ["nmt", "serve"]:
        server = forked.start(folder, *words[1:], prelude=in_small.SMALL)
        servers.append(server)
        wait_until(lambda: "listening on" in said(server), lambda: said(server), by=server)
        return b""
    if words[0] == "nmt":
        done = forked.run(folder, *words[1:], text=text, prelude=in_small.SMALL)
    else:
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        words = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        address = re.search(r"http://(\S+:\d+)", said(servers[-1])) if servers else None
        words = [word.replace("localhost:8080", address[1] if address else "") for word in words]
        done = subprocess.run(words, cwd=folder, input=text, capture_output=True, check=False)
    told = done.stderr.decode()
    assert done.returncode == 0, f"{' '.join(words)}: exit status {done.returncode}\n{told[-3000:]}"
    assert "Traceback" not in told, told
    return done.stdout


def said(server: forked.Process) -> str:
    return server.streams[2].read_text(encoding="utf-8")
