"""Every command × every event that may meet it: closed and full streams, signals, kill -9, a full or read-only disk, an output
that is somebody's. After each the same holds: the exit status says what happened, nothing of Python's own is said, an
output is whole or absent, nothing of the user's is lost, and the command can be run again.

A command is a row of COMMANDS, an event a row of EVENTS or a test. Each command runs in a process of its own, in which a prelude
of Python puts the descriptor or the signal there.
"""

import gzip
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import forked
import pytest
from disks import entering, small_disk
from marian_models import marian
from typer.main import get_command
from untrained import write_untrained_parser

from nmt_cli.cli.app import app
from nmt_cli.cli.data import group as data_group

FIXTURE = Path(__file__).parents[1] / "fixtures/format_1"
TEXT = "one two five\ntwo ä one\nthree\n"
TREES = "(TOP (S (NP (DT the) (NN Häusern)) (VP (VBD sank))))\n"


@dataclass(frozen=True)
class Command:
    """A command with its smallest inputs, in the folder of the fixture `made`."""

    arguments: str
    """`{out}` is its output."""
    moment: str = ""
    """A function that it calls midway; "": it is there for its output alone."""
    reads: str = ""
    """What it reads from standard input."""
    prints: bool = True
    replaces: str | None = None
    """The file of its output that shows that it replaced its own earlier one; "": the output is a file."""
    setup: str = ""
    """Python that makes it quick."""

    @property
    def writes(self) -> bool:
        return "{out}" in self.arguments

    def words(self, out: Path | str) -> list[str]:
        return [word.replace("{out}", str(out)) for word in self.arguments.split()]


PREPROCESS = "preprocess few.toml --data-dir . --json --out {out}"
SUBMIT = "nmt_cli.translation.pool:Client.submit"
QUICK = """
import importlib
from nmt_cli.training.times import Speed
importlib.import_module("nmt_cli.interface.planning")._measured = lambda *_: Speed(0.01, 0.01)
"""
COMMANDS = {
    "help": Command("--help", "nmt_cli.cli.command:write_parameters"),
    "version": Command("--version", "nmt_cli.cli.output:write"),
    "score": Command("score hyp --ref ref", "nmt_cli.evaluation.metrics:Scorer.score"),
    "score stdin": Command("score - --ref ref --json", "nmt_cli.evaluation.metrics:Scorer.score", TEXT),
    "score several": Command("score hyp ref --ref ref --samples 5", "nmt_cli.evaluation.significance:compare"),
    "score by a model": Command(
        "score --model model --src - --ref ref", "nmt_cli.translation.scoring:PairScorer.windows", TEXT
    ),
    "translate": Command("translate --model model --devices 1", SUBMIT, TEXT),
    "translate on two cores": Command(
        "translate --model model --devices 2 --batch-tokens 20",
        "nmt_cli.translation.translator:LineTranslator.results",
        TEXT,
    ),
    "translate with terms": Command(
        "translate --model model --devices 1 --terms terms --banned-words banned", SUBMIT, TEXT
    ),
    "translate to a file": Command(
        "translate --model model --devices 1 --output {out}", SUBMIT, TEXT, prints=False, replaces=""
    ),
    "job create": Command(
        "job create {out} --model model --input some.gz --shard-lines 7", "nmt_cli.jobs.cutting:_cut_all", prints=False
    ),
    "job join": Command("job join job --output {out}", "nmt_cli.jobs.job:Job.join", prints=False, replaces=""),
    "parse": Command("parse --model parser --devices 1 --tokenized", SUBMIT, TEXT),
    "parse to a file": Command(
        "parse --model parser --devices 1 --tokenized --output {out}", SUBMIT, TEXT, prints=False, replaces=""
    ),
    "calibrate": Command(
        "calibrate --model model --devices 1 --src - --ref many.de --out {out}",
        SUBMIT,
        TEXT * 20,
        prints=False,
        replaces="",
    ),
    "attend": Command(
        "attend --model model --out {out}", "nmt_cli.reporting.attention_page:page", "one two\n", replaces=""
    ),
    "attend --png": Command("attend --model model --png {out}", reads="one two\n"),
    "data": Command("data", "nmt_cli.cli.output:write"),
    "data list": Command("data list --json", "nmt_cli.cli.output:write"),
    "data tatoeba-en-de": Command("data tatoeba-en-de --downloads archives --out {out}"),
    "data trees": Command(
        "data trees - --out {out} --name x",
        "nmt_cli.interface.trees:linearise",
        TREES * 3,
        prints=False,
        replaces="x.linear",
    ),
    "data trees back": Command(
        "data trees --back --words words", "nmt_cli.interface.trees:delinearise", "(S (NP XX XX )NP (VP XX )VP )S\n" * 3
    ),
    "preprocess": Command(f"{PREPROCESS} --workers 2", "nmt_cli.data.shard_writer:ShardWriter.write"),
    "preprocess --force": Command(f"{PREPROCESS} --workers 1 --force", replaces="train-00000.safetensors"),
    "init": Command(
        "init {out} --source own.en --target own.de --threads 1",
        "nmt_cli.training.presets:recipe_text",
        prints=False,
        setup=QUICK,
    ),
    "models": Command("models --json", "nmt_cli.cli.output:write"),
    "quantize": Command("quantize model --out {out}", "nmt_cli.exchange.quantizing:write_model", prints=False),
    "info": Command("info model", "nmt_cli.training.estimate:estimate"),
    "info of a recipe": Command("info count.toml --json", "nmt_cli.training.estimate:estimate"),
    "average": Command(
        "average run --last 1 --out {out}",
        "nmt_cli.training.averaging:write_model",
        prints=False,
        replaces="model.safetensors",
    ),
    "export": Command(
        "export model --to huggingface --out {out}", "nmt_cli.exchange.verification:verify", prints=False
    ),
    "import": Command(
        "import opus --out {out} --source-language en --target-language de",
        "nmt_cli.exchange.verification:verify",
        prints=False,
    ),
    "train": Command(
        "train count.toml --data shards --threads 1 --run {out} --set train.updates=1",
        "nmt_cli.training.trainer:choose_micro_batch",
        prints=False,
    ),
}
ELSEWHERE = {"serve": "serving/test_command.py"}
"""A server does not end by itself, and its signals do something else."""
WITHOUT_OUTPUT = {"score", "serve", "info", "models"}
LOCAL = [name for name, command in COMMANDS.items() if command.writes and name != "data tatoeba-en-de"]
"""All that write and need no network."""


