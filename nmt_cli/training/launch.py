"""`--devices N`: the same command in N processes on this machine, as torchrun starts them, and one exit status for all.

    launch(N, argv)   start the ranks, pass signals on to them, wait for all, raise for the first that failed

Each process gets torchrun's environment variables, so `joined` works in the same way with torchrun and without.
torchrun itself is needed only for several machines. It kills the ranks 30 seconds after a signal, and its exit status
does not show how they ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import torch.distributed as dist

from ..errors import RankFailed, Stopped, TrainingError, of_machine
from .process_group import RESUME
from .rendezvous import LAUNCHER, LAUNCHER_STORE
from .stopping import Finished, not_ignored, signal_handler

TERMINATE, KILL = 5.0, 30.0
"""Seconds after a rank has failed until the other ranks get SIGTERM, and until they get SIGKILL."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def launch(devices: int, command: Sequence[str]) -> None:
    """Run `python -m nmt_cli COMMAND` in `devices` processes.

    Raises Stopped when a signal to this process ended the ranks, TrainingError when a rank was killed, RankFailed when
    a rank ended with an error of its own.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # outlives every rank
    ranks: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []
    with signal_handler(not_ignored(PASSED_ON), lambda number, _: signals.append(number)):
        try:
            for rank in range(devices):
                ranks.append(start(command, variables(rank, devices, store.port)))
            ended, terminated = _wait(ranks, signals)
            Finished.reached = not any(ended.values())
        finally:
            _send(ranks, signal.SIGKILL)
    failed = [(rank, code) for rank, code in ended.items() if code and rank not in terminated]
    if not failed:
        if terminated:
            raise _stopped(signals[-1])
        return
    # a rank that another process killed comes first, even if its end was noticed later: the others failed by it
    rank, code = min(failed, key=lambda pair: pair[1] >= 0 or -pair[1] in signals)
    number = -code if code < 0 else code - 128
    if number in signals:
        raise _stopped(number)
    if code > 0:
        raise RankFailed(rank, devices, code)
    killed = (
        f"rank {rank} of {devices} was killed by {signal.Signals(-code).name}, and so the others were ended. {RESUME}"
    )
    raise of_machine(TrainingError(killed))


def variables(rank: int, devices: int, port: int) -> dict[str, str]:
    """Return torchrun's environment variables for one of `devices` ranks here; `port`: the launcher's store."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        LAUNCHER_STORE: str(port),
        LAUNCHER: str(os.getpid()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a rank in its own session: Ctrl-C in a terminal reaches only the launcher, which passes it on once."""
    return subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", *command], env={**os.environ, **environment}, start_new_session=True
    )


def _wait(ranks: Sequence[subprocess.Popen[bytes]], signals: Sequence[int]) -> tuple[dict[int, int], set[int]]:
    """Pass `signals` on to the ranks until every rank has ended. A handler appends to them.

    When a rank has failed, or Ctrl-C was pressed twice, terminate the ranks that still run.

    Return the exit codes by rank, in the order in which the ranks' ends were noticed, and the ranks that this process
    terminated because they were still running.
    """
    ended, terminated = dict[int, int](), set[int]()
    failed_at, passed_on = 0.0, 0
    while len(ended) < len(ranks):
        time.sleep(0.05)
        for number in signals[passed_on:]:
            passed_on += 1
            _send(ranks, number)
        codes = {rank: process.poll() for rank, process in enumerate(ranks) if rank not in ended}
        ended.update((rank, code) for rank, code in codes.items() if code is not None)
        if not failed_at and (any(ended.values()) or signals.count(signal.SIGINT) > 1):
            failed_at = time.monotonic()
        waited = time.monotonic() - failed_at if failed_at else 0.0
        if waited > TERMINATE and not terminated:
            terminated = set(range(len(ranks))) - ended.keys()
            _send(ranks, signal.SIGTERM)
        if waited > KILL:
            _send(ranks, signal.SIGKILL)
    return ended, terminated


def _send(ranks: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    """Send a signal to the ranks that are running."""
    for process in ranks:
        process.send_signal(number)


def _stopped(number: int) -> Stopped:
    """Return the error of a training that a signal ended. The ranks have already reported what they saved."""
    return Stopped(
        number, f"training was stopped by {signal.Signals(number).name}; the same command resumes it.", reported=True
    )
