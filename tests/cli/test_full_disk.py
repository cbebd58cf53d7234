"""A full disk, a real one of a few megabytes: a clear error, the checkpoints before it whole, and once there is room
training goes on and ends as the uninterrupted run did.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import small_disk
from forked import nmt, sets
from shared import differences, run_errors

pytestmark = pytest.mark.slow

SIZE, TAKEN = 12, 8
"""Megabytes: of the disk, and of a file that takes most of it until it is removed."""
SAVING = sets("train.updates=110", "train.keep=100")
LOGGING = sets("train.updates=60", "train.log_every=1", "train.valid_every=1000", "train.checkpoint_every=20")
FILL = """
import os
from nmt_cli.training.trainer import Trainer
def train_step(self, batch, was=Trainer.train_step):
    was(self, batch)
    if self.progress.update == 21:
        os.system("{fill}")
Trainer.train_step = train_step
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in memory, mostly taken."""
    with small_disk(tmp_path, SIZE, TAKEN) as path:
        yield path


@pytest.fixture(scope="module")
def roomy(place: Path) -> Path:
    """The uninterrupted run, on a disk with room for all its checkpoints."""
    nmt(place, "train", "numbers.toml", "--run", "runs/roomy", *SAVING)
    return place / "runs/roomy"


def filling(disk: Path) -> str:
    """The command that leaves no room at all."""
    return f"dd if=/dev/zero of={disk}/more bs=4k 2> /dev/null"


def full(said: str) -> bool:
    return (
        "the disk is full. Free some space or choose another folder; nothing that was there before was changed."
        in " ".join(said.split())
    )


def test_a_checkpoint_that_does_not_fit_leaves_those_before_it(place: Path, roomy: Path, disk: Path) -> None:
    run = disk / "run"
    said = nmt(place, "train", "numbers.toml", "--run", run, *SAVING, code=75)
    assert "cannot write a checkpoint at" in " ".join(said.split())
    assert full(said)
    names = [path.name for path in (run / "checkpoints").iterdir()]
    assert len(names) > 2
    assert not [name for name in names if name.startswith(".")]
    assert run_errors(run) == []
    nmt(place, "info", run)
    assert full(nmt(place, "train", "numbers.toml", "--run", run, *SAVING, code=75))  # still full
    assert run_errors(run) == []
    (disk / "taken").unlink()
    nmt(place, "train", "numbers.toml", "--run", run, *SAVING)
    assert differences(run, roomy) == []


def test_records_that_do_not_fit_are_told_and_written_again(place: Path, disk: Path) -> None:
    nmt(place, "train", "numbers.toml", "--run", "runs/recorded", *LOGGING)
    run = disk / "run"
    said = nmt(place, "train", "numbers.toml", "--run", run, *LOGGING, prelude=FILL.format(fill=filling(disk)), code=75)
    assert full(said)
    assert "cannot write a checkpoint" not in said
    assert run_errors(run) == []
    (disk / "more").unlink()
    nmt(place, "train", "numbers.toml", "--run", run, *LOGGING)
    assert differences(run, place / "runs/recorded") == []


def test_a_run_that_has_no_room_to_begin(place: Path, disk: Path) -> None:
    os.system(filling(disk))
    assert full(nmt(place, "train", "numbers.toml", "--run", disk / "run", *SAVING, code=75))
