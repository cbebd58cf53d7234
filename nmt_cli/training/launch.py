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

from ..errors import RankFailed, Stopped, TrainingError
from .process_group import RESUME
from .rendezvous import LAUNCHER, LAUNCHER_STORE
from .stopping import Finished, not_ignored, signal_handler

POLL = 0.05
"""Seconds between two checks of the ranks."""
TERMINATE, KILL = 5.0, 30.0
"""Seconds after a rank has failed until the other ranks get SIGTERM, and until they get SIGKILL."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def launch(devices: int, command: Sequence[str]) -> None:
    """Run `python -m nmt_cli COMMAND` in `devices` processes.

    Raises Stopped when a signal to this process ended the ranks, TrainingError when a rank was killed, RankFailed when
    a rank ended with an error of its own.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # outlives every rank
    job = _Job(devices)
    with signal_handler(not_ignored(PASSED_ON), lambda number, _: job.signals.append(number)):
        try:
            for rank in range(devices):
                job.processes.append(start(command, variables(rank, devices, store.port)))
            job.wait()
            Finished.reached = not any(job.ended.values())
        finally:
            job.signal(signal.SIGKILL)
    job.check()


def variables(rank: int, devices: int, port: int) -> dict[str, str]:
    """Return torchrun's environment variables for one of `devices` ranks on this machine, and the port of the
    launcher's store.
    """
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


class _Job:
    """The ranks' processes, and how each of them ended."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.processes: list[subprocess.Popen[bytes]] = []
        self.signals: list[int] = []
        """Signals that this process received; the handler appends to this list."""
        self.passed_on = 0
        self.ended: dict[int, int] = {}
        """Exit codes by rank, in the order in which the ranks' ends were noticed."""
        self.terminated: set[int] = set()
        """Ranks that this process terminated because they were still running."""

    def wait(self) -> None:
        """Wait until every rank has ended.

        When a rank has failed, or Ctrl-C was pressed twice, terminate the ranks that still run.
        """
        failed_at = 0.0
        while len(self.ended) < len(self.processes):
            time.sleep(POLL)
            for number in self.signals[self.passed_on :]:
                self.passed_on += 1
                self.signal(number)
            codes = {rank: process.poll() for rank, process in enumerate(self.processes) if rank not in self.ended}
            self.ended.update((rank, code) for rank, code in codes.items() if code is not None)
            if not failed_at and (any(self.ended.values()) or self.signals.count(signal.SIGINT) > 1):
                failed_at = time.monotonic()
            waited = time.monotonic() - failed_at if failed_at else 0.0
            if waited > TERMINATE and not self.terminated:
                self.terminated = {rank for rank in range(self.devices) if rank not in self.ended}
                self.signal(signal.SIGTERM)
            if waited > KILL:
                self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the ranks that are running."""
        for process in self.processes:
            process.send_signal(number)

    def check(self) -> None:
        """Raise the error of `launch` for the first rank that failed, if one did.

        Ranks that this process terminated do not count.

        A rank that another process killed comes first, even if its end was noticed later: the other ranks failed
        because of it.
        """
        failed = [(rank, code) for rank, code in self.ended.items() if code and rank not in self.terminated]
        failed.sort(key=lambda pair: pair[1] >= 0 or -pair[1] in self.signals)
        if not failed:
            if self.terminated:
                raise _stopped(self.signals[-1])
            return
        rank, code = failed[0]
        number = -code if code < 0 else code - 128
        if number in self.signals:
            raise _stopped(number)
        if code > 0:
            raise RankFailed(rank, self.devices, code)
        raise TrainingError(
            f"rank {rank} of {self.devices} was killed by {signal.Signals(-code).name}, and so the others were "
            f"ended. {RESUME}"
        )


def _stopped(number: int) -> Stopped:
    """Return the error of a training that a signal ended. The ranks have already reported what they saved."""
    return Stopped(
        number, f"training was stopped by {signal.Signals(number).name}; the same command resumes it.", reported=True
    )
