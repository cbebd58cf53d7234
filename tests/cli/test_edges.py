"""The edge of the program, for every command: what stdin, stdout and stderr may be, encodings, and signals.

Each command runs in a process of its own; a prelude of Python puts the descriptor or the signal there. Nothing ever
prints "Traceback" or "Exception ignored", and the exit status says what happened.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked import run
from marian_models import marian
from shared import number_words
from typer.main import get_command
from untrained import write_untrained, write_untrained_parser
from waiting import LIMIT, alive, wait_until

from nmt_cli.cli import output
from nmt_cli.cli.app import app

FULL = "error: cannot write to standard output: the disk is full. Free some space, or send the output elsewhere."
CLOSED_OUT = "error: standard output is closed: expected a terminal, a file or a pipe to write to."
CLOSED_IN = "error: standard input is closed: expected a terminal, a file or a pipe to read from."
FOLDER_IN = "error: cannot read standard input: it is a folder, expected a file or a pipe."

AT = """
import os, signal
def at(path, sends):
    module, _, name = path.partition(":")
    owner = __import__(module, fromlist=["*"])
    *between, name = name.split(".")
    for part in between:
        owner = getattr(owner, part)
    was, sent = getattr(owner, name), []
    def patched(*arguments, **options):
        if not sent:
            sent.extend([os.killpg(0, number) for number in sends])
        return was(*arguments, **options)
    setattr(owner, name, patched)
