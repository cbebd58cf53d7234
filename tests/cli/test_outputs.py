"""No command replaces or deletes what is not provably its own earlier output, wherever its option for an output points."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
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
TRAIN = ["train", str(FIXTURE / "count.toml"), "--data", "shards", "--threads", "1"]
COMMANDS: dict[str, list[str]] = {
    "average": ["average", "run", "--last", "1", "--out"],
    "train": [*TRAIN, "--set", "train.updates=1", "--run"],
    "preprocess": ["preprocess", "count.toml", "--data-dir", ".", "--workers", "1", "--out"],
    "preprocess --force": ["preprocess", "count.toml", "--data-dir", ".", "--workers", "1", "--force", "--out"],
    "init": ["init", "--source", "own.en", "--target", "own.de", "--threads", "1"],
    "quantize": ["quantize", "model", "--out"],
    "export": ["export", "model", "--to", "ctranslate2", "--out"],
    "import": ["import", "opus", "--source-language", "en", "--target-language", "de", "--out"],
    "translate": ["translate", "--model", "model", "--input", "test.en", "--devices", "1", "--output"],
    "parse": ["parse", "--model", "parser", "--input", "test.en", "--tokenized", "--devices", "1", "--output"],
    "calibrate": ["calibrate", "--model", "model", "--src", "many.en", "--ref", "many.de", "--devices", "1", "--out"],
    "attend": ["attend", "one two", "--model", "model", "--out"],
    "attend --png": ["attend", "one two", "--model", "model", "--png"],
    "data trees": ["data", "trees", "some.trees", "--out"],
    "data": ["data", "tatoeba-en-de", "--downloads", "archives", "--out"],
}
WITHOUT_OUTPUT = {"score", "serve", "info"}
"""Commands that write no file."""
OWN_RUN, OWN_INPUT = (
    ("train", "run"),
    {
        "preprocess": "train.en",
        "preprocess --force": "train.en",
        "translate": "test.en",
        "parse": "test.en",
        "calibrate": "many.en",
        "data trees": "some.trees",
    },
)
NAMED_BY_USER = ("translate", "parse")
"""Whose text replaces a file of the name that the user gave."""
OWN_OUTPUT = {("average", "a model"), ("preprocess --force", "the shards")}
"""What an earlier version of the same command wrote."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a run, shards and text; and what a user has beside them."""
    folder = shutil.copytree(FIXTURE, tmp_path_factory.mktemp("outputs") / "made", symlinks=True)
    lines = {"en": "one two three\n" * 40, "de": "eins zwei drei\n" * 40}
    for language, text in lines.items():
        for split in ("train", "valid"):
            (folder / f"{split}.{language}").write_text(text)
        (folder / f"many.{language}").write_text(text * 2)
        (folder / f"own.{language}").write_text("".join(f"{text.split()[0]} {number}\n" for number in range(110)))
    (folder / "count.toml").write_text(
        (folder / "count.toml").read_text().replace("vocab_size = 80", "vocab_size = 30")
    )
    write_untrained_parser(folder / "parser", "xx")
    marian().save(folder / "opus")
    (folder / "some.trees").write_text("(TOP (S (NP (NN dog)) (VP (VBZ barks))))\n")
    (folder / "archives").mkdir()
    (folder / "archives/deu-eng.zip").write_bytes(b"no archive")  # so that nothing is downloaded
    (folder / "theirs").mkdir()
    (folder / "theirs/thesis.tex").write_text("years of work")
    (folder / "theirs/metrics.jsonl").write_text("years of work\n")
    (folder / "theirs/checkpoints/step-00000007").mkdir(parents=True)
    (folder / "theirs/checkpoints/step-00000007/weights.bin").write_text("years of work")
    (folder / "file.txt").write_text("years of work")
    (folder / "link").symlink_to("theirs")
    (folder / "link.txt").symlink_to("file.txt")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "place", symlinks=True)


