"""`nmt score --model`: a line a pair on stdout, the corpus on stderr, its remarks and its errors."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result
from untrained import sentence, write_untrained

from nmt_cli.cli.score import score
from nmt_cli.errors import DataError, ModelError, NmtError, UsageError

app = typer.Typer()
app.command()(score)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an untrained model in it."""
    return write_untrained(tmp_path_factory.mktemp("run") / "best").parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    Path("model").symlink_to(trained / "best")
    Path("src").write_text("".join(sentence(rng, rng.randint(1, 12)) + "\n" for _ in range(30)))
    Path("ref").write_text("".join(sentence(rng, rng.randint(1, 12)) + "\n" for _ in range(30)))
    return tmp_path


MODEL = ["--model", "model", "--src", "src", "--ref", "ref", "--device", "cpu"]


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    return result


def fault(*arguments: str, stdin: bytes | None = None) -> NmtError:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert isinstance(result.exception, NmtError), result.exception
    return result.exception


def rows(output: str) -> list[tuple[float, float, int]]:
    return [
        (float(log_prob), float(perplexity), int(tokens))
        for log_prob, perplexity, tokens in (line.split("\t") for line in output.splitlines())
    ]


def test_a_line_a_pair_and_the_corpus_on_stderr() -> None:
    result = run(*MODEL)
    found = rows(result.stdout)
    assert len(found) == 30
    for log_prob, perplexity, tokens in found:
        assert log_prob < 0
        assert perplexity == pytest.approx(math.exp(-log_prob / tokens), rel=1e-5)
    total, tokens = -sum(row[0] for row in found), sum(row[2] for row in found)
    words = result.stderr.split()
    assert words[::2] == ["NLL", "perplexity", "sentences", "tokens"]
    assert float(words[1]) == pytest.approx(total / tokens, abs=2e-6)
    assert float(words[3]) == pytest.approx(math.exp(total / tokens), rel=1e-5)
    assert words[5::2] == ["30", str(tokens)]


def test_decimals_can_be_chosen() -> None:
    assert all(
        len(number.partition(".")[2]) == 2
        for line in run(*MODEL, "--width", "2").stdout.splitlines()
        for number in line.split("\t")[:2]
    )


def test_json_is_an_object_a_line() -> None:
    objects = [json.loads(line) for line in run(*MODEL, "--json").stdout.splitlines()]
    assert list(objects[0]) == ["source", "target", "tokens", "log_prob", "perplexity"]
    assert [o["source"] for o in objects] == Path("src").read_text().splitlines()
    assert [o["target"] for o in objects] == Path("ref").read_text().splitlines()
    assert [f"{o['log_prob']:.6f}\t{o['perplexity']:.6f}\t{o['tokens']}" for o in objects] == run(
        *MODEL
    ).stdout.splitlines()


def test_neighbours_and_batch_size_change_no_digit() -> None:
    lines = run(*MODEL).stdout.splitlines()
    assert run(*MODEL, "--batch-tokens", "1").stdout.splitlines() == lines
    source, target = (Path(name).read_text().splitlines(keepends=True) for name in ("src", "ref"))
    for index in (0, 17):
        Path("one").write_text(target[index])
        assert (
            run(
                "--model", "model", "--src", "-", "--ref", "one", "--device", "cpu", stdin=source[index].encode()
            ).stdout
            == lines[index] + "\n"
        )
    Path("src").write_text("".join(reversed(source)))
    Path("ref").write_text("".join(reversed(target)))
    assert run(*MODEL).stdout.splitlines() == lines[::-1]


def test_standard_input_and_compressed_files() -> None:
    lines = run(*MODEL).stdout
    Path("src.gz").write_bytes(gzip.compress(Path("src").read_bytes()))
    assert (
        run("-m", "model", "--src", "src.gz", "--ref", "-", "--device", "cpu", stdin=Path("ref").read_bytes()).stdout
        == lines
    )


def test_blank_and_long_lines_keep_their_places() -> None:
    Path("src").write_text("the cat.\n\n \nthe cat.\n" + "cat " * 500 + "\n")
    Path("ref").write_text("\nthe cat.\n\t\nthe cat.\nthe cat.\n")
    result = run(*MODEL)
    blank_target, blank_source, both, neither, long = result.stdout.splitlines()
    assert blank_target.endswith("\t1")
    assert both == "0.000000\t1.000000\t0"
    assert long.startswith("nan\tnan\t")
    assert blank_source.split("\t")[2] == neither.split("\t")[2] == long.split("\t")[2]
    warning, corpus = result.stderr.splitlines()
    assert warning == (
        "warning: 1 of 5 pairs, the first at line 5, have a side longer than the model's maximum (model.max_positions = 64, end symbol counted): "
        "they have no score and do not count in the totals."
    )
    assert corpus.split()[4:] == ["sentences", "4", "tokens", str(1 + 2 * int(neither.split("\t")[2]))]
    last = json.loads(run(*MODEL, "--json").stdout.splitlines()[-1])
    assert (last["log_prob"], last["perplexity"]) == (None, None)


def test_odd_separators_do_not_split_and_the_last_newline_may_lack() -> None:
    odd = "one\u2028two\x85three\x0bfour\x0cfive\rsix".encode()
    Path("src").write_bytes(odd + b"\r\n" + odd)
    Path("ref").write_bytes(odd + b"\n" + odd)
    first, second = run(*MODEL).stdout.splitlines()
    assert first == second