os.setpgid(0, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it
"""
"""`at("module:Class.function", numbers)`: signals go to all processes of the command when the function is called first."""


@dataclass(frozen=True)
class Command:
    arguments: str
    moment: str
    """A function that the command calls midway."""
    writes: bool = True
    reads: bool = False


COMMANDS = {
    "help": Command("--help", "nmt_cli.cli.command:write_parameters"),
    "version": Command("--version", "nmt_cli.cli.output:write"),
    "help of a command": Command("score --help", "nmt_cli.cli.command:write_parameters"),
    "score": Command("score hyp --ref ref", "nmt_cli.evaluation.metrics:Scorer.score"),
    "score stdin": Command("score - --ref ref --json", "nmt_cli.evaluation.metrics:Scorer.score", reads=True),
    "score several": Command("score hyp ref --ref ref --samples 5", "nmt_cli.evaluation.significance:compare"),
    "score by a model": Command(
        "score --model model --src - --ref ref", "nmt_cli.translation.scoring:PairScorer.windows", reads=True
    ),
    "translate": Command("translate --model model --devices 1", "nmt_cli.translation.pool:Client.submit", reads=True),
    "translate on two cores": Command(
        "translate --model model --devices 2 --batch-tokens 20",
        "nmt_cli.translation.translator:LineTranslator.results",
        reads=True,
    ),
    "translate to a file": Command(
        "translate --model model --output out{n}", "nmt_cli.translation.pool:Client.submit", writes=False, reads=True
    ),
    "translate by mbr": Command(
        "translate --model model --devices 1 --search mbr --mbr-samples 4",
        "nmt_cli.translation.pool:Client.submit",
        reads=True,
    ),
    "translate with terms": Command(
        "translate --model model --devices 1 --terms words --banned-words ref",
        "nmt_cli.translation.pool:Client.submit",
        reads=True,
    ),
    "parse": Command(
        "parse --model parser --devices 1 --tokenized", "nmt_cli.translation.pool:Client.submit", reads=True
    ),
    "calibrate": Command(
        "calibrate --model model --devices 1 --src - --ref many --out calibration{n}.json",
        "nmt_cli.translation.pool:Client.submit",
        writes=False,
        reads=True,
    ),
    "attend": Command("attend --model model --out page{n}.html", "nmt_cli.reporting.attention_page:page", reads=True),
    "data": Command("data", "nmt_cli.cli.output:write"),
    "data list": Command("data list --json", "nmt_cli.cli.output:write"),
    "data trees": Command(
        "data trees - --out trees{n} --name x", "nmt_cli.parsing.linearization:linearise", writes=False, reads=True
    ),
    "data trees back": Command(
        "data trees --back --words words", "nmt_cli.parsing.linearization:delinearise", reads=True
    ),
    "preprocess": Command(
        "preprocess numbers.toml --data-dir . --out shards{n} --json --workers 2",
        "nmt_cli.data.shard_writer:ShardWriter.write",
    ),
    "init": Command(
        "init own{n} --source own.en --target own.de --threads 1", "nmt_cli.training.presets:recipe_text", writes=False
    ),
    "quantize": Command("quantize model --out int8-{n}", "nmt_cli.exchange.quantizing:write_model", writes=False),
    "info": Command("info model", "nmt_cli.training.estimate:estimate"),
    "info of a recipe": Command("info numbers.toml --json", "nmt_cli.training.estimate:estimate"),
    "average": Command("average model second --out average{n}", "nmt_cli.training.averaging:write_model", writes=False),
    "export": Command(
        "export model --to huggingface --out export{n}", "nmt_cli.exchange.verification:verify", writes=False
    ),
    "import": Command(
        "import opus --out imported{n} --source-language en --target-language de",
        "nmt_cli.exchange.verification:verify",
        writes=False,
    ),
    "train": Command(
        "train numbers.toml --run run{n} --set train.updates=2",
        "nmt_cli.training.trainer:choose_micro_batch",
        writes=False,
    ),
}
ELSEWHERE = {"serve": "serving/test_command.py"}
"""A server does not end by itself, and its signals do something else."""
TEXT = "the small cat.\nä big red dog.\nthe house.\n"
TREES = "(TOP (S (NP (DT the) (NN Häusern)) (VP (VBD sank))))\n"
INPUTS = {
    "data trees": TREES * 3,
    "data trees back": "(S (NP XX XX )NP (VP XX )VP )S\n" * 3,
    "attend": "the cat.\n",
    "calibrate": TEXT * 20,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, text, trees, a recipe and its shards."""
    folder = tmp_path_factory.mktemp("edges")
    number_words(tmp_path_factory, folder)
    write_untrained(folder / "model")
    write_untrained(folder / "second", seed=1)
    write_untrained_parser(folder / "parser", "tags")
    marian().save(folder / "opus")
    for name, text in (
        ("hyp", TEXT),
        ("ref", TEXT.replace("big", "small")),
        ("words", "the Häusern sank\n" * 3),
        ("many", TEXT * 20),
        ("own.en", "".join(f"the cat {number}\n" for number in range(110))),
        ("own.de", "".join(f"die Katze {number}\n" for number in range(110))),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class Runs:
    """Runs commands, each with outputs of its own."""

    count = 0

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.command = folder, name, COMMANDS[name]

    def __call__(self, prelude: str, finalize: bool = False) -> tuple[int, bytes, str]:
        """Return exit status, stdout and stderr. Nothing half-written is left, nothing of Python's own is said."""
        Runs.count += 1
        text = INPUTS.get(self.name, TEXT).encode() if self.command.reads else b""
        arguments = self.command.arguments.format(n=Runs.count).split()
        done = run(self.folder, *arguments, text=text, prelude=prelude, finalize=finalize)
        said = done.stderr.decode()
        assert not re.search("Traceback|Exception ignored|Fatal Python error|leaked", said), said
        assert [str(path) for path in self.folder.rglob(".*partial*")] == []
        return done.returncode, done.stdout, said


@pytest.fixture
def nmt(request: pytest.FixtureRequest, folder: Path) -> Runs:
    name = str(request.param)
    if name == "export":
        pytest.importorskip("transformers")
    return Runs(folder, name)


def every(which: Callable[[Command], bool] = lambda _: True) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("nmt", [name for name, command in COMMANDS.items() if which(command)], indirect=True)


WRITERS, READERS, OTHERS = (
    every(lambda command: command.writes),
    every(lambda command: command.reads),
    every(lambda command: not command.writes),
)


def last_line(said: str) -> str:
    return said.splitlines()[-1]


@pytest.mark.slow
@WRITERS
@pytest.mark.parametrize(
    ("prelude", "error"),
    [("os.close(1)", CLOSED_OUT), ("os.dup2(os.open('/dev/full', os.O_WRONLY), 1)", FULL)],
    ids=["closed", "full"],
)
def test_stdout_that_cannot_be_written_to_is_named(nmt: Runs, prelude: str, error: str) -> None:
    code, printed, said = nmt(prelude)
    assert (code, printed, last_line(said), said.count("error:")) == (1, b"", error, 1)


@WRITERS
def test_a_reader_that_left_is_no_error(nmt: Runs) -> None:
    code, _, said = nmt("read, write = os.pipe(); os.close(read); os.dup2(write, 1)")
    assert (code, said.count("error:")) == (0, 0)


@READERS
@pytest.mark.parametrize(
    ("prelude", "error"),
    [("os.close(0)", CLOSED_IN), ("os.dup2(os.open('/', os.O_RDONLY), 0)", FOLDER_IN)],
    ids=["closed", "folder"],
)
def test_stdin_that_cannot_be_read_is_named(nmt: Runs, prelude: str, error: str) -> None:
    code, printed, said = nmt(prelude)
    assert (code, printed, last_line(said), said.count("error:")) == (1, b"", error, 1)


@OTHERS
def test_who_writes_to_files_minds_neither_stdout_nor_stderr(nmt: Runs) -> None:
    """Nor do the files that it opens get the numbers of closed descriptors, and with them what others print."""
    assert nmt("os.close(1); os.close(2)" + "; os.close(0)" * (not nmt.command.reads)) == (0, b"", "")


TIMES = re.compile(rb"\d+\.\d+|\d{6,}|(shards|run|out|page|average|export|imported)\d+")
"""What differs from run to run: seconds, memory, names of outputs."""


@pytest.mark.slow
@WRITERS
def test_the_same_is_printed_whatever_stderr_and_the_locale_are(nmt: Runs) -> None:
    code, printed, _ = nmt("", finalize=True)
    assert code == 0
    for prelude in ("os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"):
        code, again, said = nmt(prelude)
        assert (code, TIMES.sub(b"", again), said) == (0, TIMES.sub(b"", printed), "")
    code, again, _ = nmt(
        "sys.stdout.reconfigure(encoding='ascii'); sys.stderr.reconfigure(encoding='ascii')"
    )  # as PYTHONIOENCODING=ascii does
    assert code == 0
    if "--help" not in nmt.command.arguments:
        assert TIMES.sub(b"", again) == TIMES.sub(b"", printed)


def test_every_command_is_here() -> None:
    names = set(get_command(app).commands)  # type: ignore[attr-defined]
    covered = {command.arguments.split()[0] for command in COMMANDS.values() if command.arguments[0] != "-"}
    assert (covered & ELSEWHERE.keys(), covered | ELSEWHERE.keys()) == (set(), names)
    for file in ELSEWHERE.values():
        assert "signal.SIGINT, 130" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


@pytest.mark.slow
@every()
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_cleans_up(nmt: Runs, number: signal.Signals) -> None:
    code, _, said = nmt(AT + f"at({nmt.command.moment!r}, [{int(number)}])", finalize=number == signal.SIGTERM)
    assert (code, said.count("error:")) == (128 + number, 0)
    assert last_line(said) == ("interrupted" if number == signal.SIGINT else f"stopped by {number.name}")
    if nmt.name not in ("train", "export"):  # a run resumes; an export is verified under its name
        outputs = nmt.folder.glob(f"*[a-z-]{Runs.count}*")
        assert [path.name for path in outputs if path.is_file() or any(path.iterdir())] == []


@every()
def test_signals_that_are_ignored_change_nothing(nmt: Runs) -> None:
    """SIGPIPE always; SIGHUP under nohup."""
    code, _, said = nmt(
        AT
        + f"signal.signal(signal.SIGHUP, signal.SIG_IGN); at({nmt.command.moment!r}, [signal.SIGHUP, signal.SIGPIPE])"
    )
    assert (code, said.count("error:")) == (0, 0)


# Moments and processes


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_training_saves_on_a_signal(folder: Path, number: signal.Signals) -> None:
    shutil.rmtree(folder / "hangup", ignore_errors=True)
    prelude = AT + f"at('nmt_cli.training.trainer:Trainer.train_step', [{int(number)}])"
    done = run(folder, "train", "numbers.toml", "--run", "hangup", "--set", "train.updates=50", prelude=prelude)
    assert done.returncode == 128 + number
    assert "stopped at update 1 and saved" in done.stderr.decode()
    assert (folder / "hangup/last").resolve().name == "step-00000001"


def test_training_under_nohup_does_not_hear_sighup(folder: Path) -> None:
    shutil.rmtree(folder / "nohup", ignore_errors=True)
    prelude = (
        AT
        + "signal.signal(signal.SIGHUP, signal.SIG_IGN); at('nmt_cli.training.trainer:Trainer.train_step', [signal.SIGHUP])"
    )
    done = run(folder, "train", "numbers.toml", "--run", "nohup", "--set", "train.updates=2", prelude=prelude)
    assert (done.returncode, "finished at update 2" in done.stderr.decode()) == (0, True)


def test_a_second_signal_does_not_interrupt_the_cleaning_up(folder: Path) -> None:
    """Schedulers send it more than once: here while what was half-written is removed."""
    term = int(signal.SIGTERM)
    prelude = (
        AT
        + f"""
at('nmt_cli.training.averaging:write_model', [{term}])
import shutil
def remove(path, *arguments, was=shutil.rmtree, **options):
    if os.path.exists(path):
        os.kill(os.getpid(), {term})
    was(path, *arguments, **options)
shutil.rmtree = remove
"""
    )
    done = run(folder, "average", "model", "second", "--out", "twice", prelude=prelude)
    warning, message = done.stderr.decode().splitlines()  # the folder has no shards: the average is not validated
    assert (done.returncode, message) == (143, "stopped by SIGTERM")
    assert warning.startswith("warning: the average has no validation score: ")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_workers_leave_a_signal_to_their_parent(folder: Path, number: signal.Signals) -> None:
    """A parent that goes on, as training does in a validation, keeps the workers that it translates with."""
    prelude = (
        f"os.setpgid(0, 0); import signal; signal.signal({int(number)}, lambda *_: None)\n"
        + f"""
from nmt_cli.cli import process
process._raise_on_signals = lambda: None
from nmt_cli.translation import translator
def windows(self, lines, language, was=translator.LineTranslator.windows):
    for window in was(self, lines, language):
        os.killpg(0, {int(number)})
        yield window
translator.LineTranslator.windows = windows
"""
    )
    text = (TEXT * 30).encode()
    options = ("translate", "--model", "model", "--devices", "2", "--batch-tokens", "20")
    assert run(folder, *options, text=text, prelude=prelude).stdout == run(folder, *options, text=text).stdout


def test_workers_end_with_a_parent_that_is_killed(folder: Path) -> None:
    prelude = """
from nmt_cli.translation import translator
def windows(self, lines, language, was=translator.LineTranslator.windows):
    import multiprocessing, signal
    for window in was(self, lines, language):
        with open("pids", "w") as file:
            print(*[child.pid for child in multiprocessing.active_children()], file=file)
        os.kill(os.getpid(), signal.SIGKILL)
translator.LineTranslator.windows = windows
"""
    done = run(
        folder,
        "translate",
        "--model",
        "model",
        "--devices",
        "2",
        "--no-repeat-ngram",
        "2",
        text=(TEXT * 30).encode(),
        prelude=prelude,
    )
    assert done.returncode == -signal.SIGKILL
    workers = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(workers) == 2
    wait_until(lambda: not any(map(alive, workers)))


@pytest.mark.parametrize("layers", [100, 100_000])
def test_a_model_that_no_memory_holds_is_refused_before_it_is_made(folder: Path, layers: int) -> None:
    sizes = {"d_model": 16384, "d_ff": 65536, "num_heads": 128, "encoder_layers": layers, "decoder_layers": 100}
    options = [word for key, value in sizes.items() for word in ("--set", f"model.{key}={value}")]
    never = "from nmt_cli.model.transformer import Transformer; Transformer.__init__ = None"
    done = run(folder, "train", "numbers.toml", "--run", "large", *options, prelude=never)
    if layers == 100:
        assert re.search(
            r"^error: 751,[\d,]+ parameters take 11,200\.8 GiB to train \(weights, gradients and Adam's moments in fp32\), and [\d.]+ GiB are free\.",
            done.stderr.decode(),
        )
    else:
        assert "model.encoder_layers = 100000: expected at most 1,000" in done.stderr.decode()
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


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--help > /dev/full", (1, "", f"{FULL}\n")),
        ("data >&-", (1, "", f"{CLOSED_OUT}\n")),
        ("score - --ref ref <&-", (1, "", f"{CLOSED_IN}\n")),
        ("score hyp --ref ref <&- >&- 2>&-", (1, "", "")),
        ("--version <&- 2>&-", (0, "nmt 0.1.0\n", "")),
    ],
)
def test_descriptors_as_a_shell_gives_them(folder: Path, command: str, expected: tuple[int, str, str]) -> None:
    done = real(folder, command)
    assert (done.returncode, done.stdout, done.stderr) == expected


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