QUICK = """
import importlib
from nmt_cli.training.times import Speed
importlib.import_module("nmt_cli.interface.init")._measured = lambda *_: Speed(0.01, 0.01)
"""
"""`nmt init` does not measure the speed of the machine."""


def run(place: Path, command: str, out: str | Path, prelude: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a command that writes to `out`."""
    return forked.run(place, *COMMANDS[command], out, prelude=QUICK * (command == "init") + prelude)


def everything(folder: Path) -> dict[str, object]:
    """What is below a folder: contents, modes, targets of links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), content)
    return found


WHERE: dict[str, str] = {
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


def test_every_command_that_writes_is_here() -> None:
    assert {" ".join(command.split()[:1]) for command in COMMANDS} | WITHOUT_OUTPUT == set(get_command(app).commands)
    data = set(get_command(data_group).commands)  # type: ignore[attr-defined]
    assert {command.split()[1] for command in COMMANDS if command.startswith("data ")} | {"list"} == data


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_users_is_replaced(command: str, where: str, place: Path) -> None:
    if (command, WHERE[where]) == OWN_RUN:
        pytest.skip("a run is what training continues")
    if (command, where) in OWN_OUTPUT:
        assert run(place, command, WHERE[where]).returncode == 0
        return
    before = everything(place)
    done = run(place, command, WHERE[where])
    said = done.stderr.decode()
    assert "Traceback" not in said
    after = everything(place)
    if command in NAMED_BY_USER and where == "someone's file":
        assert (done.returncode, after.pop("file.txt")[1]) == (0, before.pop("file.txt")[1])  # type: ignore[index]
    elif done.returncode == 0:  # files beside theirs, none of which was there
        assert command in ("data trees", "attend --png", "init")
        after = {name: content for name, content in after.items() if name in before}
    else:
        assert done.returncode in (1, 2)
        assert said.strip()
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if ".partial" in name]


@pytest.mark.parametrize("command", OWN_INPUT)
def test_its_own_input_is_not_replaced(command: str, place: Path) -> None:
    before = everything(place)
    done = run(place, command, OWN_INPUT[command])
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr.decode()
    assert everything(place) == before


TWICE: dict[str, Callable[[Path], object]] = {
    "average": lambda out: (out / "model.safetensors").read_bytes(),
    "preprocess --force": lambda out: (out / "train-00000.safetensors").read_bytes(),
    "translate": lambda out: out.read_bytes(),
    "parse": lambda out: out.read_bytes(),
    "calibrate": lambda out: out.read_bytes(),
    "attend": lambda out: out.read_bytes(),
    "data trees": lambda out: (out / "some.linear").read_bytes(),
}


@pytest.mark.parametrize("command", TWICE)
def test_its_own_earlier_output_is_replaced(command: str, place: Path) -> None:
    for _ in range(2):
        done = run(place, command, "out")
        assert done.returncode == 0, done.stderr.decode()
        assert TWICE[command](place / "out")
    if (place / "out").is_dir():  # one file more, or one that was changed, and it is someone's
        (place / "out/notes.txt").write_text("mine")
        changed = next(path for path in sorted((place / "out").iterdir()) if path.suffix in (".linear", ".safetensors"))
        changed.write_bytes(changed.read_bytes() + b" ")
    elif command == "attend":
        (place / "out").write_bytes((place / "out").read_bytes().replace(b"one two", b"my page"))
    elif command == "calibrate":
        (place / "out").write_bytes((place / "out").read_bytes().replace(b'"lines": 80', b'"lines": 81'))
    else:
        return
    before = everything(place)
    done = run(place, command, "out")
    assert done.returncode in (1, 2), done.stderr.decode()
    assert everything(place) == before


# What stops a command


LOCAL = [command for command in COMMANDS if command != "data"]
"""All that need no network."""
KILLED = """
import os, signal
def fsync(descriptor, was=os.fsync):
    if ".partial" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.kill(os.getpid(), signal.SIGKILL)
    was(descriptor)
os.fsync = fsync
"""
"""It is killed when all is written and nothing has its name yet."""


