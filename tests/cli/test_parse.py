"""`nmt parse`: a tree for each line, whatever the lines and the model's output are. The models are untrained."""

from pathlib import Path

import pytest
from forked import nmt
from in_process import ran, refused
from untrained import write_untrained_parser

from nmt_cli.parsing.brackets import read_trees

KINDS = ["xx", "tags", "words", "both"]
SENTENCES = "the small cat sees ( a dog ) .\n\n  \t\nthe cat .\n"
WORDS = ["the small cat sees -LRB- a dog -RRB- .", "", "", "the cat .", ""]
TOKENIZED = "parse --devices 1 --model xx --tokenized"


@pytest.fixture(scope="module")
def parsers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parser of each kind, and one that has learned treebank quotes."""
    folder = tmp_path_factory.mktemp("parse")
    for kind in KINDS:
        write_untrained_parser(folder / kind, kind)
    write_untrained_parser(folder / "quotes", "tags", quotes=True)
    return folder


@pytest.fixture(autouse=True)
def folder(parsers: Path, workdir: Path) -> Path:
    for model in parsers.iterdir():
        Path(model.name).symlink_to(model)
    Path("in").write_text(SENTENCES)
    return workdir


def ok(command: str, text: str = "") -> tuple[list[str], str]:
    """The lines that it prints, and its remarks."""
    done = ran(command, stdin=text.encode())
    return done.stdout.split("\n"), " ".join(done.stderr.split())


def words(line: str) -> str:
    """The words of the tree of a line; "" for a blank line."""
    return " ".join(word for tree in read_trees([line], "here") for word in tree.words)


@pytest.mark.parametrize("constraint", ["", """--set 'decode.constraints=["tree"]'"""], ids=["free", "constrained"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_translate_and_data_trees_back(kind: str, constraint: str) -> None:
    """With the constraint nothing is repaired. The kind of terminals comes from the model's recipe, in both commands."""
    options = f"--devices 1 --model {kind} --input in {constraint}"
    parsed, remarks = ok(f"parse {options} --tokenized")
    assert [words(line) for line in parsed] == WORDS
    assert all(line.startswith("(TOP ") for line in parsed if line)
    linear = "\n".join(ok(f"translate {options}")[0])
    back, said = ok(f"data trees --back --words in --terminals {kind}", linear)
    assert parsed == back
    repairs = int(said.split(", ")[1].split()[0])
    assert remarks.startswith(f"{repairs} of 2 trees" if repairs else "")
    assert bool(remarks) == bool(repairs)
    assert not (constraint and repairs)


def test_a_sentence_that_is_too_long_gets_a_flat_tree_and_is_named() -> None:
    long, unknown = "the cat sees " * 20, "x" * 50  # too many words, and a word of too many tokens
    lines, said = ok(TOKENIZED, f"the cat .\n{long}\n\nthe cat .\n{unknown}")
    assert lines[1] == "(TOP " + " ".join(f"(XX {word})" for word in long.split()) + ")"
    assert lines.pop(4) == f"(TOP (XX {unknown}))"
    assert [bool(line) for line in lines] == [True, True, False, True, False]
    assert lines[0] == lines[3] == ok(TOKENIZED, "the cat .")[0][0]
    assert "line 2 is too long for the model: it has 60 words, 80 tokens" in said
    assert "line 5 is too long for the model: it has 1 words, " in said


def test_invalid_utf8_is_replaced_and_counted() -> None:
    done = ran(TOKENIZED, stdin=b"caf\xe9 .\n")
    assert (words(done.stdout), "1 line held invalid UTF-8" in done.stderr) == ("caf\ufffd .", True)


def test_without_nltk_words_must_be_separated() -> None:
    hidden = "import sys\nsys.modules['nltk'] = sys.modules['nltk.tokenize'] = None\n"
    said = nmt(Path.cwd(), "parse", "--model", "xx", prelude=hidden, code=2)
    assert all(word in said for word in ("pip install 'nltk>=3.9'", "--tokenized"))
    assert "'missing'" in refused("parse --tokenized --model missing", code=1)