def test_a_pipe_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    """Another program may have made it so; nothing of the input or the output is lost."""
    count = 20_000
    (tmp_path / "many").write_text("the Häusern sank\n" * count, encoding="utf-8")
    waits = """
import select
def waiting(readers, writers, others, was=select.select):  # says in a file what it waits for
    open("reads" if readers else "writes", "w").close()
    return was(readers, writers, others)
select.select = waiting
from nmt_cli.__main__ import main
main()
"""
    command = [sys.executable, "-c", waits, "data", "trees", "--back", "--words", "many"]
    (their_input, ours), (theirs, their_output) = os.pipe(), os.pipe()
    for descriptor in (their_input, their_output):
        os.set_blocking(descriptor, False)
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=their_input, stdout=their_output, stderr=subprocess.PIPE
    ) as process:
        os.close(their_input)
        os.close(their_output)
        wait_until((tmp_path / "reads").exists, by=process)  # there is nothing to read yet

        def write() -> None:
            with open(ours, "wb") as stream:
                stream.write(b"(S (NP XX XX )NP (VP XX )VP )S\n" * count)

        writer = threading.Thread(target=write)
        writer.start()
        wait_until((tmp_path / "writes").exists, by=process)  # its output is not read yet
        with open(theirs, "rb") as stream:
            lines = stream.read().splitlines()
        writer.join()
        assert process.stderr is not None
        assert (process.wait(LIMIT), process.stderr.read()) == (0, f"{count:,} trees, 0 of them repaired\n".encode())
    assert len(lines) == count


