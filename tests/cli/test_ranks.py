"""Ranks that are started as a user's are, by `--devices` and by torchrun: one that dies ends them all with a cause, and what
was stopped or restarted ends equal. Every other ending is in test_endings.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from forked_ranks import FORKED
from kills import differences, run_errors
from shared import number_words

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


class Job:
    """`nmt train` on two ranks."""

    def __init__(self, run: Path, *options: str, how: list[str] = DEVICES) -> None:
        devices = ["--devices", "2"] if how is DEVICES else []
        command = [sys.executable, *how, "train", "numbers.toml", "--run", str(run), *devices, *options]
        self.run, self.stderr = run, run.parent / f"{run.name}.err"
        run.parent.mkdir(exist_ok=True)
        with self.stderr.open("wb") as stream:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
            self.process = subprocess.Popen(
                command, cwd=run.parents[1], env=environment, stderr=stream, stdout=subprocess.DEVNULL
            )

    def ranks(self) -> dict[int, int]:
        """The processes of the ranks that run now: rank to process number."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
                variables = dict(
                    pair.split("=", 1)
                    for pair in (folder / "environ").read_text(encoding="utf-8").split("\0")
                    if "=" in pair
                )
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and "RANK" in variables:
                found[int(variables["RANK"])] = int(folder.name)
        return found

    def at_update(self, update: int) -> None:
        """Wait for the training record of `update`."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            if (self.run / "metrics.jsonl").exists() and f'"update": {update},' in (
                self.run / "metrics.jsonl"
            ).read_text(encoding="utf-8"):
                return
            time.sleep(0.02)
        self.process.terminate()
        self.process.wait()
        raise AssertionError(f"update {update} was not reached:\n{self.said()}")

    def said(self) -> str:
        return " ".join(self.stderr.read_text(encoding="utf-8").split())

    def ended(self, seconds: float = 120) -> int:
        """The exit code."""
        try:
            return self.process.wait(seconds)
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


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_a_rank_that_dies_ends_the_job_with_its_cause(runs: Path) -> None:
    rank, job = 1, Job(runs / "dead", "--set", "train.updates=5000")
    job.at_update(20)
    ranks = job.ranks()
    os.kill(ranks[rank], signal.SIGKILL)
    began = time.monotonic()
    assert job.ended() == 1
    assert time.monotonic() - began < 60
    assert f"error: rank {rank} of 2 was killed by SIGKILL" in job.said()
    assert "Run the same command to resume from the last checkpoint." in job.said()
    assert "Traceback" not in job.said()
    assert not [process for process in ranks.values() if Path(f"/proc/{process}").exists()]
    assert run_errors(job.run) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_torchrun_restarts_a_job_and_it_ends_equal(runs: Path, untouched: Path) -> None:
    job = Job(runs / "restarted", *SHORT, how=TORCHRUN)
    job.at_update(20)
    os.kill(job.ranks()[0], signal.SIGKILL)
    assert job.ended() == 0, job.said()
    assert job.said().count("run folder") == 2
    assert "no longer hears from the others" in job.said()
    assert "resuming after update" in job.said()
    assert differences(job.run, untouched) == []


def test_a_signal_to_the_job_saves_and_resumed_it_ends_equal(runs: Path, untouched: Path) -> None:
    job = Job(runs / "stopped", *SHORT)
    job.at_update(20)
    job.process.send_signal(signal.SIGTERM)
    assert job.ended() == 143, job.said()
    assert "and saved; run the same command to resume" in job.said()
    assert "Traceback" not in job.said()
    assert run_errors(job.run) == []
    assert "resuming after update" in forked.nmt(runs.parent, *TRAIN, "runs/stopped", *SHORT, prelude=FORKED)
    assert differences(job.run, untouched) == []


def test_an_error_that_every_rank_meets_is_reported_once(runs: Path) -> None:
    job = Job(runs / "precise", "--device", "cuda:7", *SHORT)
    assert job.ended() == 2
    assert "error: --device 'cuda:7'" in job.said()
    assert job.said().count("error:") == 1
    assert "Traceback" not in job.said()


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
