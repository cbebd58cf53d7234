"""Two machines train together, one is killed and joins again: the run ends as if nothing had happened, to the bit.

    python benchmarks/machines.py [--processes 2] [--kills 3]

The machines are network namespaces of this one (Linux, as root), joined by a pair of virtual network cards. On each of
them torchrun starts so many processes; they find each other by its c10d rendezvous. The text, the model and the comparison are
those of kills.py. One run is left alone. In the other all processes of the second machine, torchrun too, get SIGKILL while
it trains; after `PAUSE` seconds torchrun is started there again. The first machine's torchrun is never touched: it notices,
restarts its own processes and waits for the other machine. Exit 1 if the runs differ in anything.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kills import differences, prepare, run_errors

ADDRESSES = ("10.213.0.1", "10.213.0.2")
PORT = 29500
PAUSE = 2.0
"""Seconds that a killed machine is away."""
NOTICED = "no longer hears from the others"


class Machine:
    """A network namespace, and what runs in it."""

    def __init__(self, number: int, processes: int) -> None:
        self.name, self.card = f"nmt-{os.getpid()}-{number}", f"nmt{os.getpid() % 10_000}n{number}"
        self.address, self.processes = ADDRESSES[number], processes
        self.torchrun: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, run: str, restarts: int) -> None:
        """Start torchrun; what it and the ranks say is appended to NAME.log."""
        command = [
            "ip",
            "netns",
            "exec",
            self.name,
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "2",
            "--nproc-per-node",
            str(self.processes),
            "--max-restarts",
            str(restarts),
            "--local-addr",
            self.address,
            "--rdzv-id",
            run,
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"{ADDRESSES[0]}:{PORT}",
            "--rdzv-conf",
            f"is_host={int(self.address == ADDRESSES[0])}",
            "-m",
            "--",
            "nmt_cli",
            "train",
            "numbers.toml",
            "--run",
            f"runs/{run}",
            "--threads",
            "1",
        ]
        environment = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": self.card,
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        with (folder / f"{run}-{self.address}.log").open("ab") as log:
            self.torchrun = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill everything that runs in it."""
        for number in ip("netns", "pids", self.name).split():
            os.kill(int(number), signal.SIGKILL)
        if self.torchrun:
            self.torchrun.wait()

    def wait(self) -> int:
        """Wait until torchrun has ended, and return its exit status."""
        assert self.torchrun is not None
        return self.torchrun.wait(timeout=600)


def ip(*words: str) -> str:
    """Run the command `ip`."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def machines(processes: int) -> Iterator[list[Machine]]:
    """Two machines with a cable between them. They are removed at the end."""
    pair = [Machine(number, processes) for number in range(2)]
    try:
        ip("link", "add", pair[0].card, "type", "veth", "peer", "name", pair[1].card)
        for machine in pair:
            ip("netns", "add", machine.name)
            ip("link", "set", machine.card, "netns", machine.name)
            ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", machine.card)
            for card in (machine.card, "lo"):
                ip("-n", machine.name, "link", "set", card, "up")
        yield pair
    finally:
        for machine in pair:
            machine.kill()
            ip("netns", "del", machine.name)


def updates(run: Path) -> int:
    """The number of updates that the run's records have."""
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b'"type": "train"') * 10 if metrics.exists() else 0


def wait_for(what: str, log: Path, start: int) -> float:
    """Wait until `what` stands in the log behind its first `start` bytes, and return the time."""
    deadline = time.monotonic() + 120
    while what.encode() not in log.read_bytes()[start:]:
        if time.monotonic() > deadline:
            raise SystemExit(f"{log} does not say {what!r}:\n{_tails(log.parent)}")
        time.sleep(0.01)
    return time.monotonic()


def _tails(folder: Path) -> str:
    return "\n".join(
        f"--- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')[-4000:]}"
        for log in sorted(folder.glob("*.log"))
    )


def trained(
    pair: Sequence[Machine], folder: Path, run: str, kills: int, draw: random.Random
) -> tuple[list[float], list[float]]:
    """Train to the end with so many kills. Return the seconds until the first machine noticed, and from the new start to training."""
    noticed, resumed = list[float](), list[float]()
    first, second = pair
    for machine in pair:
        machine.start(folder, run, kills)
    log = folder / f"{run}-{first.address}.log"
    for number in range(kills):
        while updates(folder / "runs" / run) < (number + draw.uniform(0.2, 0.8)) * 1200 / kills:
            time.sleep(0.01)
        size, killed = log.stat().st_size, time.monotonic()
        second.kill()
        noticed.append(wait_for(NOTICED, log, size) - killed)
        time.sleep(PAUSE)
        size, again = log.stat().st_size, time.monotonic()
        second.start(folder, run, kills)
        resumed.append(wait_for("resuming after update", log, size) - again)
        print(
            f"kill {number + 1}: noticed after {noticed[-1]:.1f} s, back in training {resumed[-1]:.1f} s after the new start",
            file=sys.stderr,
            flush=True,
        )
    codes = [machine.wait() for machine in pair]
    if codes != [0, 0]:
        raise SystemExit(f"torchrun ended with {codes}:\n{_tails(folder)}")
    return noticed, resumed


def main() -> None:
    """Train twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="of each machine")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nmt-machines-") as name, machines(options.processes) as pair:
        folder = Path(name)
        prepare(folder)
        trained(pair, folder, "untouched", 0, random.Random())
        noticed, resumed = trained(pair, folder, "killed", options.kills, random.Random(options.seed))
        errors = [*run_errors(folder / "runs/killed"), *differences(folder / "runs/killed", folder / "runs/untouched")]
    print(
        f"2 machines of {options.processes} processes, {options.kills} kills: noticed after {statistics.median(noticed):.1f} s (median), trained again {statistics.median(resumed):.1f} s after the new start"
    )
    print(
        "checkpoints, moments, states, links and records: "
        + ("NOT equal: " + "; ".join(errors) if errors else "equal to the uninterrupted run's, to the bit")
    )
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
