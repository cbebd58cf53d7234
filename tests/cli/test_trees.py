"""`nmt data trees`: files and output to the byte, its remarks and every error."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run
from waiting import LIMIT, wait_until

TREES = """( (S (NP-SBJ (DT The)
        (NN dog))
   (VP (VBZ barks) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)) )
(ROOT (FRAG (-LRB- -LRB-) (CD 1\\/2) (-RRB- -RRB-)))
"""
WORDS = "The dog barks .\n( 1/2 )\n"
LINEAR = "(S (NP XX XX )NP (VP XX )VP XX )S\n(FRAG XX XX XX )FRAG\n"
PTB = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))\n(TOP (FRAG (-LRB- -LRB-) (CD 1\\/2) (-RRB- -RRB-)))\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some.mrg").write_text(TREES)
    return tmp_path


def ok(folder: Path, *arguments: object, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = run(folder, "data", "trees", *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done


def fault(folder: Path, code: int, *arguments: object, text: bytes = b"") -> str:
    done = run(folder, "data", "trees", *arguments, text=text)
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def written(folder: Path, name: str) -> tuple[str, str, str]:
    words, linear, ptb = ((folder / f"{name}.{kind}").read_text() for kind in ("words", "linear", "ptb"))
    return words, linear, ptb


def test_trees_become_sentences_symbols_and_gold_trees(folder: Path) -> None:
    done = ok(folder, "some.mrg", "--out", "new/pairs")
    assert written(folder / "new" / "pairs", "some") == (WORDS, LINEAR, PTB)
    assert done.stdout == b""
    assert done.stderr == b"new/pairs/some.{words,linear,ptb}: 2 trees, 7 words, 15 symbols (the longest tree 10)\n"
    assert sorted(path.name for path in (folder / "new" / "pairs").iterdir()) == [
        "some.linear",
        "some.ptb",
        "some.trees.json",
        "some.words",
    ]


def test_function_tags_traces_and_escapes_can_be_kept(folder: Path) -> None:
    ok(folder, "some.mrg", "--out", ".", "--functions", "--traces", "--escapes")
    words, linear, ptb = written(folder, "some")
    assert words == "The dog barks 0 *T*-1 .\n-LRB- 1\\/2 -RRB-\n"
    assert linear.startswith("(S (NP-SBJ XX XX )NP-SBJ (VP XX (SBAR XX (S XX )S )SBAR )VP XX )S\n")
    assert ptb.startswith(
        "(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)))\n"
    )


def test_several_files_are_converted_each_or_joined_under_a_name(folder: Path) -> None:
    (folder / "b.trees.gz").write_bytes(gzip.compress(b"(TOP (NN word))"))
    ok(folder, "some.mrg", "b.trees.gz", "--out", ".")
    assert written(folder, "b") == ("word\n", "XX\n", "(TOP (NN word))\n")
    assert written(folder, "some")[1] == LINEAR
    ok(folder, "b.trees.gz", "some.mrg", "--out", ".", "--name", "train.all")
    assert written(folder, "train.all")[1] == "XX\n" + LINEAR


def test_standard_input_needs_a_name(folder: Path) -> None:
    ok(folder, "-", "--out", ".", "--name", "x", text=TREES.encode())
    assert written(folder, "x") == (WORDS, LINEAR, PTB)
    assert "standard input has no name for the files: give --name NAME." in fault(
        folder, 2, "-", "--out", ".", text=TREES.encode()
    )


def test_trees_of_traces_alone_are_left_out_and_counted(folder: Path) -> None:
    (folder / "some.mrg").write_text("(S (NP (-NONE- *)))\n(NN a)\n")
    done = ok(folder, "some.mrg", "--out", ".")
    assert written(folder, "some") == ("a\n", "XX\n", "(TOP (NN a))\n")
    assert "warning: 1 of 2 trees consist of traces: they were left out." in done.stderr.decode()


def test_invalid_utf8_is_replaced_and_counted(folder: Path) -> None:
    (folder / "some.mrg").write_bytes(b"(NN caf\xe9)\n")
    assert "'some.mrg': 1 line held invalid UTF-8" in ok(folder, "some.mrg", "--out", ".").stderr.decode()
    assert written(folder, "some")[0] == "caf\ufffd\n"


def test_back_prints_a_tree_a_line_and_tells_of_repairs(folder: Path) -> None:
    (folder / "words").write_text("The dog barks .\n( 1/2 )\n\n")
    done = ok(folder, "--back", "--words", "words", text=b"(S (NP XX XX )NP (VP XX )VP XX )S\n(FRAG XX\n\n")
    assert (
        done.stdout.decode()
        == "(TOP (S (NP (XX The) (XX dog)) (VP (XX barks)) (XX .)))\n(TOP (FRAG (XX -LRB-) (XX 1/2) (XX -RRB-)))\n\n"
    )
    assert done.stderr == b"3 trees, 1 of them repaired\n"
    (folder / "parses").write_text(LINEAR)
    assert ok(folder, "--back", "--words", "-", "parses", text=WORDS.encode()).stdout.count(b"\n") == 2


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
def test_words_can_be_tags_themselves_or_both_there_and_back(
    folder: Path, kind: str, linear: str, tagged: bool
) -> None:
    ok(folder, "some.mrg", "--out", ".", "--terminals", kind)
    assert written(folder, "some") == (WORDS, linear, PTB)
    assert json.loads((folder / "some.trees.json").read_text())["terminals"] == kind
    back = ok(folder, "--back", "--words", "some.words", "some.linear")  # the record says what the words are
    assert back.stderr == b"2 trees, 0 of them repaired\n"
    expected = PTB.replace("1\\/2", "1/2")
    assert back.stdout.decode() == (expected if tagged else re.sub(r"\(\S+ (?=[^ (]+\))", "(XX ", expected))
    (folder / "elsewhere").write_text(WORDS)
    assert ok(folder, "--back", "--words", "elsewhere", "--terminals", kind, "some.linear").stdout == back.stdout
    ok(folder, "some.mrg", "--out", ".", "--terminals", kind)  # its own earlier files are replaced


def test_xx_is_the_default(folder: Path) -> None:
    ok(folder, "some.mrg", "--out", "a")
    ok(folder, "some.mrg", "--out", "b", "--terminals", "xx")
    for name in ("some.words", "some.linear", "some.ptb", "some.trees.json"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
    assert json.loads((folder / "a" / "some.trees.json").read_text())["terminals"] == "xx"


def test_a_damaged_record_is_an_error_unless_terminals_are_given(folder: Path) -> None:
    ok(folder, "some.mrg", "--out", ".", "--terminals", "tags")
    (folder / "some.trees.json").write_text("{}")
    assert "Move it away, and give --terminals." in fault(folder, 1, "--back", "--words", "some.words", "some.linear")
    ok(folder, "--back", "--words", "some.words", "--terminals", "tags", "some.linear")


def test_there_and_back_is_the_tree_without_its_tags(folder: Path) -> None:
    (folder / "some.mrg").write_text("(ROOT (S (NP (XX The) (XX dog)) (VP (XX barks))))\n")
    ok(folder, "some.mrg", "--out", ".")
    assert ok(folder, "--back", "--words", "some.words", "some.linear").stdout == (folder / "some.ptb").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.mrg", "--out", "."], 1, "cannot read 'none.mrg': No such file or directory."),
        (["void", "--out", "."], 1, "'void': it has no tree; expected brackets"),
        (["broken.mrg", "--out", "."], 1, "'broken.mrg', line 2: the tree that begins here lacks 1 closing bracket(s)"),
        (["some.mrg", "--out", "some.mrg"], 1, "cannot write the pairs at 'some.mrg'"),
        (["some.mrg"], 2, "give IN, files of bracketed trees, and --out DIR"),
        (["--out", "."], 2, "give IN, files of bracketed trees, and --out DIR"),
        ([], 2, "give IN, files of bracketed trees, and --out DIR"),
        (
            ["some.mrg", "some.mrg", "--out", "."],
            2,
            "'some.mrg' and 'some.mrg' would both go to some.words: give --name NAME to join them",
        ),
        (["some.mrg", "--out", ".", "--name", "a/b"], 2, "--name 'a/b': expected the beginning of a file name"),
        (["-", "-", "--out", ".", "--name", "x"], 2, "'-' (standard input) was given more than once"),
        (["some.mrg", "--out", ".", "--words", "x"], 2, "--words: only with --back."),
        (["--back"], 2, "--back needs --words FILE"),
        (["--back", "--words", "x", "a", "b"], 2, "--back was given 2 files of parses"),
        (["--back", "--words", "-"], 2, "'-' (standard input) was given more than once"),
        (["--back", "--words", "x", "--out", ".", "--functions"], 2, "--out, --functions: not with --back"),
        (
            ["some.mrg", "--out", ".", "--terminals", "tag"],
            2,
            "--terminals 'tag': expected xx, tags, words or both. Did you mean 'tags'?",
        ),
        (["--back", "--words", "none", "some.mrg"], 1, "cannot read 'none'"),
    ],
)
def test_faults_are_named_and_leave_no_files(folder: Path, arguments: list[str], code: int, said: str) -> None:
    (folder / "void").touch()
    (folder / "broken.mrg").write_text("(NN a)\n(S (NP (NN a))\n(NN b)\n")
    before = sorted(folder.iterdir())
    assert said in fault(folder, code, *arguments)
    assert sorted(folder.iterdir()) == before


def test_unequal_sides_of_the_way_back_are_named_after_what_they_share(folder: Path) -> None:
    for words, parses, said in (
        (b"a\nb\n", b"XX\n", "'words' has 2 lines, standard input has 1 line: "),
        (b"a\n", b"XX\nXX\n", "'words' has 1 line, standard input has 2 lines: "),
    ):
        (folder / "words").write_bytes(words)
        done = run(folder, "data", "trees", "--back", "--words", "words", text=parses)
        assert (done.returncode, done.stdout) == (1, b"(TOP (XX a))\n")
        assert said in done.stderr.decode()


def test_a_reader_that_leaves_is_no_fault(folder: Path) -> None:
    (folder / "words").write_bytes(b"a b c d e f\n" * 50_000)
    (folder / "parses").write_bytes(b"(S XX XX XX XX XX XX )S\n" * 50_000)
    command = [sys.executable, "-m", "nmt_cli", "data", "trees", "--back", "--words", "words", "parses"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"(TOP (S (XX a) ")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_later_fault_leaves_what_an_earlier_run_wrote(folder: Path) -> None:
    ok(folder, "some.mrg", "--out", ".")
    (folder / "some.mrg").write_text(TREES + ")")
    fault(folder, 1, "some.mrg", "--out", ".")
    assert written(folder, "some") == (WORDS, LINEAR, PTB)


def test_ctrl_c_leaves_nothing_behind(folder: Path) -> None:
    command = [sys.executable, "-m", "nmt_cli", "data", "trees", "-", "--name", "x", "--out", "out"]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"COLUMNS": "200"}
    )
    assert process.stdin is not None
    process.stdin.write(TREES.encode())
    process.stdin.flush()
    wait_until(lambda: list(folder.glob("out/.x.words.partial-*")), by=process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert b"Traceback" not in said
    assert list((folder / "out").iterdir()) == []


def test_help_and_conversion_load_nothing_heavy(folder: Path) -> None:
    program = (
        "import sys\n"
        "from nmt_cli.cli.app import app\n"
        "app(['data', 'trees', 'some.mrg', '--out', '.'], standalone_mode=False)\n"
        "heavy = {'torch', 'sacrebleu', 'numpy', 'sentencepiece'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for arguments in (["data", "-h"], ["data", "trees", "-h"]):
        said = run(folder, *arguments)
        assert b"trees" in said.stdout + said.stderr


def test_a_record_that_is_the_users_is_not_replaced(folder: Path) -> None:
    (folder / "some.trees.json").write_text('{"mine": true}')
    assert "some.trees.json' is not of nmt, or is damaged" in fault(folder, 1, "some.mrg", "--out", ".")
    assert (folder / "some.trees.json").read_text() == '{"mine": true}'
    assert sorted(path.name for path in folder.iterdir()) == ["some.mrg", "some.trees.json"]
