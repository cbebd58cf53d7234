"""Who computes: one process, or several under torchrun. All of it is torch.distributed's.

    launch(N, argv)          `--devices N`: run the same command under torchrun with N processes, and end as they do
    with joined() as ranks   this process's place among them; alone when torchrun did not start it

The processes agree on the small things (a stop signal, how long it took) over gloo on the CPU; gradients go over
NCCL between GPUs and over gloo between CPUs.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ..errors import Stopped, TrainingError
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
            raise TrainingError(f"rank {self.rank} of {self.world} no longer hears from the others ({_reason(error)}). One of them has died: its own message, or torchrun's report, names the cause. Run the same command to go on after the last checkpoint.") from None


def launch(devices: int, command: Sequence[str]) -> NoReturn:
    """Run `python -m nmt_cli COMMAND` in `devices` processes under torchrun, and exit as they do.

    Raises Stopped after a signal, TrainingError when one of them was killed.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(["--standalone", f"--nproc-per-node={devices}", "-m", "--", "nmt_cli", *command])  # --: its --run-… options
    except SignalException as stopped:
        raise Stopped(stopped.sigval, "") from None
    except ChildFailedError as error:
        killed = [(rank, failure) for rank, failure in error.failures.items() if failure.exitcode not in (-signal.SIGTERM, *range(256))]
        if not killed:
            sys.exit(error.get_first_failure()[1].exitcode)  # it has told why
        rank, failure = killed[0]
        raise TrainingError(f"rank {rank} of {devices} was killed by {failure.signal_name()}, and so the others were ended. Run the same command to go on after the last checkpoint.") from None
    sys.exit(0)


def started_by_torchrun() -> bool:
    """Whether torchrun's variables are set."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other processes, and part from them at the end. Raises TrainingError when they are not to be reached."""
    if not started_by_torchrun():
        yield Ranks()
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, store=_store(rank, world), rank=rank, world_size=world, timeout=TIMEOUT)
    except RuntimeError as error:
        raise TrainingError(f"rank {rank} of {world} cannot reach the others ({_reason(error)}). Look whether all of them were started, and whether --rdzv-endpoint or --master-addr can be reached from every machine.") from None
    try:
        yield Ranks(rank, int(os.environ.get("LOCAL_RANK", "0")), world, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    finally:
        dist.destroy_process_group()


def _store(rank: int, world: int) -> Any:
    """Where the processes find each other; None: torch's own choice.

    torchrun's store outlives the processes that it restarts, and torch would find the addresses of dead ones in it. So
    each start takes a part of its own. Rank 0 draws its name; the others ask for it by marks that nobody used before.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=False, timeout=TIMEOUT)  # type: ignore[attr-defined]
    mark = uuid.uuid4().hex
    if rank:
        store.set(f"nmt/asks/{rank}", mark)
        name = store.get(f"nmt/answers/{mark}").decode()
        store.set(f"{name}/{rank}", "")
        return dist.PrefixStore(name, store)  # type: ignore[attr-defined]
    others = list(range(1, world))
    while others:
        for other in others:
            asked = store.get(f"nmt/asks/{other}").decode()  # at first perhaps a dead one's
            store.set(f"nmt/answers/{asked}", mark)
        others = [other for other in others if not store.check([f"{mark}/{other}"])]
        time.sleep(0.05)
    return dist.PrefixStore(mark, store)  # type: ignore[attr-defined]


def _reason(error: RuntimeError) -> str:
    """The first sentence; gloo puts a place in its source before it, and talk after it."""
    return re.sub(r"\[\S*\.cc:\d+\] ", "", str(error).splitlines()[0]).partition(". ")[0]