LIGHT = {"help", "score stdin", "translate to a file", "data trees", "attend", "quantize", "train"}
"""Of these `make test` tries every event and output, and `make test-all` of all."""


def over(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=[] if name in LIGHT else [pytest.mark.slow]) for name in names]
    return pytest.mark.parametrize("name", marked)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, a run, shards and text; and what a user has beside them."""
    folder = shutil.copytree(FIXTURE, tmp_path_factory.mktemp("matrix") / "made", symlinks=True)
    for language, text in (("en", "one two three\n"), ("de", "eins zwei drei\n")):
        for split in ("train", "valid"):
            (folder / f"{split}.{language}").write_text(text * 40)
        (folder / f"own.{language}").write_text("".join(f"{text.split()[0]} {number}\n" for number in range(110)))
        (folder / f"many.{language}").write_text(TEXT * 20, encoding="utf-8")
    recipe = (folder / "count.toml").read_text().replace("vocab_size = 80", "vocab_size = 30")
    for name, text in (
        ("few.toml", recipe),
        ("hyp", TEXT),
        ("ref", TEXT.replace("two", "three")),
        ("terms", "zwei\n" * 3),
        ("banned", "drei\n"),
        ("words", "the Häusern sank\n" * 3),
        ("some.trees", TREES),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    write_untrained_parser(folder / "parser", "xx")
    marian().save(folder / "opus")
    (folder / "some.gz").write_bytes(gzip.compress(TEXT.encode() * 5))
    for words in ("create job --model model --input hyp", "shard job 0"):
        assert forked.run(folder, "job", *words.split()).returncode == 0
    (folder / "archives").mkdir()
    (folder / "archives/deu-eng.zip").write_bytes(b"no archive")  # so that nothing is downloaded
    (folder / "theirs/checkpoints/step-00000007").mkdir(parents=True)
    for name in (
        "theirs/thesis.tex",
        "theirs/metrics.jsonl",
        "theirs/checkpoints/step-00000007/weights.bin",
        "file.txt",
    ):
        (folder / name).write_text("years of work")
    (folder / "link").symlink_to("theirs")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy, for commands that may change what is there."""
    return shutil.copytree(made, tmp_path / "place", symlinks=True)


