"""Every command of README, docs and RESULTS can be called as it stands there, and runs in small, or is marked.

A command of a code block, and a whole one in a sentence of RESULTS, runs after the others of its section in a folder with
the files that it names (`prepare`). One that cannot run says in the document what it needs (`documented.MARKS`).
"""

from __future__ import annotations

import ast
import gzip
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import forked
import in_small
import pytest
from documented import DOCUMENTS, MARKS, RESULTS, ROOT, chosen, commands, split, unknown_options, wrong
from marian_models import marian
from shared import shared
from untrained import write_untrained_parser
from waiting import wait_until

from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.recipe import Recipe, recipe_names

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the documents are not here")
COMMANDS = [command for document in DOCUMENTS if document.exists() for command in commands(document)]
SHOWN = [command for command in COMMANDS if command.shown]


RUN = {
    where: list(group)
    for where, group in groupby(
        (one for one in SHOWN if not one.mark and one.document != RESULTS and "benchmarks/" not in one.text),
        key=lambda command: command.section,
    )
}
"""By section of a document; a command in a sentence is one of its own. Of benchmarks the options are checked."""

LINES = {
    "en": "medical.en input input.en input.gz source source.en text.en valid.en newstest2014.en",
    "de": "medical.de output.de reference.de target text.de valid.de test.de newstest2014.de eubridge.en uedin-syntax.en "
    "terms.txt",
}
"""Names of texts in the documents, by language."""
FOLDERS = "DIR text"
"""Names of folders with corpora."""
OTHER_FILES = {
    "page.html": "<p>the <b>dog</b> sleeps.</p>\n",
    "glossary.tsv": "dog\tHund\n",
    "parses": "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n",
    "gold": "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n",
    "both.toml": 'extends = "demo"\n[data]\ngenerator = ""\ntrain_source = ["train.en"]\ntrain_target = ["train.de"]\n'
    'valid_source = ["valid.en"]\nvalid_target = ["valid.de"]\n[train]\nboth_directions = true\n',
    "mine.toml": 'extends = "both.toml"\n[train]\nboth_directions = false\n',
}
TREE = "(ROOT (S (NP (DT the) (NN {})) (VP (VBZ {})) (. .)))\n"
SMALLER = {"nmt serve": "--port 0 --device cpu", "nmt train": "--device cpu"}
"""Options behind a command that make it small; the last one counts."""


# --- what the documents show can be called ---


def wrong_of(lines: Iterable[tuple[object, str]]) -> list[str]:
    """Command lines that cannot be called so, each with where it is and why."""
    return [f"{where}: {line}: {why}" for where, line in lines if (why := wrong(line))]


def test_every_command_can_be_called_so() -> None:
    whole = [one for one in COMMANDS if one.shown or one.text.startswith(("pip ", "make "))]
    assert wrong_of((one.where, one.text) for one in whole) == []


