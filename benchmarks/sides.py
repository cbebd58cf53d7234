"""A toolkit's own training command as a side of a benchmark, and ours. See peers.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt_cli import __version__
from nmt_cli.recipe import Recipe

LOG_EVERY, WARMUP = 4, 2
"""Updates of an interval, and the intervals at the beginning that do not count."""
NEVER = 1_000_000


@dataclass(frozen=True)
class Task:
    """What every side trains: `recipe`, which is its name and `settings`, on the pairs of `shards`."""

    recipe: Recipe
    settings: Sequence[str]
    shards: Path


class Side(ABC):
    """A toolkit's training command."""

    name: str

    @property
    @abstractmethod
    def version(self) -> str:
        """Its own."""

    @abstractmethod
    def prepare(self, work: Path, task: Task) -> None:
        """Write into `work` what the command reads."""

    @abstractmethod
    def command(self, run: Path, updates: int, threads: int) -> list[str]:
        """The command that trains for so many updates, writing into `run`."""

    @abstractmethod
    def rates(self, log: str, run: Path) -> list[float]:
        """Target tokens a second of each interval."""

    def train(self, updates: int, threads: int) -> list[float]:
        """Run the command: target tokens a second of each interval after the warm-up."""
        with tempfile.TemporaryDirectory(prefix="nmt-bench-") as folder:
            run = Path(folder) / "run"
            rates = self.rates(checked(self.command(run, updates, threads), threads), run)
        if len(rates) != updates // LOG_EVERY or len(rates) <= WARMUP:
            raise SystemExit(
                f"{self.name}: {len(rates)} intervals in its log, expected {updates // LOG_EVERY}, more than {WARMUP}"
            )
        return rates[WARMUP:]


class Nmt(Side):
    """Ourselves, from this environment."""

    version = f"{__version__} · torch {torch.__version__}"

    def __init__(self, precision: str) -> None:
        self.name, self.precision = f"nmt train, {precision}", precision

    def prepare(self, work: Path, task: Task) -> None:
        self.task = task

    def command(self, run: Path, updates: int, threads: int) -> list[str]:
        train = {
            "updates": updates,
            "decay_updates": 0,  # a decay of the recipe may be longer
            "log_every": LOG_EVERY,
            "valid_every": NEVER,
            "checkpoint_every": 0,
            "valid_bleu_sentences": 0,
            "valid_samples": 0,
            "best_metric": "nll",
        }
        settings = [*self.task.settings, *(f"train.{key}={value}" for key, value in train.items())]
        options = [
            "--run",
            str(run),
            "--data",
            str(self.task.shards),
            "--device=cpu",
            f"--precision={self.precision}",
            f"--threads={threads}",
        ]
        return [
            sys.executable,
            "-m",
            "nmt_cli",
            "train",
            self.task.recipe.name,
            *options,
            *(f"--set={setting}" for setting in settings),
        ]

    def rates(self, log: str, run: Path) -> list[float]:
        records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        return [record["tokens_per_second"] for record in records if record["type"] == "train"]


def checked(command: Sequence[str], threads: int = 0) -> str:
    """What the command prints, both streams; where it fails, the end of that and no more."""
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout
