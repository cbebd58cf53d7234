"""Every way in which a job of two or three ranks can end: its exit status, its last words, and a run folder that is whole.

Real processes under `nmt train --devices N`; those of the ranks are forked, see `forked_ranks`. All of them must end by
themselves: the launcher, which ends ranks that hang, has to wait for an hour here. Ranks that are started as a
user's are, and torchrun, are in test_ranks.py.
"""

import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from forked import run, sets
from forked_ranks import FORKED
from shared import differences, records, run_errors

pytestmark = pytest.mark.slow

EVERY = "valid_every checkpoint_every log_every"
SETTINGS = [f"train.{name}=5" for name in EVERY.split()]
SETTINGS += ["train.updates=10", "train.keep=4", "train.valid_bleu_sentences=3", "train.valid_samples=0"]
SETTINGS += ["train.best_metric=nll", "train.micro_batch_tokens=256"]
WORLDS = (2, 3)
PATIENT = "launch.TERMINATE = launch.KILL = 3600\n"  # ranks end by themselves
LOST, SAVED = "cannot exchange data with the others", "and saved; run the same command to resume"


class Job:
    """A job that has ended: its exit status, and what it said on stderr."""

    def __init__(
        self,
        place: Path,
        folder: Path,
        world: int,
        *settings: str,
        prelude: str = "",
        code: int = 0,
        resumed: bool = False,
    ) -> None:
        options = ["--run", folder, "--devices", world, "--threads", "1", *sets(*SETTINGS, *settings)]
        done = run(place, "train", "numbers.toml", *options, prelude=FORKED + PATIENT + prelude)
        self.place, self.world, self.folder, self.stderr = place, world, folder, done.stderr.decode()
        self.said = " ".join(self.stderr.split())
        lines = [line for line in self.stderr.strip().splitlines() if not line.startswith("next: ")]
        self.last_line = lines[-1] if lines else ""
        assert done.returncode == code, self.stderr
        assert "Traceback" not in self.stderr, self.stderr
        assert run_errors(folder) == []
        assert ("resuming after update" in self.said) == resumed, self.stderr


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: f"{world} ranks")
def world(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def untouched(place: Path, world: int) -> Path:
    """The uninterrupted run, whose last update is a validation."""
    job = Job(place, place / f"runs/untouched-{world}", world)
    assert "finished at update 10 after" in job.last_line
    assert ": all updates done; best nll" in job.last_line
    return job.folder


@pytest.fixture
def start(place: Path, tmp_path: Path, world: int) -> Callable[..., Job]:
    """Runs a job in a folder of the test's own."""
    return partial(Job, place, tmp_path / "run", world)


def ends_equal(job: Job, untouched: Path) -> None:
    """Resumed, the job's run ends as the uninterrupted one. Two ranks are enough to see it."""
    if job.world > 2:
        return
    resumed = Job(job.place, job.folder, job.world, resumed=any(job.folder.glob("checkpoints/*")))
    assert "finished at update 10" in resumed.last_line
    assert differences(job.folder, untouched) == []


def content(folder: Path) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    kinds = [(record["type"], record["update"]) for record in records(folder)]
    return (
        kinds,
        sorted(path.name for path in (folder / "checkpoints").iterdir()),
        [os.readlink(folder / link) for link in ("last", "best")],
    )


DONE = {
    "a validation at the last update": (),
    "none at the last update": ("train.updates=8",),
    "no validation before the end": ("train.valid_every=1000",),
    "no patience": ("train.best_metric=bleu", "train.lr_factor=1e-9", "train.patience=1", "train.updates=50"),
    "checkpoints by minutes": ("train.checkpoint_every=0", "train.checkpoint_minutes=0.00001"),
}


@pytest.mark.parametrize("what", DONE)
def test_all_updates_done(place: Path, what: str) -> None:
    """Without dropout the ranks compute what one process does, up to rounding."""
    folders = {world: place / f"runs/{what.replace(' ', '-')}-{world}" for world in (1, *WORLDS)}
    updates = 8 if "train.updates=8" in DONE[what] else 10
    for world, folder in folders.items():
        job = Job(place, folder, world, "model.dropout=0.0", *DONE[what])
        assert f"finished at update {updates} after" in job.last_line
        assert content(folder) == content(folders[1])
        for ours, theirs in zip(records(folder), records(folders[1]), strict=True):
            assert ours["nll"] == pytest.approx(theirs["nll"], rel=1e-3)


def test_a_finished_run_that_is_started_again(place: Path, tmp_path: Path, world: int, untouched: Path) -> None:
    folder = shutil.copytree(untouched, tmp_path / "run", symlinks=True)
    job = Job(place, folder, world, resumed=True)
    assert "finished at update 10" in job.last_line
    assert differences(folder, untouched) == []


def test_another_number_of_ranks_resumes(place: Path, tmp_path: Path, start: Callable[..., Job], world: int) -> None:
    start("train.updates=5")
    job = Job(place, tmp_path / "run", 5 - world, resumed=True)
    assert "finished at update 10" in job.last_line
    Job(place, tmp_path / "run", 1, "train.updates=12", resumed=True)


# --- signals ---

STOPS = {
    "SIGTERM": ("at_update(4, lambda t: (job(signal.SIGTERM), signalled()) if last() else None)", 143),
    "SIGINT": ("at_update(4, lambda t: (job(signal.SIGINT), signalled()) if last() else None)", 130),
    "to one rank": ("at_update(4, lambda t: own(signal.SIGTERM) if last() else None)", 143),
    "to rank 0": ("at_update(4, lambda t: own(signal.SIGINT) if rank() == 0 else None)", 130),
    "twice": (
        "at_update(4, lambda t: (job(signal.SIGTERM), signalled(), job(signal.SIGTERM), signalled(2)) if last() else None)",
        143,
    ),
    "in a validation": ("in_validation(lambda v: (job(signal.SIGTERM), signalled()))", 143),
}


@pytest.mark.parametrize("how", STOPS)
def test_a_signal_saves_and_the_run_resumes(start: Callable[..., Job], untouched: Path, how: str) -> None:
    prelude, code = STOPS[how]
    job = start(prelude=prelude, code=code)
    assert job.said.count(SAVED) == 1
    assert job.last_line.startswith("stopped at update")
    assert "error:" not in job.said
    ends_equal(job, untouched)


LATE = {
    "when all is done": """
def train(self, was=Trainer.train):
    progress = was(self)
    own(signal.SIGTERM)
    atexit.register(lambda: own(signal.SIGHUP))
    return progress
import atexit
Trainer.train = train
""",
    "at the last update": "at_update(10, lambda t: (job(signal.SIGTERM), everywhere()) if last() else None)",
    "in the last validation": "in_validation(lambda v: (job(signal.SIGINT), everywhere()) if next(validations) else None)",
    "while the last checkpoint is saved": "before(Trainer, 'write_checkpoint', lambda t: (job(signal.SIGTERM), everywhere()) if t.progress.update == 10 and rank() == 0 and not signals else None)",
}


@pytest.mark.parametrize("moment", LATE)
def test_a_signal_that_comes_too_late_to_stop_anything(start: Callable[..., Job], untouched: Path, moment: str) -> None:
    job = start(prelude=LATE[moment])
    assert "finished at update 10" in job.last_line
    assert differences(job.folder, untouched) == []


AT_ONCE = {
    "in an update": "at_update(7, lambda t: (job(signal.SIGINT), signalled(), job(signal.SIGINT), forever()) if last() else None)",
    "in a validation": "in_validation(lambda v: (job(signal.SIGINT), signalled(), job(signal.SIGINT), forever()))",
    "on one rank": "at_update(7, lambda t: (own(signal.SIGINT), own(signal.SIGINT)) if last() else None)",
}


@pytest.mark.parametrize("how", AT_ONCE)
def test_a_second_ctrl_c_stops_at_once(start: Callable[..., Job], untouched: Path, how: str) -> None:
    job = start(prelude=AT_ONCE[how], code=130)
    assert "error:" not in job.said
    assert SAVED not in job.said
    ends_equal(job, untouched)


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_before_the_first_update_ends_it(start: Callable[..., Job], number: str, code: int) -> None:
    job = start(
        prelude=f"before(Trainer, 'load_or_initialize', lambda t: (job(signal.{number}), forever()) if last() else None)",
        code=code,
    )
    lines = [line for line in job.stderr.splitlines() if not line.startswith("warning: train.warmup")]
    assert lines in ([], ["interrupted"])


# --- errors ---

MOMENTS = {
    "rank 0 in an update": "at_update(7, lambda t: {act} if rank() == 0 else None)",
    "the last rank in an update": "at_update(7, lambda t: {act} if last() else None)",
    "rank 0 in a validation": "in_validation(lambda v: {act})",
    "the last rank in a validation": "in_validation(lambda v: {act}, last)",
    "rank 0 at the start": "before(RunFolder, 'create', lambda r: {act})",
    "the last rank at the start": "before(Trainer, 'load_or_initialize', lambda t: {act} if last() else None)",
    "rank 0 while saving": "before(RunFolder, 'save', lambda r: {act})",
    "rank 0 while it writes records": "from nmt_cli.training.report import Report\n"
    "before(Report, 'record', lambda r: {act} if rank() == 0 else None)",
}
"""Where a rank fails, or dies."""
FAIL = """
from nmt_cli import errors
def fail(kind):
    raise getattr(errors, kind)("shard 3 is damaged")
"""


@pytest.mark.parametrize("where", [*MOMENTS, "every rank alike"])
def test_an_error_is_reported_once_and_ends_all_with_its_status(start: Callable[..., Job], where: str) -> None:
    moment = MOMENTS.get(where, "at_update(7, lambda t: {act})")
    kind, code = ("UsageError", 2) if where == "the last rank at the start" else ("TrainingError", 1)
    job = start(prelude=FAIL + moment.format(act=f"fail('{kind}')"), code=code)
    assert job.last_line == "error: shard 3 is damaged"
    assert job.stderr.count("error:") == 1


def test_an_unexpected_error_is_shown_as_it_is(place: Path, tmp_path: Path, world: int) -> None:
    prelude = "before(Updater, 'forward_backward', lambda u: torch.ones(2, 3) @ torch.ones(4, 5) if last() and u.adam.param_groups[0]['lr'] else None)"
    line = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
    options = ("--run", tmp_path / "run", "--devices", world)
    done = run(place, "train", "numbers.toml", *options, prelude=FORKED + PATIENT + prelude)
    said = done.stderr.decode()
    assert done.returncode == 1
    assert said.count("Traceback") == 1
    shown, fault = said.strip().splitlines()[-2:]
    assert shown == line
    assert fault.startswith("error: this is a fault of nmt")
    assert said.count("error:") == 1


def test_a_run_folder_that_another_training_has(start: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    with (tmp_path / "run/.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        job = start(code=1)
    assert job.last_line.startswith("error: ")
    assert job.stderr.count("error:") == 1


# --- ranks that die ---

WHILE = """
launch.TERMINATE, launch.KILL = 1, 2
before(Trainer, "validate", lambda t: own(signal.SIGKILL) if {dies} else None)
in_validation(lambda v: forever(), {validates})
"""
DYING = {where: moment.format(act="own(signal.SIGKILL)") for where, moment in MOMENTS.items()}
DYING["the last rank while rank 0 validates"] = WHILE.format(dies="last()", validates="first")
DYING["rank 0 while the last one validates"] = WHILE.format(dies="rank() == 0", validates="last")


@pytest.mark.parametrize("who", DYING)
def test_a_rank_that_dies_ends_the_job_within_seconds(start: Callable[..., Job], untouched: Path, who: str) -> None:
    job = start(prelude=DYING[who], code=75)
    rank = 0 if who.startswith("rank 0") else job.world - 1
    assert job.last_line.startswith(f"error: rank {rank} of {job.world} was killed by SIGKILL")
    assert "the same command" in job.last_line
    assert job.stderr.count(LOST) <= 1
    ends_equal(job, untouched)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets a process know that its parent has died")
def test_ranks_save_and_end_when_the_process_that_started_them_is_killed(
    start: Callable[..., Job], untouched: Path
) -> None:
    job = start(
        prelude="at_update(4, lambda t: (job(signal.SIGKILL), signalled()) if last() else None)", code=-signal.SIGKILL
    )
    with (job.folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # rank 0 has it until it ends
    assert SAVED in (job.folder / "train.log").read_text(encoding="utf-8")
    ends_equal(job, untouched)


# --- a rank that works for long, and one that hangs ---

BEATS = """
import threading
process_group.BEAT = 0.1
beats = []
def all_gather(self, values, was=process_group.ProcessGroup.all_gather):
    found = was(self, values)
    if threading.current_thread().name.startswith("nmt-heartbeat"):
        beats.append(values)
    return found
process_group.ProcessGroup.all_gather = all_gather
def work():  # until the others have heard several times that this rank still works
    more = len(beats) + 5
    while len(beats) < more:
        time.sleep(0.01)
"""
"""A rank waits for as long as the time between some heartbeats, however long the work takes."""


@pytest.mark.parametrize("where", ["first", "last"])
def test_ranks_wait_for_each_other_as_long_as_one_works(start: Callable[..., Job], untouched: Path, where: str) -> None:
    job = start(prelude=f"{BEATS}in_validation(lambda v: work(), {where})\nbefore(RunFolder, 'save', lambda r: work())")
    assert "finished at update 10" in job.last_line
    assert differences(job.folder, untouched) == []


def test_a_rank_that_hangs_ends_the_job_after_the_timeout(start: Callable[..., Job]) -> None:
    job = start(
        prelude="from datetime import timedelta\nlaunch.TERMINATE, launch.KILL = 1, 2\ndef hang(trainer):\n"
        "    torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=1))\n"
        "    if last():\n        forever()\nat_update(7, hang)",
        code=75,
    )
    assert LOST in job.last_line
    assert "Timed out waiting" in job.last_line
    assert job.stderr.count(LOST) == 1
