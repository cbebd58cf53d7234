"""`nmt parse`: a tree for each line, whatever the lines and the model's output are. The models are untrained."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run
from untrained import write_untrained, write_untrained_parser

from nmt_cli.parsing.brackets import read_trees

KINDS = ["xx", "tags", "words", "both"]
SENTENCES = "the small cat sees ( a dog ) .\n\n  \t\nthe cat .\n"
PARSE = ["parse", "--devices", "1", "--model"]
TOKENIZED = [*PARSE, "xx", "--tokenized"]
WITHOUT_NLTK = "import sys\nsys.modules['nltk'] = sys.modules['nltk.tokenize'] = None\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parser of each kind, one that has learned treebank quotes, and a model that is no parser."""
    folder = tmp_path_factory.mktemp("parse")
    for kind in KINDS:
        write_untrained_parser(folder / kind, kind)
    write_untrained_parser(folder / "unnamed", "")
    write_untrained_parser(folder / "quotes", "tags", quotes=True)
    write_untrained(folder / "translator")
    return folder


def ok(folder: Path, *arguments: object, text: str = "") -> tuple[list[str], str]:
    done = run(folder, *arguments, text=text.encode())
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n"), done.stderr.decode()


def words(line: str) -> str:
    """The words of the tree of a line; "" for a blank line."""
    return " ".join(word for tree in read_trees([line], "here") for word in tree.words)


@pytest.mark.parametrize("kind", KINDS)
def test_each_sentence_gets_a_tree_of_its_words_and_a_blank_line_stays_blank(folder: Path, kind: str) -> None:
    lines, said = ok(folder, *PARSE, kind, "--tokenized", text=SENTENCES)
    assert [words(line) for line in lines] == ["the small cat sees -LRB- a dog -RRB- .", "", "", "the cat .", ""]
    assert all(line.startswith("(TOP ") for line in lines if line)
    assert said == "" or "of 2 trees were repaired: the model's output was not a tree of the sentence." in said


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_translate_and_data_trees_back(folder: Path, kind: str) -> None:
    (folder / "sentences").write_text(SENTENCES)
    linear = "\n".join(ok(folder, "translate", "--devices", "1", "--model", kind, text=SENTENCES)[0])
    back, said = ok(folder, "data", "trees", "--back", "--words", "sentences", "--terminals", kind, text=linear)
    parsed, remarks = ok(folder, *PARSE, kind, "--tokenized", text=SENTENCES)
    assert parsed == back
    repairs = int(said.split(", ")[1].split()[0])
    assert remarks == (
        f"{repairs} of 2 trees were repaired: the model's output was not a tree of the sentence.\n" if repairs else ""
    )