OUTPUTS = count(1)


def run(
    folder: Path, name: str, out: Path | str, prelude: str = "", finalize: bool = False, partial: bool = False
) -> tuple[int, bytes, str]:
    """Run a command; return exit status, stdout and stderr. Nothing of Python's own is said, and nothing half-written is left."""
    if name == "export":
        pytest.importorskip("transformers")
    command = COMMANDS[name]
    done = forked.run(
        folder, *command.words(out), text=command.reads.encode(), prelude=command.setup + prelude, finalize=finalize
    )
    said = done.stderr.decode()
    assert not re.search("Traceback|Exception ignored|Fatal Python error|leaked", said), said
    assert partial or not list(folder.rglob(".*partial*"))
    return done.returncode, done.stdout, said


def everything(folder: Path) -> dict[str, object]:
    """What is below a folder: contents, modes, targets of links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), content)
    return found


def test_every_command_is_here() -> None:
    names = set(get_command(app).commands)  # type: ignore[attr-defined]
    first = {command.arguments.split()[0] for command in COMMANDS.values() if command.arguments[0] != "-"}
    assert (first & ELSEWHERE.keys(), first | ELSEWHERE.keys()) == (set(), names)
    assert {command.arguments.split()[0] for command in COMMANDS.values() if command.writes} == names - WITHOUT_OUTPUT
    data = set(get_command(data_group).commands)  # type: ignore[attr-defined]
    assert {name.split()[1] for name in COMMANDS if name.startswith("data ")} >= data
    for file in ELSEWHERE.values():
        assert "signal.SIGINT, 130" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


# Streams and signals

AT = """
import os, signal
def at(path, sends):  # the signals go to all processes of the command when the function is called first
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


@dataclass(frozen=True)
class Event:
    """What happens to a command of `who`, and what it then answers."""

    prelude: str
    who: Callable[[Command], bool]
    code: int = 0
    says: str | None = None
    """The last line on stderr; None: anything but an error."""
    finalize: bool = False
    slow: bool = True


PRINTS: Callable[[Command], bool] = lambda command: command.prints  # noqa: E731
READS: Callable[[Command], bool] = lambda command: bool(command.reads)  # noqa: E731
ALL: Callable[[Command], bool] = lambda _: True  # noqa: E731
EVENTS = {
    "stdout is closed": Event(
        "os.close(1)", PRINTS, 1, "error: standard output is closed: expected a terminal, a file or a pipe to write to."
    ),
    "stdout is full": Event(
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
        PRINTS,
        75,
        "error: cannot write to standard output: the disk is full. Free some space, or send the output elsewhere.",
    ),
    "the reader has left": Event("read, write = os.pipe(); os.close(read); os.dup2(write, 1)", PRINTS, slow=False),
    "stdin is closed": Event(
        "os.close(0)",
        READS,
        1,
        "error: standard input is closed: expected a terminal, a file or a pipe to read from.",
        slow=False,
    ),
    "stdin is a folder": Event(
        "os.dup2(os.open('/', os.O_RDONLY), 0)",
        READS,
        1,
        "error: cannot read standard input: it is a folder, expected a file or a pipe.",
        slow=False,
    ),
    "SIGTERM": Event(f"{AT}at({{moment!r}}, [signal.SIGTERM])", ALL, 143, "stopped by SIGTERM", finalize=True),
    "SIGHUP": Event(f"{AT}at({{moment!r}}, [signal.SIGHUP])", ALL, 129, "stopped by SIGHUP"),
    "SIGINT": Event(f"{AT}at({{moment!r}}, [signal.SIGINT])", ALL, 130, "interrupted"),
    "signals that are ignored": Event(  # SIGPIPE always; SIGHUP under nohup
        f"{AT}signal.signal(signal.SIGHUP, signal.SIG_IGN); at({{moment!r}}, [signal.SIGHUP, signal.SIGPIPE])",
        ALL,
        slow=False,
    ),
}


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        pytest.param(
            name, happens, marks=[pytest.mark.slow] if event.slow or name not in LIGHT else [], id=f"{happens}-{name}"
        )
        for happens, event in EVENTS.items()
        for name, command in COMMANDS.items()
        if command.moment and event.who(command)
    ],
)
def test_an_event_is_answered(name: str, happens: str, made: Path) -> None:
    event, out = EVENTS[happens], made / f"out{next(OUTPUTS)}"
    prelude = event.prelude.replace("{moment!r}", repr(COMMANDS[name].moment))
    code, printed, said = run(made, name, out, prelude, event.finalize)
    assert (code, said.count("error:")) == (event.code, 0 < event.code < 128), said
    if event.says:
        assert said.splitlines()[-1] == event.says
    if 0 < code < 128:
        assert printed == b""
    if code > 128 and name not in ("train", "export"):  # a run resumes; an export is verified under its name
        assert [path for path in made.glob(f"{out.name}*") if path.is_file() or any(path.iterdir())] == []


