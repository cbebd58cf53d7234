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
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, Literal

import torch
import torch.distributed as dist

from ..errors import TrainingError
from ..hardware import out_of_memory

TIMEOUT = timedelta(minutes=10)
"""The time that a collective waits for a rank.

The death of a process is noticed at once, because its connections close. The
timeout is for a machine or a network that stops answering."""
HEARTBEATS = 120
"""Heartbeats per TIMEOUT: collectives with which a rank shows that it is still working (see `run_on_main`)."""
END_TIMEOUT = timedelta(seconds=10)
"""The time that a rank waits for others when it ends. They may have ended too."""
INTERRUPT = signal.SIGUSR2
"""The signal with which the thread of `_heartbeat` interrupts the main thread."""
RESUME = "Run the same command to resume from the last checkpoint."
"""The advice in messages of errors that may not occur again at the next start."""


class PeerLost(TrainingError):
    """A collective failed because another rank does not answer."""


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

    def all_reduce_max(self, value: float) -> float:
        """Return the largest of all ranks' values. Every rank must call it."""
        return max(row[0] for row in self.all_gather([value]))

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """Run `work` on rank 0, and return its result on every rank. The result must be JSON-serializable.

        Every rank must call it, in its main thread. The other ranks wait as long as `work` takes: every few seconds a
        thread of rank 0 takes part in a collective with them. When a rank dies during this time, `work` is interrupted.
        When `work` raises an exception, rank 0 ends with it, and the other ranks end too.
        """
        return self._run(work, 1)[0]

    def run_on_all(self, work: Callable[[], Any]) -> list[Any]:
        """Run `work` on every rank at the same time, and return all results on every rank, in the order of ranks.

        The results must be JSON-serializable. Every rank must call it, in its main thread. The ranks wait for each
        other as long as `work` takes, as in `run_on_main`.
        """
        return self._run(work, self.world_size)

    def _run(self, work: Callable[[], Any], workers: int) -> list[Any]:
        """Run `work` on the first `workers` ranks, and return their results on every rank."""
        if self.world_size == 1:
            return [work()]
        content, sizes = b"", [0.0]
        if self.rank < workers:
            with _heartbeat(lambda: self.all_gather([0.0])):
                content = json.dumps(work()).encode()
        while not all(sizes):  # a size of 0 is a heartbeat: that rank is still working
            sizes = [row[0] for row in self.all_gather([float(len(content))])][:workers]
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
    def collective(self) -> Iterator[None]:
        """Wrap a collective of torch.distributed, or passes that end with one, and explain its errors.

        Raises PeerLost when another rank does not answer, TrainingError when this rank's memory or GPU fails. Any other
        exception passes through.
        """
        try:
            yield
        except RuntimeError as error:
            what = meaning(error)
            if self.world_size == 1 or not what:
                raise
            name = f"rank {self.rank} of {self.world_size}"
            if what == "memory":  # smaller micro-batches on this rank alone would leave the ranks out of step
                raise TrainingError(
                    f"{name} runs out of memory ({summary(error)}). Set a smaller train.micro_batch_tokens, or give "
                    f"more memory. {RESUME}"
                ) from None
            if what == "device":
                raise TrainingError(
                    f"{name}: its GPU reports an error, in the update or before: {summary(error)}. "
                    f"CUDA_LAUNCH_BLOCKING=1 before the same command shows the operation. {RESUME}"
                ) from error
            raise PeerLost(
                f"{name} no longer hears from the others ({summary(error)}). One of them has died or hangs: its own "
                f"message, or torchrun's report, names the cause. {RESUME}"
            ) from None


@contextmanager
def _heartbeat(beat: Callable[[], object]) -> Iterator[None]:
    """Call `beat` every few seconds in a thread while the block runs.

    An exception of `beat` interrupts the block, and the block raises it.
    """
    done, lock, raised = threading.Event(), threading.Lock(), list[BaseException]()
    interval, thread_of_block = TIMEOUT.total_seconds() / HEARTBEATS, threading.get_ident()

    def run() -> None:
        while not done.wait(interval):
            try:
                beat()
            except BaseException as error:
                raised.append(error)
                with lock:
                    if not done.is_set():
                        signal.pthread_kill(thread_of_block, INTERRUPT)
                return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if raised:
            raise raised[0]

    thread = threading.Thread(target=run, name="nmt-heartbeat", daemon=True)
    before = signal.signal(INTERRUPT, interrupt)
    thread.start()
    # after an exception, the thread may be waiting for ranks that have ended
    join_timeout: float | None = END_TIMEOUT.total_seconds()
    try:
        yield
        join_timeout = None
    finally:
        with lock:
            done.set()
        thread.join(join_timeout)
        signal.signal(INTERRUPT, before)
    if raised:
        raise raised[0]


Meaning = Literal["peer", "memory", "device", ""]

DEVICE = re.compile(
    r"CUDA error|Cuda failure|device-side assert|illegal memory access|CUBLAS_STATUS_|"
    r"CUDNN_STATUS_|cuDNN error|HIP error"
)
LIBRARY = re.compile(r"/gloo/|\bgloo\b|\bNCCL\b|\bnccl[A-Z]", re.IGNORECASE)
NETWORK = re.compile(
    r"connection (closed|reset|refused)|closed by (remote )?peer|broken pipe|socket closed|pair closure|"
    r"timed out|timing out|timeout|no route to host|network is unreachable|"
    r"ncclRemoteError|remote process exited|communicator was aborted|connectFullMesh failed",
    re.IGNORECASE,
)
MISUSE = re.compile(r"enforce fail|ncclInvalid(Usage|Argument)", re.IGNORECASE)


def meaning(error: BaseException) -> Meaning:
    """Return the meaning of `error`, which a collective of torch.distributed raised.

    "peer": another rank does not answer: its process is gone, its machine or the network failed, or it hangs. "memory":
    this rank has no memory left. "device": this rank's GPU reports an error, such as a failed assertion or an illegal
    address. "": anything else, an error in the program, such as tensors of different shapes.

    torch raises most of these exceptions as RuntimeError. gloo's messages begin with a path of gloo's source code.
    NCCL's messages contain the name of a result code and, after "Last error:", the more precise cause.
    """
    text = str(error)
    if out_of_memory(error):
        return "memory"
    if isinstance(error, torch.AcceleratorError) or DEVICE.search(text):
        return "device"
    if isinstance(error, (dist.DistNetworkError, dist.DistStoreError)):
        return "peer"
    from_library = isinstance(error, dist.DistError) or LIBRARY.search(text)
    return "peer" if from_library and NETWORK.search(text) and not MISUSE.search(text) else ""


def summary(error: BaseException) -> str:
    """Return the first sentence of the message, without gloo's path; for NCCL, the cause after "Last error:"."""
    text = re.sub(r"\[\S*\.cc:\d+\] ", "", str(error))
    if last := re.search(r"Last error:\s*(.+)", text):  # NCCL
        return last[1].strip()
    return (text.splitlines() or [type(error).__name__])[0].partition(". ")[0]
