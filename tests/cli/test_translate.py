"""`nmt translate` in a process of its own: the line contract, the formats, faults and signals."""

from __future__ import annotations

import functools
import gzip
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
import sealed
from held_search import PRELUDE, Gate
from untrained import sentence, write_untrained
from waiting import LIMIT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an untrained model in it."""
    return write_untrained(tmp_path_factory.mktemp("run") / "best").parent


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def nmt(*args: object, stdin: bytes = b"", **extra: Any) -> subprocess.CompletedProcess[bytes]:
    return forked.run(Path.cwd(), "translate", *args, text=stdin, **extra)


def lines_of(done: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"" or done.stdout.endswith(b"\n")
    return done.stdout.split(b"\n")[:-1]


def test_the_line_contract(folder: Path) -> None:
    """Odd characters, no last newline, empties, invalid bytes, a line of 5,000 words: as many lines come out."""
    rng = random.Random(1)
    odd = [
        f"the cat{c}the dog".encode() for c in ("\u2028", "\u2029", "\x85", "\r", "\v", "\f", "\x1c", "\x1e", "\x00")
    ]
    given = [
        b"the cat.",
        b"",
        b"   ",
        *odd,
        b"the dog.\r",
        b"\xff\xfe cat \xc3",
        sentence(rng, 5000).encode(),
        b"\t",
        b"a cat.",
    ]
    done = nmt("--model", folder, stdin=b"\n".join(given))
    got = lines_of(done)
    assert len(got) == len(given)
    assert all(bool(line.strip()) == bool(translation) for line, translation in zip(given, got, strict=True))
    assert b"1 line held invalid UTF-8" in done.stderr
    assert len(got[-3].split()) > 100  # it was translated in parts
    # each by itself gives the same
    for index in (3, 13):
        assert lines_of(nmt("--model", folder, stdin=given[index] + b"\n")) == [got[index]]


def test_crlf_is_a_line_end(folder: Path) -> None:
    assert (
        nmt("--model", folder, stdin=b"the cat.\r\na dog.\r\n").stdout
        == nmt("--model", folder, stdin=b"the cat.\na dog.\n").stdout
    )


@pytest.mark.parametrize(
    ("given", "expected"), [(b"", b""), (b"\n", b"\n"), (b" ", b"\n"), (b"\n\n \n", b"\n\n\n"), (b"\xef\xbb\xbf", b"")]
)
def test_nothing_in_nothing_out(folder: Path, given: bytes, expected: bytes) -> None:
    done = nmt("--model", folder, stdin=given)
    assert (done.returncode, done.stdout) == (0, expected)


def test_who_types_at_a_terminal_sees_a_prompt_and_no_bar(folder: Path) -> None:
    """Each line is answered before the next one is typed."""
    terminal, far_end = pty.openpty()
    command = [sys.executable, "-m", "nmt_cli", "translate", "--model", str(folder), "--devices", "1"]
    with subprocess.Popen(command, stdin=far_end, stderr=far_end, stdout=subprocess.PIPE, env=environment()) as process:
        os.close(far_end)
        said = b""
        while b"Ctrl-D" not in said:
            said += os.read(terminal, 1000)
        assert process.stdout is not None
        answers = []
        for line in (b"the cat.\n", b"a dog.\n"):
            os.write(terminal, line)
            answers.append(process.stdout.readline())
        os.write(terminal, b"\x04")
        assert process.wait(LIMIT) == 0
        said += os.read(terminal, 1000)
    os.close(terminal)
    assert b"en \xe2\x86\x92 de, end with Ctrl-D" in said
    assert b"translating" not in said
    assert b"".join(answers) == nmt("--model", folder, stdin=b"the cat.\na dog.\n").stdout


def test_stdout_is_data_and_stderr_says_which_model(folder: Path) -> None:
    done = nmt("--model", folder, stdin=b"the cat.\n")
    assert done.stderr.decode() == f"model: {folder / 'best'}\n"
    direct = nmt("--model", folder / "best", stdin=b"the cat.\n")
    assert (direct.stdout, direct.stderr) == (done.stdout, b"")


def test_the_model_comes_from_the_environment_too(folder: Path, tmp_path: Path) -> None:
    done = nmt(stdin=b"the cat.\n", NMT_MODEL=str(folder / "best"))
    assert lines_of(done) == lines_of(nmt("--model", folder, stdin=b"the cat.\n"))


def test_formats_agree(folder: Path) -> None:
    given = b"the cat sees the dog.\n\na big house.\n"
    plain = [line.decode() for line in lines_of(nmt("-m", folder, stdin=given))]
    scored = [line.decode().split("\t") for line in lines_of(nmt("-m", folder, "--scores", stdin=given))]
    objects = [json.loads(line) for line in lines_of(nmt("-m", folder, "--json", "--nbest", 2, stdin=given))]
    moses = [line.decode().split(" ||| ") for line in lines_of(nmt("-m", folder, "--nbest", 2, stdin=given))]

    assert [translation for _, translation in scored] == plain
    assert [o["source"] for o in objects] == given.decode().splitlines()
    assert [o["translation"] for o in objects] == plain
    assert [f"{o['score']:.6f}" for o in objects] == [score for score, _ in scored]
    assert [len(o["nbest"]) for o in objects] == [2, 1, 2]
    assert [index for index, _, _ in moses] == ["0", "0", "1", "2", "2"]
    assert [text for _, text, _ in moses] == [c["translation"] for o in objects for c in o["nbest"]]
    assert scored[1] == ["0.000000", ""]
    assert set(objects[0]) == {"source", "translation", "score", "log_prob", "tokens", "nbest"}


def test_batch_size_changes_nothing(folder: Path) -> None:
    rng = random.Random(2)
    given = "\n".join(sentence(rng, rng.randint(1, 20)) for _ in range(40)).encode()
    outputs = {nmt("-m", folder, "--scores", "--batch-tokens", n, stdin=given).stdout for n in (1, 64, 4096)}
    assert len(outputs) == 1
    assert nmt("-m", folder, "--scores", "--set", "decode.batch_tokens=7", stdin=given).stdout in outputs


def test_options_reach_the_search(folder: Path) -> None:
    given = b"the cat sees the dog and the house.\n"
    by_option = nmt("-m", folder, "--beam", 1, "--alpha", 0.0, "--max-extra", 1, "--scores", stdin=given)
    by_set = nmt(
        "-m",
        folder,
        "--set",
        "decode.beam=1",
        "--set",
        "decode.alpha=0.0",
        "--set",
        "decode.max_extra=1",
        "--scores",
        stdin=given,
    )
    assert by_option.stdout == by_set.stdout
    [(greedy)] = [
        json.loads(line) for line in lines_of(nmt("-m", folder, "--beam", 1, "--alpha", 0, "--json", stdin=given))
    ]
    assert greedy["score"] == greedy["log_prob"]


def test_the_shortest_output_reaches_the_search(folder: Path) -> None:
    """A line's limit wins; a line of which the tokenizer keeps nothing is as good as blank."""
    given = "the cat sees.\n\u200b\n\x01\x02\n \ufeff\u200e\na dog.\n".encode()
    by_option, by_set = (
        nmt("-m", folder, *option, "--max-extra", 4, "--json", stdin=given)
        for option in (["--min-length", 6], ["--set", "decode.min_length=6"])
    )
    assert by_option.stdout == by_set.stdout
    objects = [json.loads(line) for line in lines_of(by_option)]
    assert [len(o["tokens"]) >= 6 for o in objects] == [True, False, False, False, True]
    assert [bool(o["translation"]) for o in objects] == [True, False, False, False, True]
    [longest] = [
        json.loads(line)
        for line in lines_of(
            nmt("-m", folder, "--min-length", 9999, "--max-extra", 4, "--json", stdin=b"the cat sees.\n")
        )
    ]
    assert len(longest["tokens"]) > len(objects[0]["tokens"]) - 1
    refused = nmt("-m", folder, "--min-length", -1, stdin=given)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"decode.min_length = -1: expected at least 0" in refused.stderr