@over(name for name, command in COMMANDS.items() if command.moment and not command.prints)
def test_who_writes_to_files_minds_neither_stdout_nor_stderr(name: str, made: Path) -> None:
    """Nor do the files that it opens get the numbers of closed descriptors, and with them what others print."""
    closed = "os.close(1); os.close(2)" + "; os.close(0)" * (not COMMANDS[name].reads)
    assert run(made, name, made / f"out{next(OUTPUTS)}", closed) == (0, b"", "")


TIMES = re.compile(rb"\d+\.\d+|\d{6,}|out\d+")
"""What differs from run to run: seconds, memory, names of outputs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.moment and command.prints])
def test_the_same_is_printed_whatever_stderr_and_the_locale_are(name: str, made: Path) -> None:
    code, printed, _ = run(made, name, made / f"out{next(OUTPUTS)}", finalize=True)
    assert code == 0
    for prelude in ("os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"):
        code, again, said = run(made, name, made / f"out{next(OUTPUTS)}", prelude)
        assert (code, TIMES.sub(b"", again), said) == (0, TIMES.sub(b"", printed), "")
    ascii_only = (
        "sys.stdout.reconfigure(encoding='ascii'); sys.stderr.reconfigure(encoding='ascii')"  # PYTHONIOENCODING=ascii
    )
    code, again, _ = run(made, name, made / f"out{next(OUTPUTS)}", ascii_only)
    assert code == 0
    if "--help" not in COMMANDS[name].arguments:
        assert TIMES.sub(b"", again) == TIMES.sub(b"", printed)


# Outputs that are somebody's

WHERE = {
    "someone's folder": "theirs",
    "someone's file": "file.txt",
    "a link to someone's folder": "link",
    "the run": "run",
    "its checkpoints": "run/checkpoints",
    "a checkpoint": "run/checkpoints/step-00001500",
    "a link to a checkpoint": "run/best",
    "a model": "model",
    "the shards": "shards",
    "the root folder": "/",
    "an empty name": "",
    "a name of 5,000 characters": "n" * 5000,
    "below a file": "file.txt/below",
}
BESIDE = ("data trees", "attend --png", "init")
"""Commands that may write files of other names beside somebody's."""
OWN = {
    ("average", "a model"),
    ("preprocess --force", "the shards"),
    ("train", "the run"),
    ("translate to a file", "someone's file"),
    ("parse to a file", "someone's file"),
    ("job join", "someone's file"),
}
"""What an earlier version of the same command wrote, what it continues, and a file that the user named to be replaced."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.writes])
def test_nothing_of_the_users_is_replaced(name: str, place: Path) -> None:
    before = everything(place)
    for where, out in WHERE.items():
        if (name, where) in OWN:
            continue
        code, _, said = run(place, name, out)
        after = everything(place)
        assert {path: after.get(path) for path in before} == before, where
        assert (code in (1, 2) and said.strip()) or (code == 0 and name in BESIDE), where
        for path in sorted(after.keys() - before.keys(), reverse=True):
            (Path.rmdir if (place / path).is_dir() else Path.unlink)(place / path)
    for where in [where for command, where in OWN if command == name]:
        assert run(place, name, WHERE[where])[0] == 0, where


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (PREPROCESS, "train.en"),
        (f"{PREPROCESS} --force", "train.en"),
        ("translate --model model --input test.en --output {out}", "test.en"),
        ("parse --model parser --input test.en --tokenized --output {out}", "test.en"),
        ("calibrate --model model --src many.en --ref many.de --out {out}", "many.en"),
        ("data trees some.trees --out {out}", "some.trees"),
    ],
)
def test_its_own_input_is_not_replaced(arguments: str, own: str, place: Path) -> None:
    before = everything(place)
    done = forked.run(place, *Command(arguments).words(own))
    assert done.returncode in (1, 2)
    assert b"Traceback" not in done.stderr
    assert everything(place) == before


@over(name for name, command in COMMANDS.items() if command.replaces is not None)
def test_its_own_earlier_output_is_replaced_unless_it_was_changed(name: str, place: Path) -> None:
    out = place / "out"
    for _ in range(2):
        code, _, said = run(place, name, "out")
        assert (code, (out / str(COMMANDS[name].replaces)).stat().st_size > 0) == (0, True), said
    changed = out / str(COMMANDS[name].replaces)
    if out.is_dir():
        (out / "notes.txt").write_text("mine")
        changed.write_bytes(changed.read_bytes() + b" ")
    elif name in ("attend", "calibrate"):
        changed.write_bytes(
            changed.read_bytes().replace(b"one two", b"my page").replace(b'"lines": 60', b'"lines": 61')
        )
    else:  # text replaces whatever the file has
        return
    before = everything(place)
    code, _, said = run(place, name, "out")
    assert code in (1, 2), said
    assert everything(place) == before


# kill -9, full and read-only disks

KILLED = """
import os, signal
def fsync(descriptor, was=os.fsync):  # all is written, and nothing has its name yet
    if ".partial" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.kill(os.getpid(), signal.SIGKILL)
    was(descriptor)
