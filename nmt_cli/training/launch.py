"""`--devices N`: the same command in N processes on this machine, as torchrun starts them, and one exit status for all.

    launch(N, argv)   start the ranks, pass on SIGINT and SIGTERM, wait for all of them, exit as the first that failed

Each process gets torchrun's environment variables, so that `joined` need not know who started it. torchrun itself is
for several machines: it ends the ranks 30 seconds after a signal, and its exit status does not say how they ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import torch.distributed as dist

from ..errors import Stopped, TrainingError

POLL = 0.05
"""Seconds between two looks at the ranks."""
TERMINATE, KILL = 5.0, 30.0
"""Seconds after which the other ranks get SIGTERM, and SIGKILL, when one has failed: those that do not end by themselves."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def launch(devices: int, command: Sequence[str]) -> NoReturn:
    """Run `python -m nmt_cli COMMAND` in `devices` processes, and exit as they do.

    Raises Stopped when a signal to this process ended them, TrainingError when one of them was killed.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # outlives every rank
    job = _Job(devices)
    with _signals_into(job.signals):
        try:
            for rank in range(devices):
                job.processes.append(start(command, variables(rank, devices, store.port)))
            job.wait()
        finally:
            job.signal(signal.SIGKILL)
    sys.exit(job.exit_code())


def variables(rank: int, devices: int, port: int) -> dict[str, str]:
    """torchrun's environment variables for one of `devices` ranks on this machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A rank. It has a session of its own: Ctrl-C in a terminal reaches this process alone, which passes it on once."""
    return subprocess.Popen([sys.executable, "-m", "nmt_cli", *command], env={**os.environ, **environment}, start_new_session=True)


class _Job:
    """The ranks' processes, and how each of them ended."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.processes: list[subprocess.Popen[bytes]] = []
        self.signals: list[int] = []  # that this process got; handlers append to it
        self.passed_on = 0
        self.ended: dict[int, int] = {}
        """Exit codes by rank, in the order of their ends; those that a signal killed first, where two were seen at once."""
        self.ours: set[int] = set()
        """Ranks that were still running when this process ended them."""

    def wait(self) -> None:
        """Wait until every rank has ended; end those that do not when one has failed, or when Ctrl-C was pressed twice."""
        failed_at = 0.0
        while len(self.ended) < len(self.processes):
            time.sleep(POLL)
            for number in self.signals[self.passed_on :]:
                self.passed_on += 1
                self.signal(number)
            codes = {rank: process.poll() for rank, process in enumerate(self.processes) if rank not in self.ended}
            self.ended.update(sorted(((rank, code) for rank, code in codes.items() if code is not None), key=lambda pair: pair[1] >= 0))
            if not failed_at and (any(self.ended.values()) or self.signals.count(signal.SIGINT) > 1):
                failed_at = time.monotonic()
            late = time.monotonic() - failed_at if failed_at else 0.0
            if late > TERMINATE and not self.ours:
                self.ours = {rank for rank in range(self.devices) if rank not in self.ended}
                self.signal(signal.SIGTERM)
            if late > KILL:
                self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the ranks that run."""
        for process in self.processes:
            process.send_signal(number)

    def exit_code(self) -> int:
        """The exit code of the first rank that failed by itself; 0 when none did. Raises Stopped and TrainingError as `launch` does."""
        failed = [(rank, code) for rank, code in self.ended.items() if code and rank not in self.ours]
        if not failed:
            if self.ours:
                raise Stopped(self.signals[-1], "")
            return 0
        rank, code = failed[0]
        if code > 0:
            return code  # the rank has reported why
        if -code in self.signals:
            raise Stopped(-code, "")
        raise TrainingError(
            f"rank {rank} of {self.devices} was killed by {signal.Signals(-code).name}, and so the others were ended. Run the same command to go on after the last checkpoint."
        )


@contextmanager
def _signals_into(received: list[int]) -> Iterator[None]:
    """Append the signals that this process gets to `received`; one that it was started to ignore (nohup) stays ignored."""
    before = {number: signal.getsignal(number) for number in PASSED_ON}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, lambda got, _: received.append(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