def test_a_model_folder_with_a_retired_key_translates(folder: Path, tmp_path: Path) -> None:
    """With one line of warning where the key had an effect, without one where it had none."""
    given = b"the cat sees.\n"
    for value, warnings in ((0.0, 0), (3.0, 1)):
        older = shutil.copytree(folder / "best", tmp_path / str(value))
        recipe = json.loads((older / "config.json").read_text(encoding="utf-8"))["recipe"]
        recipe["decode"]["prune"] = value
        del recipe["decode"]["min_length"]
        sealed.change(older / "config.json", recipe=recipe)
        done = nmt("-m", older, stdin=given)
        assert (done.returncode, done.stdout) == (0, nmt("-m", folder, stdin=given).stdout)
        assert (
            done.stderr.decode().count("warning")
            == done.stderr.decode().count("decode.prune = 3.0 is ignored")
            == warnings
        )
    assert nmt("-m", folder, "--prune", 3, stdin=given).returncode == 2


def test_output_appears_before_input_ends(folder: Path) -> None:
    command = [sys.executable, "-m", "nmt_cli", "translate", "--model", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"the cat.\n", b"a dog.\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait(LIMIT) == 0


def test_files_in_and_out(folder: Path, tmp_path: Path) -> None:
    given = b"the cat.\na dog.\n"
    (tmp_path / "in.gz").write_bytes(gzip.compress(given))
    done = nmt("-m", folder, "--input", tmp_path / "in.gz", "--output", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, b"")
    assert (tmp_path / "out").read_bytes() == nmt("-m", folder, stdin=given).stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.gz", "out"]


def test_a_failed_run_leaves_no_output(folder: Path, tmp_path: Path) -> None:
    packed = gzip.compress(b"the cat.\n" * 5000)
    (tmp_path / "cut.gz").write_bytes(packed[:-20])
    done = nmt("-m", folder, "--input", tmp_path / "cut.gz", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert b"cut.gz" in done.stderr
    assert b"Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["cut.gz"]


def test_where_output_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = nmt("-m", folder, "--output", tmp_path / "file" / "out", stdin=b"the cat.\n")
    assert done.returncode == 1
    assert b"cannot write the translation" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(folder: Path) -> None:
    prelude = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    done = forked.run(Path.cwd(), "translate", "--model", folder, text=b"the cat.\n", prelude=prelude)
    assert done.returncode == 1
    assert b"the disk is full" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--nbest", "3"], 2, "--nbest 3 exceeds the beam of 2: give --beam 3 or more."),
        (["--set", "train.seed=3"], 2, "--set 'train.seed=3': the recipe of a trained model cannot be changed"),
        (["--set", "decode.baem=3"], 2, "Did you mean 'beam'?"),
        (["--beam", "0"], 2, "decode.beam = 0"),
        (["--precision", "fp8"], 2, "--precision 'fp8': expected auto, fp32, bf16, fp16 or int8."),
        (["--device", "tpu"], 2, "--device 'tpu': expected auto, cpu, cuda, cuda:N or mps."),
        (["--input", "nowhere.txt"], 1, "cannot read 'nowhere.txt'"),
        (["--model", "nowhere"], 1, "no model at 'nowhere'"),
    ],
)
def test_faults(folder: Path, args: list[str], code: int, text: str) -> None:
    done = nmt("--model", folder, *args, stdin=b"the cat.\n")
    assert done.returncode == code, done.stderr.decode()
    assert text in done.stderr.decode()
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