# Names, encodings of input


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", LONG),
        ("info", f"{LONG}.toml"),
        ("train", f"{LONG}.toml"),
        ("train", "numbers.toml", "--run", LONG),
        ("train", "numbers.toml", "--data", LONG),
        ("preprocess", f"{LONG}.toml"),
        ("preprocess", "numbers.toml", "--data-dir", LONG),
        ("preprocess", "numbers.toml", "--data-dir", ".", "--out", LONG),
        ("preprocess", "numbers.toml", "--data-dir", ".", "--set", f"data.tokenizer={LONG}"),
        ("translate", "--model", LONG),
        ("translate", "--model", "model", "--input", LONG),
        ("translate", "--model", "model", "--output", LONG),
        ("translate", "--model", "model", "--prefix-file", LONG),
        ("translate", "--model", "model", "--terms", LONG),
        ("translate", "--model", "model", "--banned-words", LONG),
        ("translate", "--model", "model", "--outputs", LONG),
        ("calibrate", "--model", LONG, "--src", "many", "--ref", "many", "--out", "x"),
        ("calibrate", "--model", "model", "--src", LONG, "--ref", "many", "--out", "x"),
        ("calibrate", "--model", "model", "--src", "many", "--ref", "many", "--out", LONG),
        ("score", LONG, "--ref", "ref"),
        ("score", "hyp", "--ref", LONG),
        ("score", "--model", LONG, "--src", "hyp", "--ref", "ref"),
        ("score", "--model", "model", "--src", LONG, "--ref", "ref"),
        ("attend", "--model", LONG, "the cat."),
        ("attend", "--model", "model", "the cat.", "--out", LONG),
        ("average", LONG),
        ("average", "model", "second", "--out", LONG),
        ("export", LONG, "--to", "huggingface", "--out", "x"),
        ("export", "model", "--to", "huggingface", "--out", LONG),
        ("data", "trees", LONG, "--out", "x", "--name", "x"),
        ("data", "trees", "-", "--out", LONG, "--name", "x"),
        ("data", "trees", "-", "--out", "y", "--name", LONG),
        ("data", "trees", "--back", "--words", LONG),
        ("data", "multi30k", "--out", LONG),
    ],
    ids=lambda arguments: " ".join(argument.replace(LONG, "LONG") for argument in arguments),
)
def test_a_name_of_5000_characters_is_an_error(folder: Path, arguments: tuple[str, ...]) -> None:
    done = run(folder, *arguments, text=TREES.encode())
    said = done.stderr.decode()
    assert done.returncode == 1
    assert said.count("error:") == 1
    assert re.search(
        "[Nn]ame is too long|File name too long|no such|no model at|there is no file|does not exist|No such file", said
    ), said[:300]
    assert "Traceback" not in said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_text_is_named_in_every_reader(folder: Path, encoding: str) -> None:
    (folder / "wide").write_bytes("Ein Haus, zwei Häuser.\nDrei Häuser.\n".encode(encoding))
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    files = 'data.train_source=["wide"]', 'data.train_target=["wide"]'
    for arguments, what in (
        (("score", "wide", "--ref", "ref"), "'wide'"),
        (("score", "hyp", "--ref", "wide"), "'wide'"),
        (("score", "-", "--ref", "ref"), "standard input"),
        (("score", "--model", "model", "--src", "wide", "--ref", "ref"), "'wide'"),
        (("attend", "--model", "model", "--out", "wide.html"), "standard input"),
        (("data", "trees", "wide", "--out", "trees"), "'wide'"),
        (
            (
                "preprocess",
                "numbers.toml",
                "--data-dir",
                ".",
                "--out",
                "wide-shards",
                "--set",
                files[0],
                "--set",
                files[1],
            ),
            "'wide'",
        ),
    ):
        done = run(folder, *arguments, text=(folder / "wide").read_bytes())
        assert (done.returncode, done.stdout) == (1, b"")
        assert (
            last_line(done.stderr.decode())
            == f"error: {what} is {name} text: expected UTF-8. Convert it: iconv -f {name} -t UTF-8 FILE > FILE.utf8"
        )