@pytest.mark.parametrize("command", LOCAL)
def test_what_a_killed_command_leaves_is_removed_by_the_next_one(command: str, place: Path) -> None:
    def partial() -> list[str]:
        return [name for name in everything(place) if ".partial" in name]

    (place / ".notes.partial-1").write_text("years of work")
    for _ in range(1 + (command in TWICE)):
        before = everything(place)
        assert run(place, command, "out", prelude=KILLED).returncode == -signal.SIGKILL
        assert len(partial()) > 1
        after = everything(place)
        assert {name: after.get(name) for name in before} == before
        assert run(place, command, "out").returncode == 0
        assert partial() == [".notes.partial-1"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in LOCAL if command != "train"])
def test_a_full_disk_leaves_nothing_that_blocks_the_next_try(command: str, place: Path) -> None:
    """Whatever room there is, from none to enough. Training is in test_full_disk.py."""
    with small_disk(place, 8) as disk:
        (disk / "taken").unlink()
        prelude, folder = entering(disk)
        for pages in (*range(9), *(2**power for power in range(4, 12))):
            room = os.statvfs(disk)
            (disk / "more").write_bytes(bytes((room.f_bavail - pages) * room.f_bsize))
            done = run(place, command, folder / "out", prelude=prelude)
            (disk / "more").unlink()
            if done.returncode == 0:
                break
            said = " ".join(done.stderr.decode().split())
            assert (done.returncode, said.count("error: "), "Traceback" in said) == (1, 1, False), said
            assert re.search(r"the disk is full\.|No space left on device", said)
            left = [path.name for path in disk.rglob("*") if not path.is_dir()]
            pictures = {"encoder.png", "decoder.png"} if command == "attend --png" else set()  # of three, whole
            assert pictures.issuperset(left)
        assert (pages > 0, done.returncode) == (True, 0)


@pytest.mark.parametrize("target", ["/dev/null", "link.txt"])
def test_a_device_is_written_to_and_a_link_is_followed(target: str, place: Path) -> None:
    (place / "file.txt").chmod(0o640)
    done = forked.run(place, *COMMANDS["translate"], target)
    assert done.returncode == 0, done.stderr.decode()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if target == "link.txt":
        assert (place / "link.txt").is_symlink()
        assert (place / "file.txt").read_bytes() == (place / "test.translated.de").read_bytes()
        assert stat.S_IMODE((place / "file.txt").stat().st_mode) == 0o640


def test_pruning_leaves_a_checkpoint_that_holds_something_of_the_users(place: Path) -> None:
    step = place / "run/checkpoints/step-00001500"
    (step / "notes.txt").write_text("mine")
    settings = (
        "train.updates=1504",
        "train.checkpoint_every=1",
        "train.keep=1",
        "train.keep_best=1",
        "train.average=1",
        "train.valid_every=1",
    )
    changes = [word for setting in settings if "valid_every" not in setting for word in ("--set", setting)]
    forked.nmt(place, *TRAIN, *changes, "--run", "run")
    assert (step / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in (place / "run/checkpoints").iterdir()) == ["step-00001500", "step-00001504"]


FAILS = """
from nmt_cli.errors import TrainingError
from nmt_cli.training.trainer import Trainer
def fail(self):
    raise TrainingError("failed at the start")
Trainer.train_updates = fail
"""


def test_latest_points_to_a_run_that_has_a_checkpoint_and_leaves_other_links(place: Path) -> None:
    (place / "runs").mkdir()
    (place / "runs/latest").symlink_to("../model")
    assert run(place, "train", "runs/one").returncode == 0
    assert os.readlink(place / "runs/latest") == "../model"
    (place / "runs/latest").unlink()
    forked.nmt(place, *TRAIN, "--run", "runs/two", prelude=FAILS, code=1)
    assert not (place / "runs/latest").is_symlink()
    assert run(place, "train", "runs/three").returncode == 0
    assert os.readlink(place / "runs/latest") == "three"
