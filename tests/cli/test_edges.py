"""Edges of the program that test_matrix.py's table cannot say: moments, real shells, and encodings."""

import io
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from forked import nmt, run
from in_process import printed, ran
from shared import number_words
from untrained import write_untrained
from waiting import LIMIT, wait_until

from nmt_cli.cli.output import _StandardStream
from nmt_cli.text.lines import open_descriptor

TEXT = "the small cat.\nä big red dog.\nthe house.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, text, a recipe and its shards."""
    folder = tmp_path_factory.mktemp("edges")
    number_words(tmp_path_factory, folder)
    write_untrained(folder / "model")
    write_untrained(folder / "second", seed=1)
    for name, text in (("hyp", TEXT), ("ref", TEXT.replace("big", "small")), ("many", TEXT * 20)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_second_signal_does_not_interrupt_the_cleaning_up(folder: Path) -> None:
    """Schedulers send it more than once: here while what was half-written is removed."""
    term = int(signal.SIGTERM)
    prelude = f"""
import shutil
from nmt_cli.training import averaging
averaging.write_model = lambda *_, **__: os.kill(os.getpid(), {term})
def remove(path, *arguments, was=shutil.rmtree, **options):
    if os.path.exists(path):
        os.kill(os.getpid(), {term})
    was(path, *arguments, **options)
shutil.rmtree = remove
"""
    done = run(folder, "average", "model", "second", "--out", "twice", prelude=prelude)
    warning, message = done.stderr.decode().splitlines()  # the folder has no shards: the average is not validated
    assert (done.returncode, message) == (143, "stopped by SIGTERM")
    assert warning.startswith("warning: ")
    assert [path.name for path in folder.iterdir() if "twice" in path.name] == []


def test_an_interrupt_where_python_drops_exceptions_comes_again(folder: Path) -> None:
    prelude = f"""
class Dropped:
    def __del__(self):
        os.kill(os.getpid(), {int(signal.SIGTERM)})
from nmt_cli.evaluation.metrics import Scorer
def score(*_):
    Dropped()
    import time
    time.sleep(3600)
Scorer.score = score
"""
    done = run(folder, "score", "hyp", "--ref", "ref", prelude=prelude)
    assert (done.returncode, done.stderr) == (143, b"stopped by SIGTERM\n")


def test_workers_leave_a_signal_to_their_parent(folder: Path) -> None:
    """A parent that goes on, as training does in a validation, keeps the workers that it translates with."""
    prelude = """
os.setpgid(0, 0)
import signal
signal.signal(signal.SIGINT, lambda *_: None)
from nmt_cli.cli import process
process._raise_on_signals = lambda: None
from nmt_cli.translation import translator
def windows(self, lines, language, was=translator.LineTranslator.windows):
    for window in was(self, lines, language):
        os.killpg(0, signal.SIGINT)
        yield window
translator.LineTranslator.windows = windows
"""
    text = (TEXT * 30).encode()
    options = ("translate", "--model", "model", "--devices", "2", "--batch-tokens", "20")
    assert run(folder, *options, text=text, prelude=prelude).stdout == run(folder, *options, text=text).stdout


NO_MEMORY = """
import resource
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (150 << 20),) * 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is in /proc")
def test_a_limit_of_memory_is_the_fault_of_the_machine(workdir: Path) -> None:
    write_untrained(Path("one"), max_extra=40)
    Path("text").write_text(("the cat sees a dog and " * 5 + "\n") * 4000)
    ran("job create made --model one --input text --beam 1000")
    large = "--batch-tokens 10000000"
    for line in (
        f"translate --model one --beam 1000 {large} --input text --output out",
        f"score --model one {large} --src text --ref text",
        f"job shard made 0 {large}",
    ):
        assert "out of memory" in nmt(workdir, *line.split(), prelude=NO_MEMORY, code=75)
    assert "failed   0, exit status 75" in printed("job status made")


def test_a_model_that_no_memory_holds_is_refused_before_it_is_made(folder: Path) -> None:
    sizes = {"d_model": 16384, "d_ff": 65536, "num_heads": 128, "encoder_layers": 100, "decoder_layers": 100}
    options = [word for key, value in sizes.items() for word in ("--set", f"model.{key}={value}")]
    never = "from nmt_cli.model.transformer import Transformer; Transformer.__init__ = None"
    done = run(folder, "train", "numbers.toml", "--run", "large", *options, prelude=never)
    said = done.stderr.decode()
    assert all(word in said for word in ("751,", "11,200.", "GiB are free")), said
    assert (done.returncode, (folder / "large").exists()) == (1, False)


# Real processes, whose descriptors and encodings are those that Python starts with


def real(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shell = f"{sys.executable} -m nmt_cli {command}"
    return subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=LIMIT,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--help > /dev/full", (75, "", 1)),
        ("data >&-", (1, "", 1)),
        ("score hyp --ref ref <&- >&- 2>&-", (1, "", 0)),
        ("--version <&- 2>&-", (0, "nmt 0.1.0\n", 0)),
    ],
)
def test_descriptors_as_a_shell_gives_them(folder: Path, command: str, expected: tuple[int, str, int]) -> None:
    done = real(folder, command)
    assert (done.returncode, done.stdout, done.stderr.count("error: ")) == expected
    assert done.stderr.count("\n") == expected[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_encodings_as_python_starts_with_them(folder: Path, environment: dict[str, str]) -> None:
    shutil.copy(folder / "hyp", folder / "übersetzt")
    done = real(folder, "score übersetzt --ref ref --by-length --metric chrf", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "übersetzt  by words of the reference" in done.stdout
    done = real(folder, "score fehlt-ä --ref ref", **environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    done = real(folder, "--help", **environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_does_not_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have made it so; nothing of the input or the output is lost."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    text, awaited, wait = b"a line\n" * 100_000, list[bool](), select.select

    def waiting(*descriptors: Any) -> Any:
        awaited.append(bool(descriptors[0]))  # to read, or to write
        return wait(*descriptors)

    def write() -> None:
        wait_until(lambda: True in awaited)
        with io.BufferedWriter(_StandardStream(ends[1], closed=False)) as out:
            out.write(text)
        os.close(ends[1])

    monkeypatch.setattr(select, "select", waiting)
    writer = threading.Thread(target=write)
    writer.start()
    with open_descriptor(ends[0], "it") as stream:
        first = stream.readline()
        wait_until(lambda: False in awaited)
        assert first + stream.read() == text
    writer.join()
