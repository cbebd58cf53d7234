"""A glossary in the place of a file with terms or prefixes for each line is an error; such files with two columns are not."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest
from untrained import write_untrained

import nmt_cli as nmt

LINES = ["the cat sees.", "a big dog.", "the house.", "a red cat."]
GLOSSARY = [("cat", "Katze"), ("dog", "Hund"), ("house", "Haus"), ("mouse", "Maus")]
PER_LINE = {
    "two terms on each line": ["Katze\tsieht", "Hund\tgroß", "Haus\tdas", "Katze\trot"],
    "names": ["cat\tcat", "dog\tdog", "house\thouse", "red\tred"],
    "one term on some lines": ["cat\tKatze", "dog\tHund", "", "cat\tKatze"],
    "alternatives": ["cat|Katze", "dog|Hund", "house|Haus", "red|rot"],
    "one name": ["cat\tKatze", "Hund\tgroß", "Haus\tdas", "Katze\trot"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glossary")
    write_untrained(folder / "model")
    write(folder / "input", LINES)
    return folder


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def translate(folder: Path, *options: str, text: str = "", code: int = 0) -> tuple[str, str]:
    """Return stdout and stderr."""
    source = () if text else ("-i", "input")
    done = forked.run(folder, "translate", "-m", "model", *source, *options, text=text.encode())
    assert done.returncode == code, done.stderr
    return done.stdout.decode(), " ".join(done.stderr.decode().split())


@pytest.mark.parametrize("separator", ["\t", ";", ",", " = "])
def test_a_glossary_is_no_list_of_terms(folder: Path, separator: str) -> None:
    write(folder / "terms", [separator.join(pair) for pair in GLOSSARY])
    out, said = translate(folder, "--terms", "terms", code=1)
    assert out == ""
    assert "error: 'terms' is a glossary: it has pairs such as 'cat' and 'Katze', and the input contains 'cat'." in said
    assert "--terms expects for each line of the input the terms in its translation, separated by tabs." in said
    assert (
        "is a glossary" in translate(folder, "--terms", "terms", text="".join(f"{line}\n" for line in LINES), code=1)[1]
    )


def test_a_glossary_with_more_columns_or_another_number_of_lines(folder: Path) -> None:
    write(folder / "terms", ["\t".join((*pair, "noun")) for pair in GLOSSARY[:3]])
    assert "is a glossary" in translate(folder, "--terms", "terms", code=1)[1]


def test_a_glossary_of_one_line_may_be_two_terms(folder: Path) -> None:
    write(folder / "terms", ["cat\tdog"])
    out, said = translate(folder, "--terms", "terms", text="the cat.\n")
    assert out.count("\n") == 1
    assert "warning: 'terms' is a glossary" in said


@pytest.mark.parametrize("terms", PER_LINE.values(), ids=PER_LINE)
def test_terms_of_each_line_are_accepted(folder: Path, terms: list[str]) -> None:
    write(folder / "terms", terms)
    out, said = translate(folder, "--terms", "terms")
    assert out.count("\n") == len(LINES)
    assert "glossary" not in said


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    write(folder / "pairs", ["\t".join(pair) for pair in GLOSSARY])
    assert (
        "--prefix-file expects for each line of the input the beginning"
        in translate(folder, "--prefix-file", "pairs", code=1)[1]
    )
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
