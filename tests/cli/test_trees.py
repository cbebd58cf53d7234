"""`nmt data trees`: files and output to the byte, and its remarks. Wrong use is in test_wrong_use.py."""

import gzip
import json
import re
from pathlib import Path

import pytest
from forked import nmt
from in_process import ran
from typer.testing import Result

TREES = """( (S (NP-SBJ (DT The)
        (NN dog))
   (VP (VBZ barks) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)) )
(ROOT (FRAG (-LRB- -LRB-) (CD 1\\/2) (-RRB- -RRB-)))
"""
WORDS = "The dog barks .\n( 1/2 )\n"
LINEAR = "(S (NP XX XX )NP (VP XX )VP XX )S\n(FRAG XX XX XX )FRAG\n"
PTB = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n(TOP (FRAG (-LRB- -LRB-) (CD 1\\/2) (-RRB- -RRB-)))\n"


NAMES = ["some.linear", "some.ptb", "some.trees.json", "some.words"]


@pytest.fixture(autouse=True)
def folder(workdir: Path) -> Path:
    Path("some.mrg").write_text(TREES)
    return workdir


def trees(line: str, text: str = "") -> Result:
    return ran(f"data trees {line}", stdin=text.encode())


def written(name: str = "some", folder: str = ".") -> tuple[str, str, str]:
    words, linear, ptb = (Path(folder, f"{name}.{kind}").read_text() for kind in ("words", "linear", "ptb"))
    return words, linear, ptb


def test_trees_become_sentences_symbols_and_gold_trees() -> None:
    done = trees("some.mrg --out new/pairs")
    assert written(folder="new/pairs") == (WORDS, LINEAR, PTB)
    assert done.stdout == ""
    assert done.stderr == "new/pairs/some.{words,linear,ptb}: 2 trees, 7 words, 15 symbols (the longest tree 10)\n"
    assert sorted(path.name for path in Path("new/pairs").iterdir()) == NAMES


def test_several_files_are_converted_each_or_joined_under_a_name() -> None:
    Path("b.trees.gz").write_bytes(gzip.compress(b"(TOP (NN word))"))
    trees("some.mrg b.trees.gz --out .")
    assert written("b") == ("word\n", "XX\n", "(TOP (NN word))\n")
    assert written() == (WORDS, LINEAR, PTB)
    trees("b.trees.gz some.mrg --out . --name train.all")
    assert written("train.all")[1] == "XX\n" + LINEAR
    trees("- --out . --name x", text=TREES)
    assert written("x") == (WORDS, LINEAR, PTB)


def test_what_is_left_out_or_replaced_is_counted() -> None:
    Path("some.mrg").write_bytes(b"(S (NP (-NONE- *)))\n(NN caf\xe9)\n")
    said = trees("some.mrg --out .").stderr
    assert written() == ("caf\ufffd\n", "XX\n", "(TOP (NN caf\ufffd))\n")
    assert "1 of 2 trees consist of traces" in said
    assert "'some.mrg': 1 line held invalid UTF-8" in said


def test_back_prints_a_tree_a_line_and_tells_of_repairs() -> None:
    Path("words").write_text("The dog barks .\n( 1/2 )\n\n")
    done = trees("--back --words words", text="(S (NP XX XX )NP (VP XX )VP XX )S\n(FRAG XX\n\n")
    assert done.stdout == (
        "(TOP (S (NP (XX The) (XX dog)) (VP (XX barks)) (XX .)))\n(TOP (FRAG (XX -LRB-) (XX 1/2) (XX -RRB-)))\n\n"
    )
    assert done.stderr == "3 trees, 1 of them repaired\n"
    Path("parses").write_text(LINEAR)
    assert trees("--back --words - parses", text=WORDS).stdout.count("\n") == 2


@pytest.mark.parametrize(
    ("kind", "linear", "tagged"),
    [
        ("tags", "(S (NP DT NN )NP (VP VBZ )VP . )S\n(FRAG -LRB- CD -RRB- )FRAG\n", True),
        ("words", "(S (NP The dog )NP (VP barks )VP . )S\n(FRAG -LRB- 1/2 -RRB- )FRAG\n", False),
        (
            "both",
            "(S (NP The /DT dog /NN )NP (VP barks /VBZ )VP . /. )S\n(FRAG -LRB- /-LRB- 1/2 /CD -RRB- /-RRB- )FRAG\n",
            True,
        ),
    ],
)
def test_words_can_be_tags_themselves_or_both_there_and_back(kind: str, linear: str, tagged: bool) -> None:
    for _ in range(2):  # its own earlier files are replaced
        trees(f"some.mrg --out . --terminals {kind}")
        assert written() == (WORDS, linear, PTB)
    assert json.loads(Path("some.trees.json").read_text())["terminals"] == kind
    back = trees("--back --words some.words some.linear")  # the record says what the words are
    assert back.stderr == "2 trees, 0 of them repaired\n"
    expected = PTB.replace("1\\/2", "1/2")
    assert back.stdout == (expected if tagged else re.sub(r"\(\S+ (?=[^ (]+\))", "(XX ", expected))
    Path("elsewhere").write_text(WORDS)
    assert trees(f"--back --words elsewhere --terminals {kind} some.linear").stdout == back.stdout


def test_what_an_earlier_run_wrote_stays_after_a_fault_and_a_record_of_the_users_too() -> None:
    convert = ("data", "trees", "some.mrg", "--out", ".")
    trees("some.mrg --out .")
    Path("some.mrg").write_text(TREES + ")")
    nmt(Path.cwd(), *convert, code=1)
    assert written() == (WORDS, LINEAR, PTB)
    for name in NAMES:
        Path(name).unlink()
    Path("some.mrg").write_text(TREES)
    Path("some.trees.json").write_text('{"mine": true}')
    assert "some.trees.json'" in nmt(Path.cwd(), *convert, code=1)
    assert sorted(path.name for path in Path().iterdir()) == ["some.mrg", "some.trees.json"]
    assert Path("some.trees.json").read_text() == '{"mine": true}'