def test_translate_refuses_utf_16_only_with_its_mark(folder: Path) -> None:
    """N lines in, N lines out, whatever they contain: without a byte-order mark zero bytes are characters of a line."""
    text = "a cat.\nthe dog.\n"
    done = run(folder, "translate", "--model", "model", text=text.encode("utf-16"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert last_line(done.stderr.decode()).startswith("error: standard input is UTF-16 text: expected UTF-8.")
    done = run(folder, "translate", "--model", "model", text=text.encode("utf-16-le"))
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 3)
    done = run(folder, "translate", "--model", "model", text=b"\xff\xfe is invalid\na cat.\n")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 2)


def test_json_with_names_that_are_not_utf_8_is_json(folder: Path) -> None:
    shutil.copy(os.fsencode(folder / "hyp"), os.fsencode(folder) + b"/h\xff\xc3\xbc")
    done = subprocess.run(
        [sys.executable, "-m", "nmt_cli", "score", b"h\xff\xc3\xbc", "--ref", "ref", "--json"],
        cwd=folder,
        capture_output=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["hypothesis"] == "h\udcffü"


def test_all_of_stdout_goes_through_one_place() -> None:
    """No command prints by itself."""
    for path in Path(output.__file__).parent.glob("*.py"):
        if path.name not in ("output.py", "process.py"):
            assert not re.search(
                r"\bprint\(|typer\.echo|sys\.stdout\.(?!isatty)|dup2",
                path.read_text(encoding="utf-8").replace("console.print(", ""),
            ), path.name
