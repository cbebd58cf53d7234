"""Who computes: one process, or several under torchrun. All of it is torch.distributed's.

    launch(N, argv)          `--devices N`: run the same command under torchrun with N processes
    with joined() as ranks   this process's place among them; alone when torchrun did not start it

The processes agree on the small things (a stop signal, how long it took) over gloo on the CPU; gradients go over
NCCL between GPUs and over gloo between CPUs, inside DistributedDataParallel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

TIMEOUT = timedelta(minutes=10)
"""Longer than any rank waits for another while all are well: validation runs on every rank's share of time."""


@dataclass(frozen=True)
class Ranks:
    """This process among `world`; rank 0 logs and saves."""

    rank: int = 0
    local_rank: int = 0
    world: int = 1
    world_here: int = 1
    """Of them, those on this machine."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def largest(self, value: float) -> float:
        """The largest of all ranks' values; every rank must call it."""
        return self._reduced(value, dist.ReduceOp.MAX)

    def total(self, value: float) -> float:
        """The sum of all ranks' values; every rank must call it."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def _reduced(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        if self.world == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, operation)
        return float(tensor)

    def wait(self) -> None:
        """Until every rank has come here."""
        self.largest(0.0)


def launch(devices: int, command: Sequence[str]) -> NoReturn:
    """Replace this process by torchrun with `devices` processes of `python -m nmt_cli COMMAND`."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}", "-m", "--", "nmt_cli"]  # --: its --run-… options
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *torchrun, *command])


def started_by_torchrun() -> bool:
    """Whether torchrun's variables are set."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other processes, and part from them at the end."""
    if not started_by_torchrun():
        yield Ranks()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(dist.get_rank(), int(os.environ.get("LOCAL_RANK", "0")), dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    finally:
        dist.destroy_process_group()
