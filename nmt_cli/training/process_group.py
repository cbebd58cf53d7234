"""Who computes: one process, or several that torchrun or `--devices` started. All of it is torch.distributed's.

    with joined() as ranks   this process's place among them; alone when nothing started it as one of several

The processes agree on the small things (a stop signal, how long it took) over gloo on the CPU; gradients go over
NCCL between GPUs and over gloo between CPUs.

A decision that leads to a collective must be taken from values that are equal on all ranks: from `gathered`, or from
`run_on_main`, which returns what rank 0 found to every rank. When a rank ends with an error, it writes the error to the
store before its connections close. The others, whose collective then breaks, read it there: the error is reported once,
by the rank that had it, and all end with its exit status.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..errors import NmtError, Stopped, TrainingError, UsageError
from .collective_errors import meaning, summary

TIMEOUT = timedelta(minutes=10)
"""Within it every rank takes part in the next collective while all are well. A rank whose process dies is noticed at
once, because its connections close; this is for one whose machine went dark."""
HEARTBEATS = 120
"""Collectives in TIMEOUT by which rank 0 lets the others know that it still works alone (see `run_on_main`)."""
STORE_TIMEOUT = timedelta(seconds=10)
"""For the store when a rank ends: it may be gone as well."""
INTERRUPT = signal.SIGUSR2
"""What the thread of `_heartbeat` interrupts the main thread with."""


class PeerLost(TrainingError):
    """A collective broke because another rank does not answer."""


class PeerFailed(TrainingError):
    """Another rank has failed before, and reported why; this one ends with its exit status."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


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

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """Run `work` on rank 0 alone, and return on every rank what it returned, which must be fit for JSON.

        Every rank must call it, in the main thread. The others wait as long as it takes: a thread of rank 0 takes part
        in a collective with them every few seconds. When a rank dies meanwhile, `work` is interrupted. When `work`
        raises an exception, rank 0 ends with it, and the others because of that.
        """
        if self.world == 1:
            return work()
        if self.leads:
            with _heartbeat(lambda: self.gathered([0.0])):
                content = json.dumps(work()).encode()
            self.gathered([float(len(content))])
            buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        else:
            while not (size := int(self.gathered([0.0])[0][0])):
                pass
            buffer = torch.empty(size, dtype=torch.uint8)
        with self.together():
            dist.broadcast(buffer, 0)
        return json.loads(bytes(buffer.tolist()))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do together. Raises PeerLost when another rank does not answer, TrainingError when this
        rank's memory or GPU fails; any other exception passes as it is.
        """
        try:
            yield
        except RuntimeError as error:
            what = meaning(error)
            if self.world == 1 or not what:
                raise
            name = f"rank {self.rank} of {self.world}"
            if what == "memory":  # not for `Updater`, which cuts micro-batches: the ranks are no longer in step
                raise TrainingError(f"{name} runs out of memory while it exchanges results with the others ({summary(error)}). Set a smaller train.micro_batch_tokens, or give more memory.") from None
            if what == "device":
                raise TrainingError(f"{name}: its GPU reports an error, in the update or before: {summary(error)}. CUDA_LAUNCH_BLOCKING=1 before the same command shows the operation. {RESUME}") from error
            raise PeerLost(f"{name} no longer hears from the others ({summary(error)}). One of them has died or hangs: its own message, or torchrun's report, names the cause. {RESUME}") from None


RESUME = "Run the same command to go on after the last checkpoint."


@contextmanager
def _heartbeat(beat: Callable[[], object]) -> Iterator[None]:
    """Call `beat` every few seconds in a thread while the block runs. What it raises interrupts the block, and is raised by it."""
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

    thread, before = threading.Thread(target=run, name="nmt-heartbeat", daemon=True), signal.signal(INTERRUPT, interrupt)
    thread.start()
    patience: float | None = STORE_TIMEOUT.total_seconds()  # after an exception: the others may be gone, and the thread wait for them
    try:
        yield
        patience = None
    finally:
        with lock:
            done.set()
        thread.join(patience)
        signal.signal(INTERRUPT, before)
    if raised:
        raise raised[0]


def started_by_torchrun() -> bool:
    """Whether torchrun's variables are set."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other processes, and part from them at the end. Raises TrainingError when they are not to be reached.

    An exception that ends this rank is reported once: where another rank has done so before, PeerFailed replaces it.
    """
    if not started_by_torchrun():
        yield Ranks()
        return
    _end_with_parent()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store = _store(rank, world)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    except RuntimeError as error:
        raise TrainingError(f"rank {rank} of {world} cannot reach the others ({summary(error)}). Look whether all of them were started, and whether --rdzv-endpoint or --master-addr can be reached from every machine.") from None
    ranks = Ranks(rank, int(os.environ.get("LOCAL_RANK", "0")), world, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield ranks
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it as soon as another rank has ended
        if (instead := reported_before(error, store, ranks)) is not None:
            raise instead from None
        raise
    finally:
        dist.destroy_process_group()
        signal.signal(signal.SIGTERM, before)


def reported_before(error: BaseException, store: Any, ranks: Ranks) -> PeerFailed | None:
    """Write to the store why this rank ends, unless another rank has done so before; then return what to end with instead.

    None: this rank is the first, or ends for a reason of its own.
    """
    interrupted = isinstance(error, KeyboardInterrupt)
    code = error.exit_code if isinstance(error, NmtError) else 130 if interrupted else 1
    text = str(error) if isinstance(error, NmtError) else "interrupted" if interrupted else f"{type(error).__name__}: {error}"
    group = os.environ.get("GROUP_RANK", "")
    own = json.dumps({"rank": ranks.rank, "group": group, "code": code, "text": text})
    try:
        store.set_timeout(STORE_TIMEOUT)
        first = store.compare_set("nmt/ended", "", own).decode()
    except RuntimeError:  # the store's process is gone as well
        return None
    if first == own:
        return None
    cause = json.loads(first)
    if not isinstance(error, PeerLost) and text != cause["text"]:
        return None
    elsewhere = group != cause["group"] and ranks.local_rank == 0 and cause["text"]  # another machine's log does not have it
    return PeerFailed(cause["code"], f"rank {cause['rank']} of {ranks.world} has failed: {cause['text']}" if elsewhere else "")


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number, "")


def _end_with_parent() -> None:
    """On Linux: let this process get SIGTERM when the one that started it dies, so that no rank is left alone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _store(rank: int, world: int) -> Any:
    """Where the processes find each other, and read why one of them ended.

    torchrun's store outlives the processes that it restarts, and torch would find the addresses of dead ones in it. So
    each start takes a part of its own. Rank 0 draws its name; the others ask for it by marks that nobody used before.
    """
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UsageError(f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}: start the ranks with torchrun, or unset them.")
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=not shared and rank == 0, timeout=TIMEOUT)  # type: ignore[attr-defined]
    if not shared:
        return store
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