def test_a_file_is_written_when_all_is_parsed_and_replaced_by_the_next(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(SENTENCES)
    expected, _ = ok(folder, *TOKENIZED, text=SENTENCES)
    for _ in range(2):
        lines, _ = ok(folder, *TOKENIZED, "--input", tmp_path / "in", "--output", tmp_path / "out")
        assert (lines, (tmp_path / "out").read_text().split("\n")) == ([""], expected)
    done = run(folder, *TOKENIZED, "--input", tmp_path / "in", "--output", tmp_path / "in")
    assert (done.returncode, (tmp_path / "in").read_text()) == (2, SENTENCES)
    assert b"the trees would replace its own input" in done.stderr


def test_a_sentence_that_is_too_long_gets_a_flat_tree_and_is_named(folder: Path) -> None:
    long, unknown = "the cat sees " * 20, "x" * 50  # too many words, and a word of too many tokens
    lines, said = ok(folder, *TOKENIZED, text=f"the cat .\n{long}\n\nthe cat .\n{unknown}")
    assert lines[1] == "(TOP " + " ".join(f"(XX {word})" for word in long.split()) + ")"
    assert lines.pop(4) == f"(TOP (XX {unknown}))"
    assert "warning: line 5 is too long for the model: it has 1 words, " in " ".join(said.split())
    assert [bool(line) for line in lines] == [True, True, False, True, False]
    assert lines[0] == lines[3] == ok(folder, *TOKENIZED, text="the cat .")[0][0]
    assert (
        "warning: line 2 is too long for the model: it has 60 words, 80 tokens; the model reads up to 40 tokens and writes up to 63 symbols. Its tree is flat."
        in " ".join(said.split())
    )


def test_invalid_utf8_is_replaced_and_counted(folder: Path) -> None:
    done = run(folder, *TOKENIZED, text=b"caf\xe9 .\n")
    assert (done.returncode, words(done.stdout.decode())) == (0, "caf\ufffd .")
    assert b"1 line held invalid UTF-8" in done.stderr


def test_words_are_separated_as_in_a_treebank(folder: Path) -> None:
    pytest.importorskip("nltk")
    text = 'I don\'t see "the cat" (a dog), can you?\nIt’s 3/4.\n\n'
    plain, treebank = (ok(folder, *PARSE, model, text=text)[0] for model in ("tags", "quotes"))
    assert [words(line) for line in plain] == [
        'I do n\'t see " the cat " -LRB- a dog -RRB- , can you ?',
        "It 's 3/4 .",
        "",
        "",
    ]
    assert words(treebank[0]) == "I do n't see `` the cat '' -LRB- a dog -RRB- , can you ?"


@pytest.mark.parametrize(
    ("code", "arguments", "prelude", "message"),
    [
        (
            2,
            ["xx"],
            WITHOUT_NLTK,
            "error: nmt parse needs the extra package nltk to separate words (import of nltk.tokenize halted; None in sys.modules): pip install 'nltk>=3.9'. Or separate them yourself, and give --tokenized.",
        ),
        (
            1,
            ["translator", "--tokenized"],
            "",
            "error: the model 'translator' is not a parser: its recipe does not have data.terminals (xx, tags, words, both)",
        ),
        (1, ["unnamed", "--tokenized"], "", "error: the model 'unnamed' is not a parser"),
        (1, ["missing", "--tokenized"], "", "error: no model at 'missing'."),
        (2, ["xx", "--tokenized", "--precision", "fp3"], "", "error: --precision 'fp3': expected"),
        (
            2,
            ["xx", "--tokenized", "--set", "model.d_model=3"],
            "",
            "error: --set 'model.d_model=3': the recipe of a trained model cannot be changed",
        ),
        (1, ["xx", "--tokenized", "--input", "missing"], "", "error: cannot read 'missing'"),
    ],
)
def test_wrong_use_is_reported(folder: Path, code: int, arguments: list[str], prelude: str, message: str) -> None:
    done = run(folder, *PARSE, *arguments, text=b"the cat .\n", prelude=prelude)
    assert (done.returncode, done.stdout) == (code, b"")
    assert " ".join(done.stderr.decode().split()).startswith(message)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("leaves", [True, False])
def test_a_reader_that_leaves_is_no_error_and_ctrl_c_ends_it(folder: Path, leaves: bool) -> None:
    command = [sys.executable, "-m", "nmt_cli", *TOKENIZED, "--beam", "1"]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"the cat .\n")
        process.stdin.flush()
        assert words(process.stdout.readline().decode()) == "the cat ."  # output begins before input ends
        if leaves:
            process.stdout.close()
            process.stdin.write(b"the cat .\n" * 1000)
        else:
            process.send_signal(signal.SIGINT)
            process.wait()
        process.stdin.close()
        said = process.stderr.read().decode()
    assert (process.returncode, said) == ((0, "") if leaves else (130, "interrupted\n"))


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from nmt_cli.cli.app import app\n"
        "try:\n    app(['parse', '-h'])\n"
        "finally:\n    assert not {'torch', 'nltk', 'sentencepiece', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--tokenized" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_constraint_nothing_is_repaired_and_translate_writes_the_same_trees(folder: Path, kind: str) -> None:
    """The kind of terminals comes from the model's recipe, in both commands."""
    tree = ("--set", 'decode.constraints=["tree"]')
    parsed, said = ok(folder, *PARSE, kind, "--tokenized", *tree, text=SENTENCES)
    assert [words(line) for line in parsed] == ["the small cat sees -LRB- a dog -RRB- .", "", "", "the cat .", ""]
    assert said == ""
    linear = ok(folder, "translate", "--devices", "1", "--model", kind, *tree, text=SENTENCES)[0]
    (folder / "constrained").write_text(SENTENCES)
    back, said = ok(
        folder, "data", "trees", "--back", "--words", "constrained", "--terminals", kind, text="\n".join(linear)
    )
    assert back == parsed
    assert "0 of them repaired" in said
