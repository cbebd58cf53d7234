"""Ranks that are started as a user's are, by `--devices` and by torchrun: one that dies ends them all with a cause, and what
was stopped or restarted ends equal. Every other ending is in test_endings.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import forked
import pytest
from forked_ranks import FORKED
from shared import differences, number_words, run_errors
from waiting import LIMIT, alive, wait_until

pytestmark = pytest.mark.slow

TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "--max-restarts=1",
    "-m",
    "--",
    "nmt_cli",
]
DEVICES = ["-m", "nmt_cli"]
TRAIN = ["train", "numbers.toml", "--devices", "2", "--run"]
"""Of a job whose ranks are forked: a run to compare with, and one that resumes what real ranks began."""
SHORT = ["--set", "train.updates=60", "--set", "train.valid_bleu_sentences=5", "--set", "train.valid_samples=0"]
"""The last update is a validation, as in the recipes that are shipped."""


HELD = f"""
import os
if "RANK" in os.environ and os.path.exists(os.environ["HELD"]):
{textwrap.indent(FORKED, "    ")}
    at_update(21, lambda trainer: hold(os.path.join(os.environ["HELD"], os.environ["RANK"])))
"""
"""A rank waits before update 21, and says so in a file; Python runs this when it starts, as `sitecustomize`."""


class Job:
    """`nmt train` on two ranks, which can be held before update 21."""

    def __init__(self, run: Path, *options: str, how: list[str] = DEVICES, held: bool = False) -> None:
        devices = ["--devices", "2"] if how is DEVICES else []
        command = [sys.executable, *how, "train", "numbers.toml", "--run", str(run), *devices, *options]
        self.run, self.stderr, self.held = run, run.parent / f"{run.name}.err", run.parent / f"{run.name}.held"
        self.held.mkdir(parents=True)
        if held:
            (self.held / "sitecustomize.py").write_text(HELD)
        path = os.pathsep.join([str(self.held), os.environ.get("PYTHONPATH", "")])
        environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "400", "HELD": str(self.held), "PYTHONPATH": path}
        with self.stderr.open("wb") as stream:
            self.process = subprocess.Popen(
                command, cwd=run.parents[1], env={**os.environ, **environment}, stderr=stream, stdout=subprocess.DEVNULL
            )

    def ranks(self) -> list[int]:
        """Wait until both ranks are held. Return their process numbers."""
        files = [self.held / str(rank) for rank in range(2)]
        wait_until(lambda: all(file.exists() for file in files), self.said, by=self.process)
        return [int(file.read_text()) for file in files]

    def go_on(self) -> None:
        """Hold no rank any more."""
        shutil.rmtree(self.held)

    def said(self) -> str:
        return " ".join(self.stderr.read_text(encoding="utf-8").split())

    def ended(self) -> int:
        """The exit code."""
        try:
            return self.process.wait(LIMIT)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs, beside recipe and shards."""
    folder = tmp_path_factory.mktemp("ranks")
    number_words(tmp_path_factory, folder)
    return folder / "runs"


@pytest.fixture(scope="module")
def untouched(runs: Path) -> Path:
    """The uninterrupted run."""
    forked.nmt(runs.parent, *TRAIN, "runs/untouched", *SHORT, prelude=FORKED)
    return runs / "untouched"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets a process know that its parent has died")
def test_ranks_of_a_launcher_that_is_killed_save_and_end_with_plain_lines(runs: Path) -> None:
    job = Job(runs / "orphaned", *SHORT, held=True)
    ranks = job.ranks()
    job.process.kill()
    assert job.ended() == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, ranks)), lambda: f"they run: {ranks}")
    said = job.stderr.read_text(encoding="utf-8").strip().splitlines()
    # the first rank that notices it stops all of them: what rank 0 says of it may come before, after or not at all
    [stopped] = [line for line in said if line.startswith("stopped at update ")]
    assert "saved" in stopped
    assert not [line for line in said for noise in ("frame #", "Traceback", "c10d", "[rank") if noise in line]
    assert run_errors(job.run) == []


def test_torchrun_restarts_a_job_and_it_ends_equal(runs: Path, untouched: Path) -> None:
    job = Job(runs / "restarted", *SHORT, how=TORCHRUN, held=True)
    os.kill(job.ranks()[0], signal.SIGKILL)
    job.go_on()
    assert job.ended() == 0, job.said()
    assert job.said().count("run folder") == 2
    assert "resuming after update" in job.said()
    assert differences(job.run, untouched) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_share_the_run_folder_are_told(runs: Path, untouched: Path, rank: int) -> None:
    """Only one of them has checkpoints."""
    shutil.copytree(untouched, runs / f"own-{rank}-{rank}", symlinks=True)
    train = f"exec {sys.executable} -m nmt_cli train numbers.toml --run runs/own-{rank}-$RANK"
    command = [sys.executable, *TORCHRUN[:4], "--no-python", "sh", "-c", train]
    done = subprocess.run(
        command,
        cwd=runs.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "--data and --run must lie on a file system that all machines share" in done.stderr
    assert done.stderr.count("error:") == 1
    assert "nmt_cli/training" not in done.stderr
