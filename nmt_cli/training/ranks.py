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

from ..errors import TrainingError
from ..hardware import out_of_memory

TIMEOUT = timedelta(minutes=10)
"""Longer than any rank waits for another while all are well: while rank 0 validates. A rank whose process dies is
noticed at once, because its connections close; this is for one whose machine went dark."""


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

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """Every rank's values, in the order of ranks; every rank must call it. Raises TrainingError when one is gone."""
        if self.world == 1:
            return [list(values)]
        own = torch.tensor(values, dtype=torch.float64)
        everyones = [torch.empty_like(own) for _ in range(self.world)]
        with self.together():
            dist.all_gather(everyones, own)
        return [tensor.tolist() for tensor in everyones]

    def largest(self, value: float) -> float:
        """The largest of all ranks' values; every rank must call it."""
        return max(row[0] for row in self.gathered([value]))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do together. Raises TrainingError when another rank is gone."""
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or out_of_memory(error):
                raise
            reason = str(error).splitlines()[0]
            raise TrainingError(f"rank {self.rank} of {self.world} no longer hears from the others ({reason}). One of them has died: its own message, or torchrun's report, names the cause. Run the same command to go on after the last checkpoint.") from None


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
