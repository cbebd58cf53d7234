"""Files and values of another kind in the place of terms, prefixes and words."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest
from untrained import write_untrained

import nmt_cli as nmt

LINES = ["the cat sees.", "a big dog.", "the house.", "a red cat."]
GLOSSARY = [("cat", "Katze"), ("dog", "Hund"), ("house", "Haus"), ("mouse", "Maus")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glossary")
    write_untrained(folder / "model")
    write(folder / "input", LINES)
    return folder


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def translate(folder: Path, *options: str, code: int = 0) -> tuple[str, str]:
    """Return stdout and stderr."""
    done = forked.run(folder, "translate", "-m", "model", "-i", "input", *options)
    assert done.returncode == code, done.stderr
    return done.stdout.decode(), " ".join(done.stderr.decode().split())


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    write(folder / "pairs", ["\t".join(pair) for pair in GLOSSARY])
    for option, what in (("--banned-words", "words or phrases"), ("--outputs", "translations")):
        said = translate(folder, option, "pairs", code=1)[1]
        assert "'pairs', line 1: 'cat\\tKatze' has a tab" in said
        assert what in said


def test_the_input_may_be_its_own_prefixes(folder: Path) -> None:
    assert translate(folder, "--prefix-file", "input")[0].count("\n") == len(LINES)


@pytest.mark.parametrize("terms", ["cat", {"cat": "Katze"}])
def test_python_expects_a_list_of_terms(folder: Path, terms: object) -> None:
    with nmt.load(folder / "model") as translator, pytest.raises(nmt.NmtError, match="expected a list of the words"):
        translator.translate([nmt.Line("the cat.", terms=terms)])  # type: ignore[arg-type]
