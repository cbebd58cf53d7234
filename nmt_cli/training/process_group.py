"""The processes that train together: one process, or several that torchrun or `nmt train --devices` started.

    group.all_gather(values)    every rank's numbers, in the order of ranks
    group.run_on_main(work)     rank 0 runs work(), every rank gets the result
    group.run_on_all(work)      every rank runs work(), and gets all results
    group.collective()          explains the errors of torch's own collectives

Small values (a stop signal, elapsed time) go over gloo on the CPU. Gradients go over NCCL between GPUs and over gloo
between CPUs. rendezvous.py creates the group.

A decision that leads to a collective must depend on values that are equal on all ranks, such as the results of
`all_gather`, `run_on_main` and `run_on_all`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..device.memory import out_of_memory
from ..errors import RETRY, TrainingError, of_machine

TIMEOUT = timedelta(minutes=10)
"""The time that a collective waits for a rank.

The death of a process is noticed at once, because its connections close. The
timeout is for a machine or a network that stops answering."""
BEAT = 5.0
"""Seconds between the collectives with which a rank shows the others that it is still working (see `run_on_main`)."""
END_TIMEOUT = timedelta(seconds=10)
"""The time that a rank waits for others when it ends. They may have ended too."""
RESUME = "Run the same command to resume from the last checkpoint."
"""The advice in messages of errors that may not occur again at the next start."""


class PeerLost(TrainingError):
    """A collective failed, most often because another rank does not answer."""

    exit_code = RETRY


class PeerFailed(TrainingError):
    """Another rank failed first and reported why; this rank ends with its exit status."""

    def __init__(self, exit_code: int, message: str, *, reported: bool) -> None:
        super().__init__(message)
        self.exit_code, self.reported = exit_code, reported


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank, and how many ranks there are. Rank 0 logs and saves."""

    rank: int = 0
    local_rank: int = 0
    """The rank among the ranks on this machine."""
    world_size: int = 1
    local_world_size: int = 1
    """The number of ranks on this machine."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def all_gather(self, values: Sequence[float]) -> list[list[float]]:
        """Return every rank's values, in the order of ranks.

        Every rank must call it. Raises TrainingError when a rank does not answer.
        """
        if self.world_size == 1:
            return [list(values)]
        local = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(local) for _ in range(self.world_size)]
        with self.collective():
            dist.all_gather(gathered, local)
        return [tensor.tolist() for tensor in gathered]

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """Run `work` on rank 0, and return its result on every rank. The result must be JSON-serializable.

        Every rank must call it. The other ranks wait as long as `work` takes. When `work` raises an exception, rank 0
        ends with it, and the other ranks end too.
        """
        return self.run_on_all(lambda: work() if self.is_main else None)[0]

    def run_on_all(self, work: Callable[[], Any]) -> list[Any]:
        """Run `work` on every rank at the same time, and return all results on every rank, in the order of ranks.

        The results must be JSON-serializable. Every rank must call it. The ranks wait for each other as long as `work`
        takes: every few seconds a thread of a rank that works takes part in a collective with the others. When a rank
        dies meanwhile, the error comes after `work`.
        """
        if self.world_size == 1:
            return [work()]
        with _heartbeat(lambda: self.all_gather([0.0])):
            content = json.dumps(work()).encode()
        sizes = [0.0]
        while not all(sizes):  # a size of 0 is a heartbeat: that rank is still working
            sizes = [row[0] for row in self.all_gather([float(len(content))])]
        return [json.loads(self._broadcast(content, rank, int(size))) for rank, size in enumerate(sizes)]

    def _broadcast(self, content: bytes, source: int, size: int) -> bytes:
        """Return the `content` of rank `source`, which has `size` bytes."""
        buffer = (
            torch.frombuffer(bytearray(content), dtype=torch.uint8)
            if self.rank == source
            else torch.empty(size, dtype=torch.uint8)
        )
        with self.collective():
            dist.broadcast(buffer, source)
        return bytes(buffer.tolist())

    @contextmanager
    def collective(self, failed: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Wrap collectives of torch.distributed, and explain their errors.

        For passes that end with a collective, `failed` returns whether the error came from it. Raises PeerLost when a
        collective failed, TrainingError when this rank's memory or GPU fails. Any other exception passes through.
        """
        try:
            yield
        except RuntimeError as error:
            if self.world_size == 1:
                raise
            name, reason = f"rank {self.rank} of {self.world_size}", summary(error)
            if out_of_memory(error):  # smaller micro-batches on this rank alone would leave the ranks out of step
                why = f"{name} runs out of memory ({reason}). Set a smaller train.micro_batch_tokens, or give more"
                raise of_machine(TrainingError(f"{why} memory. {RESUME}")) from None
            if isinstance(error, torch.AcceleratorError):
                why = f"{name}: its GPU reports an error, in the update or before: {reason} {RESUME}"
                raise of_machine(TrainingError(why)) from None
            if not isinstance(error, dist.DistError) and not failed():
                raise
            raise PeerLost(
                f"{name} cannot exchange data with the others ({reason}). If one of them has died or hangs, its own "
                f"message, or torchrun's report, names the cause. {RESUME}"
            ) from None


@contextmanager
def _heartbeat(beat: Callable[[], object]) -> Iterator[None]:
    """Call `beat` every few seconds in a thread while the block runs. What it raised is raised after the block."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(BEAT):
            beat()

    with ThreadPoolExecutor(1, "nmt-heartbeat") as thread:
        beats = thread.submit(run)
        try:
            yield
        finally:
            done.set()
    beats.result()


def summary(error: BaseException) -> str:
    """Return the message on one line, without torch's stack of C++."""
    return " ".join(str(error).partition("Exception raised from ")[0].split()) or type(error).__name__
