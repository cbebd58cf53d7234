"""The lines that commands print, in README's order and out of it: a shell can read the commands in them; tables;
and what a shell is answered after Tab."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from forked import nmt, run
from shared import number_words

from nmt_cli.cli.app import app
from nmt_cli.cli.app import run as main
from nmt_cli.cli.table import Column, Table, show


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text and a recipe, whose names have spaces."""
    folder = tmp_path_factory.mktemp("my work")
    number_words(tmp_path_factory, folder)
    recipe = (folder / "numbers.toml").read_text(encoding="utf-8")
    for key, value in (("updates", 2), ("warmup", 1), ("checkpoint_every", 1), ("valid_bleu_sentences", 2)):
        recipe = re.sub(f"^{key} = .*", f"{key} = {value}", recipe, flags=re.MULTILINE)
    (folder / "my own.toml").write_text(recipe, encoding="utf-8")
    return folder


def next_of(said: str) -> list[str]:
    """Return the words of the line `next:`, as a shell reads them."""
    return shlex.split(said.strip().splitlines()[-1].removeprefix("next: "))


@pytest.mark.slow
def test_each_command_names_the_next_one_so_that_it_runs(folder: Path) -> None:
    said = nmt(folder, "train", "my own.toml", code=1)
    command = re.search(r"holds no prepared corpus \(no index\.json\)\. Make it first: (.*)", said)
    assert command
    said = nmt(folder, *shlex.split(command[1])[1:])
    assert next_of(said) == ["nmt", "train", "my own.toml"]
    dry = nmt(folder, *next_of(said)[1:], "--dry-run")
    assert re.search(r"[\d.e-]+ s per update, (about )?\d+ .*seconds in all, until .* at the latest", dry)
    said = nmt(folder, *next_of(said)[1:])
    assert re.search(r"all updates done; best .*\nnext: ", said)
    assert next_of(said) == ["nmt", "average", "runs/my own"]
    said = nmt(folder, *next_of(said)[1:])
    best = next_of(said)[3]
    assert next_of(said) == ["nmt", "translate", "--model", best, "<", "input"]
    assert (folder / best / "model.safetensors").is_file()
    assert "averaged    step-00000001, step-00000002\n" in nmt_output(folder, "info", "runs/my own/averaged")
    said = nmt(folder, "quantize", best, "--out", "int 8")
    assert next_of(said) == ["nmt", "translate", "--model", "int 8", "<", "input"]


def nmt_output(folder: Path, *arguments: str) -> str:
    return run(folder, *arguments).stdout.decode()


def pages(group: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield each command of a group, and of its groups, with its page of --help."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        yield inner.command_path, command.get_help(inner)
        if hasattr(command, "list_commands"):
            yield from pages(command, inner)


def test_help_comes_to_the_options_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    nmt_itself = typer.main.get_command(app)
    context = nmt_itself.make_context("nmt", [], resilient_parsing=True)
    overview = nmt_itself.get_help(context)
    help_of = dict(pages(nmt_itself, context))
    for path, page in help_of.items():
        above = re.split(r"^(?:Arguments|Commands|Options):$", page, flags=re.MULTILINE)[0].splitlines()
        assert len([line for line in above[1:] if line]) <= 3, path
        assert max(map(len, page.splitlines())) < 80, path
        assert not re.search(r"<(bool|str|path)>|<=|\x1b", page), path
        if path.count(" ") == 1:
            assert f"  {above[2].strip()}\n" in overview, path  # in one line
    headings = re.findall(r"^(\S.*):$", help_of["nmt translate"], flags=re.MULTILINE)
    assert headings == ["Options", "Output format", "Search", "Sampling and minimum Bayes risk", "Constraints"]


HELP = """
import sys
from nmt_cli.registry import METRICS
METRICS["of-my-own"] = "my_package:SPEC"
from nmt_cli.cli.app import COMMANDS, run
heavy = {"torch", "numpy", "sacrebleu", "sentencepiece", "safetensors", "matplotlib", "nltk", "urllib.request", "tqdm", "fastapi", "uvicorn", "prometheus_client"}
others = {"nmt_cli.cli.score", "nmt_cli.recipe", "pydantic", "rich"}
for line in ("--help", "data", *(f"{name} --help" for commands in COMMANDS.values() for name in commands), *sys.argv[1:]):
    sys.argv = ["nmt", *line.split()]
    assert run() == 0, line
    loaded = {*sys.modules} & (heavy | others if line == "--help" else heavy)
    assert not loaded, (line, loaded)
"""


@pytest.mark.slow
def test_help_is_quick_and_a_command_is_imported_when_it_is_named(tmp_path: Path) -> None:
    """Nor does the conversion of trees load anything heavy."""
    (tmp_path / "some.mrg").write_text("(TOP (NN word))\n")
    lines = ["data trees --help", "data wmt14-en-de -h", "data trees some.mrg --out ."]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HELP, *lines]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "One of bleu, chrf, ter, evalb, comet, of-my-own;" in " ".join(done.stdout.split())


def test_a_recipe_that_lies_here_is_found_by_its_name_or_nearly_its_name(folder: Path) -> None:
    for name in ("my own", "my ownn.toml"):
        assert "Did you mean " in (said := nmt(folder, "train", name, code=1))
        assert "'my own.toml'?" in said


TABLE = Table(
    "BLEU  nrefs:1  [x]",
    [Column("score", 6), Column("p", 7, left=True), Column("system", left=True)],
    [["28.98", "-", "a [b] c"], ["8.2", "0.0010*", "caf\udce9 ü"]],
)


def test_columns_of_any_names(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show(["first", TABLE])
    assert capfdbinary.readouterr().out.decode() == (
        "first\n\nBLEU  nrefs:1  [x]\n score  p        system\n 28.98  -        a [b] c\n   8.2  0.0010*  caf\\udce9 ü\n"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nmt tran", ["translate"]),
        ("nmt impo", ["import"]),
        ("nmt train multi30k_en_de", ["multi30k_en_de", "multi30k_en_de_tok"]),
        ("nmt train mi", []),  # the shell completes names of files
        ("nmt translate --model ", []),
    ],
    ids=str,
)
def test_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, expected: list[str]
) -> None:
    number = len(line.split(" ")) - 1
    for name, value in {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, expected)
