"""How the processes of a training join the process group, and how they leave it.

    with joined(device) as group      join the other processes; without torchrun's variables: a group of one process

A rank that ends with an error writes the error to the store before its connections close. The collectives of the other
ranks then fail, and they read the error in the store. So only the rank that had the error reports it, and all ranks end
with its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch.distributed as dist

from .. import console
from ..data.workers import end_with_parent
from ..device.torch_device import abort_communication, communication
from ..errors import RETRY, NmtError, Stopped, TrainingError, UsageError
from . import process_group
from .process_group import RESUME, PeerFailed, PeerLost, ProcessGroup, summary
from .stopping import Finished

LAUNCHER_STORE = "NMT_LAUNCHER_STORE"
"""The environment variable with the port of the store of `nmt train --devices` on this machine.

Without it, torch finds torchrun's store.
"""
LAUNCHER = "NMT_LAUNCHER"
"""The environment variable with the process number of `nmt train --devices`."""


def started_by_torchrun() -> bool:
    """Return whether torchrun's environment variables are set."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


def local_rank() -> int:
    """Return this process's rank among the ranks on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if started_by_torchrun() else 0


@contextmanager
def joined(device: str) -> Iterator[ProcessGroup]:
    """Join the other processes, and leave the group at the end.

    `device` is this rank's. Raises TrainingError when the others cannot be reached.

    When another rank has already reported why it failed, and this rank fails because of it, PeerFailed replaces this
    rank's exception. So one error is reported only once.
    """
    if not started_by_torchrun():
        yield ProcessGroup()
        return
    end_with_parent(int(os.environ.get(LAUNCHER) or os.getppid()), _end_without_launcher)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _import_before_the_group()
    try:
        store = _connect_store(rank, world_size)
        dist.init_process_group(
            **communication(device), store=store, rank=rank, world_size=world_size, timeout=process_group.TIMEOUT
        )
    except RuntimeError as error:
        raise TrainingError(
            f"rank {rank} of {world_size} cannot reach the others ({summary(error)}). Look whether all of them were "
            f"started, and whether --rdzv-endpoint or --master-addr can be reached from every machine."
        ) from None
    group = ProcessGroup(rank, local_rank(), world_size, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    before = signal.signal(signal.SIGTERM, _raise_stopped)
    try:
        yield group
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it as soon as another rank has ended
        replacement = report_end(error, store, group)
        abort_communication(device)
        if replacement is not None:
            raise replacement from None
        raise
    finally:
        gc.collect()  # a cycle that holds the group would let gloo's threads outlive it
        dist.destroy_process_group()
        signal.signal(signal.SIGTERM, before)


def report_end(error: BaseException, store: Any, group: ProcessGroup) -> PeerFailed | None:
    """Write to the store why this rank ends.

    If another rank ended first and is the cause, return the PeerFailed to raise instead.

    Return None if this rank is the first, or if it ends for a reason of its own.
    """
    if isinstance(error, NmtError):
        code, text = error.exit_code, str(error)
    elif isinstance(error, KeyboardInterrupt):
        code, text = 130, "interrupted"
    else:
        code, text = 1, f"{type(error).__name__}: {error}"
    node = os.environ.get("GROUP_RANK", "")
    record = json.dumps(
        {"rank": group.rank, "group": node, "code": code, "text": text, "reported": getattr(error, "reported", False)}
    )
    try:
        store.set_timeout(process_group.END_TIMEOUT)
        first = store.compare_set("nmt/ended", "", record).decode()
    except RuntimeError:  # the store's process is gone as well
        return None
    if first == record:
        return None
    cause = json.loads(first)
    if not isinstance(error, PeerLost) and text != cause["text"]:
        return None
    # else this machine's log does not have the message
    reported = node == cause["group"] or group.local_rank != 0 or cause["reported"]
    text = f"rank {cause['rank']} of {group.world_size} has failed: {cause['text']}"
    return PeerFailed(cause["code"], text, reported=reported)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    if not Finished.reached:
        raise Stopped(number, f"this rank was stopped by {signal.Signals(number).name}.", reported=True)


def _import_before_the_group() -> None:
    """Import a module that must be imported before the process group exists.

    If it is imported later, its functions hold the group for ever, as a default argument. `destroy_process_group` then
    does not end gloo's threads. They would still run while Python shuts down, and a thread that frees a tensor then
    aborts the process.
    """
    import torch.distributed.nn.functional  # noqa: F401


def _end_without_launcher() -> None:
    """End this rank, because the process that started it is gone. If the rank trains, it saves first."""
    if local_rank() == 0:
        console.fail(f"the process that started the ranks is gone, so they end. {RESUME}")
    if dist.is_initialized():
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        os._exit(RETRY)  # no signal interrupts a rank that waits for the store


def _connect_store(rank: int, world_size: int) -> Any:
    """Return the store through which the processes find each other, and in which they read why one of them ended.

    The store of torchrun, or of `launch`, outlives the processes, so it holds the addresses of dead ones after a
    restart. Therefore each start uses keys with a new prefix, which rank 0 chooses. Each other rank asks for the prefix
    with a random key of its own. Rank 0 answers until all other ranks have confirmed.
    """
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UsageError(
            f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}: start the ranks with torchrun, or unset "
            f"them."
        )
    if port := os.environ.get(LAUNCHER_STORE):
        store: Any = dist.TCPStore("localhost", int(port), world_size, is_master=False, timeout=process_group.TIMEOUT)  # type: ignore[attr-defined]
    else:
        store, _, _ = next(iter(dist.rendezvous("env://", rank, world_size, timeout=process_group.TIMEOUT)))  # type: ignore[attr-defined]
    key = uuid.uuid4().hex
    if rank:
        store.set(f"nmt/asks/{rank}", key)
        prefix = store.get(f"nmt/answers/{key}").decode()
        store.set(f"{prefix}/{rank}", "")
        return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
    prefix, waiting = key, list(range(1, world_size))
    while waiting:
        for peer in waiting:
            asked = store.get(f"nmt/asks/{peer}").decode()  # at first perhaps the key of a dead process
            store.set(f"nmt/answers/{asked}", prefix)
        waiting = [peer for peer in waiting if not store.check([f"{prefix}/{peer}"])]
        time.sleep(0.05)
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