def test_a_damaged_model_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "best", tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    done = nmt("-m", tmp_path / "model", stdin=b"the cat.\n")
    assert done.returncode == 1
    assert b"model.safetensors" in done.stderr


def test_a_reader_that_leaves_is_no_fault(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"the cat sees the dog.\n" * 3000)
    command = f"{sys.executable} -m nmt_cli translate -m {folder / 'best'} < {tmp_path / 'in'} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, env=environment(), timeout=LIMIT
    )
    assert done.returncode in (0, 141)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.slow
def test_interrupting_is_quiet(folder: Path) -> None:
    command = [sys.executable, "-m", "nmt_cli", "translate", "--model", str(folder / "best")]
    heeds = functools.partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a shell's background jobs are started deaf to it
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=heeds,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"the cat.\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_interrupting_several_workers_in_the_midst_of_a_batch(folder: Path, tmp_path: Path) -> None:
    """The batch has no end: threads are joined when Python leaves, and must not finish it."""
    gate = Gate(tmp_path)
    program = f"{PRELUDE}SEARCHES['held'] = SEARCHES['beam']\nfrom nmt_cli.__main__ import main\nmain()"
    command = [
        sys.executable,
        "-c",
        program,
        "translate",
        "--model",
        str(folder / "best"),
        "--devices",
        "3",
        "--search",
        "held",
    ]
    heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), **gate.environment},
        preexec_fn=heeds,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"\n"  # it is ready
        process.stdin.write(b"the cat sees a dog, and the dog sees a cat, and the cat sees a dog.\n" * 60)
        process.stdin.flush()
        gate.begun()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert b"Traceback" not in process.stderr.read()


def test_help_is_quick() -> None:
    script = "import sys, nmt_cli.cli.translate; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=LIMIT).returncode == 0
    assert nmt("--help").returncode == 0