def test_invalid_utf8_is_replaced_and_counted() -> None:
    Path("src").write_bytes(b"caf\xe9\nfine\n")
    Path("ref").write_bytes(b"fine\nfine\n")
    assert "src: 1 line held invalid UTF-8" in run(*MODEL).stderr


def test_a_run_folder_is_a_model_too(trained: Path) -> None:
    result = run("--model", str(trained), *MODEL[2:])
    assert result.stdout == run(*MODEL).stdout
    assert result.stderr.splitlines()[0] == f"model: {trained / 'best'}"


UNEQUAL = "'src' has 30 lines, 'ref' has 31 lines: they are not line by line parallel. They part at line 31, where 'ref' reads 'more'."


def test_unequal_counts_of_files_are_told_before_any_work() -> None:
    Path("ref").write_text(Path("ref").read_text() + "more\n")
    result = CliRunner().invoke(app, ["--model", "missing", *MODEL[2:]])
    assert isinstance(result.exception, DataError)
    assert str(result.exception).startswith(UNEQUAL)
    assert result.stdout == ""


def test_unequal_counts_of_a_pipe_are_told_after_the_lines_before() -> None:
    given = Path("ref").read_bytes()
    lines = run(*MODEL).stdout
    result = CliRunner().invoke(app, ["--model", "model", "--src", "src", "--ref", "-"], input=given + b"more\n")
    assert isinstance(result.exception, DataError)
    assert str(result.exception).startswith(UNEQUAL.replace("'ref'", "'standard input'"))
    assert result.stdout == lines
    assert result.stderr == ""


def test_missing_and_empty_files_are_named() -> None:
    assert "missing" in str(fault("--model", "model", "--src", "missing", "--ref", "ref"))
    assert "missing" in str(fault("--model", "model", "--src", "src", "--ref", "missing"))
    error = fault("--model", "missing", *MODEL[2:])
    assert isinstance(error, ModelError)
    assert "'missing'" in str(error)
    Path("void").touch()
    for arguments, name in (
        (["--src", "void", "--ref", "void"], "void"),
        (["--src", "void", "--ref", "-"], "standard input"),
    ):
        error = fault("--model", "model", *arguments, stdin=b"")
        assert isinstance(error, DataError)
        assert str(error) == f"{name!r} is empty: expected one translation per line."
    assert "'src' has 30 lines, 'void' has 0 lines" in str(fault("--model", "model", "--src", "src", "--ref", "void"))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_totals_of_no_scored_pair_are_an_error(options: list[str]) -> None:
    """The lines are printed all the same; no perplexity of 1 is."""
    Path("blank").write_text("\n \n", encoding="utf-8")
    Path("long").write_text("the " * 400 + "\n\n", encoding="utf-8")
    reasons = {"blank": "blank on both sides", "long": "longer than the model's maximum, or blank on both sides"}
    for name, reason in reasons.items():
        for stdin, src in ((None, name), (Path(name).read_bytes(), "-")):
            result = CliRunner().invoke(app, [*options, "--model", "model", "--src", src, "--ref", name], input=stdin)
            assert isinstance(result.exception, DataError)
            assert str(result.exception).startswith("nothing was scored: all 2 pairs of ")
            assert str(result.exception).endswith(f"are {reason}.")
            assert result.stdout.count("\n") == 2
            assert "perplexity 1" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ref", "ref"], "nothing to score: give HYP"),
        (["--model", "model", "--ref", "ref"], "--model needs --src SRC"),
        (["ref", *MODEL], "HYP ('ref') and --model were both given"),
        ([*MODEL, "--ref", "ref"], "--ref was given 2 times"),
        ([*MODEL, "--metric", "bleu", "--lowercase"], "--metric, --lowercase: not with --model"),
        ([*MODEL, "--tokenize", "none"], "--tokenize: not with --model"),
        ([*MODEL, "--worst", "3"], "--worst: not with --model"),
        (["ref", "--ref", "ref", "--src", "src", "--device", "cpu"], "--device: only with --model DIR"),
        (
            ["ref", "--ref", "ref", "--device", "cpu", "--precision", "fp32", "--batch-tokens", "5"],
            "--batch-tokens, --device, --precision: only with --model DIR",
        ),
        (["--model", "model", "--src", "-", "--ref", "-"], "given more than once"),
        ([*MODEL, "--precision", "fp8"], "--precision 'fp8': expected auto, fp32, bf16, fp16 or int8."),
        ([*MODEL[:-1], "tpu"], "--device 'tpu': expected auto, cpu, cuda, cuda:N or mps."),
    ],
)
def test_wrong_usage_says_what_to_give(arguments: list[str], words: str) -> None:
    error = fault(*arguments)
    assert isinstance(error, UsageError)
    assert words in str(error)


def test_no_reference_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["--model", "model", "--src", "src"]).exit_code == 2


def test_the_environment_of_translate_does_not_choose_the_way_to_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_MODEL", "model")
    assert run("ref", "--ref", "ref", "--metric", "ter").stdout.startswith("TER      0.00")


def test_a_reader_may_leave() -> None:
    """In a process of its own: nothing is said, and Python does not trip over what is left to write."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "nmt_cli", "score", *MODEL]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