os.fsync = fsync
"""


@over(LOCAL)
def test_what_a_killed_command_leaves_is_removed_by_the_next_one(name: str, place: Path) -> None:
    (place / ".notes.partial-1").write_text("years of work")
    for _ in range(1 + (COMMANDS[name].replaces is not None)):
        before = everything(place)
        assert run(place, name, "out", KILLED, partial=True)[0] == -signal.SIGKILL
        after = everything(place)
        assert {path: after.get(path) for path in before} == before
        assert len([path for path in after if ".partial" in path]) > 1
        assert run(place, name, "out", partial=True)[0] == 0
        assert [path for path in everything(place) if ".partial" in path] == [".notes.partial-1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LOCAL if name != "train"])
def test_a_full_disk_leaves_nothing_that_blocks_the_next_try(name: str, place: Path) -> None:
    """Whatever room there is, from none to enough. Training is in test_full_disk.py."""
    with small_disk(place, 8) as disk:
        (disk / "taken").unlink()
        prelude, folder = entering(disk)
        for pages in (*range(9), *(2**power for power in range(4, 12))):
            room = os.statvfs(disk)
            (disk / "more").write_bytes(bytes((room.f_bavail - pages) * room.f_bsize))
            code, _, said = run(place, name, folder / "out", prelude)
            (disk / "more").unlink()
            if code == 0:
                break
            assert (code, said.count("error: ")) == (75, 1), said
            assert re.search(r"the disk is full\.|No space left on device", " ".join(said.split()))
            pictures = {"encoder.png", "decoder.png"} if name == "attend --png" else set()  # of three, whole
            assert pictures.issuperset(path.name for path in disk.rglob("*") if not path.is_dir())
        assert (pages > 0, code) == (True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_a_read_only_disk_is_named(name: str, place: Path) -> None:
    with small_disk(place, 1, mode="ro") as disk:
        prelude, folder = entering(disk)
        code, _, said = run(place, name, folder / "out", prelude)
    assert (code, said.count("error: ")) == (1, 1), said
    assert re.search("mounted read-only|no write permission", " ".join(said.split()))
