"""`nmt translate`: N lines in, N lines out, in every format; and what it does with a terminal, a pipe and Ctrl-C."""

import os
import pty
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from in_process import objects, printed, ran, refused, warnings
from small_models import needs_engine
from untrained import sentence
from waiting import LIMIT

from nmt_cli.data.tokenizer import Tokenizer

ONE = "translate --model one --device cpu --precision fp32"
EMPTY = {"translation": "", "score": 0.0, "log_prob": 0.0, "tokens": []}


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    return here


def translate(given: bytes, *more: object) -> bytes:
    return ran(ONE, *more, stdin=given).stdout_bytes


def test_utf_16_is_refused_only_with_its_mark() -> None:
    """N lines in, N lines out, whatever they contain: without a byte-order mark zero bytes are characters of a line."""
    assert "input is UTF-16 text" in refused(ONE, stdin="a cat.\nthe dog.\n".encode("utf-16"), code=1)
    for given, count in (("a cat.\nthe dog.\n".encode("utf-16-le"), 3), (b"\xff\xfe is invalid\na cat.\n", 2)):
        assert translate(given).count(b"\n") == count


def test_the_line_contract() -> None:
    """Odd characters, no last newline, empties, invalid bytes, a line of 5,000 words: as many lines come out."""
    rng = random.Random(1)
    odd = [f"the cat{c}the dog".encode() for c in "\u2028\u2029\x85\r\v\f\x1c\x1e\x00"]
    given = [
        b"the cat.",
        b"",
        b"   ",
        *odd,
        b"the dog.\r",
        b"\xff\xfe cat \xc3",
        sentence(rng, 5000).encode(),
        b"\t",
        b"a.",
    ]
    done = ran(ONE, stdin=b"\n".join(given))
    got = done.stdout_bytes.split(b"\n")
    assert (len(got), got.pop()) == (len(given) + 1, b"")
    assert all(bool(line.strip()) == bool(translation) for line, translation in zip(given, got, strict=True))
    assert "1 line held invalid UTF-8" in done.stderr
    assert len(got[-3].split()) > 100  # it was translated in parts
    for index in (3, 13):  # by itself a line gives the same
        assert translate(given[index] + b"\n") == got[index] + b"\n"
    assert translate(b"the cat.\r\na dog.\r\n") == translate(b"the cat.\na dog.\n")
    for nothing, expected in (
        (b"", b""),
        (b"\n", b"\n"),
        (b" ", b"\n"),
        (b"\n\n \n", b"\n\n\n"),
        (b"\xef\xbb\xbf", b""),
    ):
        assert translate(nothing) == expected


def test_the_model_is_named_or_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout is data; stderr says which model of a run it is."""
    plain = ran(ONE, stdin=b"the cat.\n")
    Path("a:b c").mkdir()
    Path("a:b c/best").symlink_to("../one")
    monkeypatch.setenv("NMT_MODEL", "a:b c")
    of_run = ran(ONE.replace("--model one", ""), stdin=b"the cat.\n")
    assert (plain.stderr, of_run.stderr, of_run.stdout) == ("", "model: a:b c/best\n", plain.stdout)


def test_formats_agree_and_json_holds_all_that_is_known() -> None:
    given = b"the cat sees the dog.\n\na big house.\n"
    plain, scored, moses = (
        [line.split(mark) for line in printed(ONE, *options, stdin=given).split("\n")[:-1]]
        for options, mark in (([], "\n"), (["--scores"], "\t"), (["--nbest", 2], " ||| "))
    )
    found = objects(ONE, "--json", "--nbest", 2, "--alignment", stdin=given)
    keys = ["source", "translation", "score", "log_prob", "tokens"]
    assert list(found[0]) == [*keys, "source_tokens", "alignment", "nbest"]
    assert list(objects(ONE, "--json", stdin=given)[0]) == [*keys, "nbest"]
    assert [[o["translation"]] for o in found] == plain
    assert [[f"{o['score']:.6f}", o["translation"]] for o in found] == scored
    best = [(str(number), one) for number, o in enumerate(found) for one in o["nbest"]]
    assert [(number, one["translation"]) for number, one in best] == [(number, text) for number, text, _ in moses]
    assert [number for number, _ in best] == ["0", "0", "1", "2", "2"]
    tokenizer = Tokenizer.load("one/tokenizer.model")
    for o, source in zip(found, given.decode().splitlines(), strict=True):
        assert (o["source"], o["source_tokens"]) == (source, tokenizer.pieces(source))
        assert {key: o[key] for key in keys[1:]} == o["nbest"][0]
        for one in o["nbest"]:
            assert tokenizer.decode([[tokenizer.table.index(piece) for piece in one["tokens"]]]) == [one["translation"]]
        assert all(i < len(o["source_tokens"]) and j < len(o["tokens"]) for i, j in o["alignment"])
    assert found[0]["alignment"]
    assert found[1] == {"source": "", **EMPTY, "source_tokens": [], "alignment": [], "nbest": [EMPTY]}


@needs_engine
def test_the_fastest_precision_of_the_engine_is_int8() -> None:
    given = b"the cat sees the dog.\na big house.\n"
    auto, int8 = (printed(ONE.replace("fp32", kind), "--scores", stdin=given) for kind in ("auto", "int8"))
    assert auto == int8 != printed(ONE, "--scores", stdin=given)


def test_invalid_utf_8_is_counted_for_each_file() -> None:
    Path("in").write_bytes(b"the \xff cat\na dog\n")
    Path("prefixes").write_bytes(b"\xfe\n\xff\n")
    said = "\n".join(warnings(ONE, "--input", "in", "--prefix-file", "prefixes"))
    assert "in: 1 line held" in said
    assert "prefixes: 2 lines held" in said


# Processes as a user starts them

START: Any = partial(
    subprocess.Popen,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    # a shell's background jobs are started deaf to it
    preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
)
NMT = [sys.executable, "-m", "nmt_cli"]


@pytest.mark.slow
def test_who_types_at_a_terminal_sees_a_prompt_and_no_bar() -> None:
    """Each line is answered before the next one is typed."""
    terminal, far_end = pty.openpty()
    with START([*NMT, *ONE.split(), "--devices", "1"], stdin=far_end, stderr=far_end) as process:
        os.close(far_end)
        said = b""
        while b"Ctrl-D" not in said:
            said += os.read(terminal, 1000)
        answers = b""
        for line in (b"the cat.\n", b"a dog.\n"):
            os.write(terminal, line)
            answers += process.stdout.readline()
        os.write(terminal, b"\x04")
        assert process.wait(LIMIT) == 0
        said += os.read(terminal, 1000)
    os.close(terminal)
    assert ("en → de".encode() in said, b"translating" in said) == (True, False)
    assert answers == translate(b"the cat.\na dog.\n")


@pytest.mark.slow
def test_output_appears_before_input_ends() -> None:
    with START([*NMT, *ONE.split()], stderr=subprocess.PIPE) as process:
        for line in (b"the cat.\n", b"a dog.\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait(LIMIT) == 0