def test_every_option_in_a_sentence_exists() -> None:
    told = [
        f"{command.where}: {' '.join(unknown)}"
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


def test_the_finder_misses_no_command() -> None:
    """Each line that begins with a program of ours, wherever it is, and each part of a pipe, is one that was found."""
    found = {(command.document, command.line) for command in SHOWN}
    assert len(found) > 100
    for document in DOCUMENTS:
        blocks = re.split(r"^```.*$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
        line = 1
        for number, text in enumerate(blocks):
            for offset, shown in enumerate(text.split("\n")):
                begins = re.match(r"(?:\$ )?(?:nmt|python|torchrun|pip|curl|make) [^·]*$|.*\| nmt ", shown)
                if number % 2 and begins:
                    assert (document, line + offset) in found, f"{document.name}:{line + offset}: {shown}"
            line += text.count("\n")
    assert {command.mark for command in SHOWN} == {"", *MARKS}


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


# --- what the documents show runs ---


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpora, a trained run of the demo recipe, by the commands of `make demo`, and a parser."""

    def build(folder: Path) -> None:
        write_corpora(folder / "corpora")
        made = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        lines = [line.partition("/bin/")[2] for line in made.split("\n") if "/bin/nmt " in line and "echo" not in line]
        assert [line.split()[1] for line in lines] == ["preprocess", "train", "average", "translate", "score"]
        for line in lines:
            run(folder, line)
        run(folder / "corpora", "nmt data trees train.trees.gz dev.trees.gz --terminals tags --out .")
        write_untrained_parser(folder / "parser", "tags")

    return shared(tmp_path_factory, "documented", build)


def write_corpora(folder: Path) -> None:
    """Write sentences of the demo corpus under the names of all data sets, and trees."""
    splits = demo_pairs(train=700, valid=12, test=12)
    parts = {"train": splits["train"], "valid": splits["valid"], "val": splits["valid"], "test": splits["test"][:8]}
    parts |= {f"test_{year}_flickr": splits["test"] for year in (2016, 2017)}
    parts |= {f"newstest{year}": splits["test"] for year in (2013, 2014)}
    (folder / "tok").mkdir(parents=True)
    for part, pairs in parts.items():
        for language, side in (("en", 0), ("de", 1), ("fr", 1)):
            text = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            (folder / f"{part}.{language}").write_bytes(text)
            for name in (f"{part}.{language}.gz", f"tok/{part}.lc.norm.tok.{language}.gz"):
                (folder / name).write_bytes(gzip.compress(text))
    (folder / "de").mkdir()
    for part in ("train", "test"):
        shutil.copy(folder / f"{part}.de", folder / "de")
    trees = "".join(TREE.format(noun, verb) for noun in ("dog", "cat", "cow") for verb in ("sleeps", "sees", "eats"))
    for part, times in (("train", 40), ("dev", 1), ("test", 1)):
        (folder / f"{part}.trees.gz").write_bytes(gzip.compress(trees.encode() * times))


@pytest.mark.slow
@pytest.mark.parametrize("section", RUN, ids=lambda section: re.sub(r"\W+", "-", section))
def test_it_runs(section: str, things: Path, tmp_path: Path) -> None:
    """The commands of a section, one after another."""
    lines = [chosen(command.text) for command in RUN[section]]
    prepare(tmp_path, things, lines)
    servers: list[forked.Process] = []
    try:
        for command, line in zip(RUN[section], lines, strict=True):
            try:
                run(tmp_path, line, servers)
            except AssertionError as error:
                marks = f"Mend it, or mark it in the document: {', '.join(MARKS)}."
                raise AssertionError(f"{command.where}\n{error}\n{marks}") from None
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
    assert [server.wait() for server in servers] == [143] * len(servers)


def prepare(folder: Path, things: Path, lines: Sequence[str]) -> None:
    """Put into a folder what the lines read: texts, corpora, models that they do not train themselves."""
    text = "\n".join(lines)
    named = set(re.split(r"[\s'\"=]+", text))
    for language, names in LINES.items():
        whole = (things / "corpora" / f"train.{language}").read_bytes().splitlines(keepends=True)
        for name in named & {*names.split()}:
            content = b"".join(
                whole[: 700 if name.startswith(("text", "medical")) else 60 if "valid" in name or len(name) == 3 else 4]
            )
            (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for name, written in OTHER_FILES.items():
        if name in named | ({"both.toml"} if "mine.toml" in named else set()) and "nmt init" not in text:
            (folder / name).write_text(written, encoding="utf-8")
    for word in {word for word in named if re.fullmatch(r"opus-[\d-]+\.zip", word)}:
        marian().zip(folder / word)
    if "data/demo/" in text and "preprocess demo" not in text:
        (folder / "data").symlink_to(things / "data")
    for word in named:
        top, *rest = word.split("/")
        if top in FOLDERS.split() and not (folder / top).exists() and f"--out {top}" not in text:
            shutil.copytree(things / "corpora", folder / top)
            (folder / top / "wmt14-en-de").symlink_to(things / "corpora")
        if word.endswith(".trees.gz") and not rest:
            shutil.copy(things / "corpora" / word, folder)
    trained = {
        f"runs/{Path(name).stem}"
        for name in re.findall(r"nmt train (\S+)|--run (?:runs/)?(\S+)", text)
        for name in name
        if name
    }
    models = re.findall(r"(?:MODELS/)?runs/[\w-]+", text)
    for model in {*models, *(["runs/latest"] if "nmt" in text else [])} - trained:
        (folder / model).parent.mkdir(parents=True, exist_ok=True)
        (folder / model).symlink_to(things / ("parser" if "pars" in model else "runs/demo"))
    for recipe in {*re.findall(r"nmt train (?:([a-z]\w+)|--)", text)} - {*re.findall(r"nmt preprocess (\w+)", text)}:
        recipe = recipe or "demo"
        run(folder, f"nmt preprocess {recipe} --data-dir {things / 'corpora'}")


def run(folder: Path, line: str, servers: list[forked.Process] | None = None) -> None:
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
            if token == "&&":
                text = b""
            words, out = [], None
        else:
            words.append(token)


def simple(folder: Path, words: list[str], text: bytes, servers: list[forked.Process] | None) -> bytes:
    """Run a command; return what it prints. Raises AssertionError if it fails."""
    words = [*words, *split(SMALLER.get(" ".join(words[:2]), ""))]
    if "--devices" in words:
        words[words.index("--devices") + 1] = "1"
    if words[0] == "pip":  # checked by `wrong`
        return b""
    if words[:2] == ["make", "demo"]:  # run for `things`
        return b""
    if words[:2] == ["nmt", "serve"]:
        return serve(folder, words[1:], servers)
    if words[0] == "nmt":
        done = forked.run(folder, *words[1:], text=text, prelude=in_small.SMALL)
    else:
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        words = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        words = [word.replace("localhost:8080", port_of(servers)) for word in words]
        done = subprocess.run(words, cwd=folder, input=text, capture_output=True, check=False)
    said = done.stderr.decode()
    assert done.returncode == 0, f"{' '.join(words)}: exit status {done.returncode}\n{said[-3000:]}"
    assert "Traceback" not in said, said
    return done.stdout


def serve(folder: Path, words: list[str], servers: list[forked.Process] | None) -> bytes:
    """Start a server; it ends with the section."""
    assert servers is not None
    server = forked.start(folder, *words, prelude=in_small.SMALL)
    servers.append(server)
    wait_until(lambda: "listening on" in said(server), lambda: said(server), by=server)
    return b""


def said(server: forked.Process) -> str:
    return server.streams[2].read_text(encoding="utf-8")


def port_of(servers: list[forked.Process] | None) -> str:
    found = re.search(r"http://(\S+:\d+)", said(servers[-1])) if servers else None
    return found[1] if found else ""
