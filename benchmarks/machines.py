"""Training by several processes: their speed on one machine, and two machines of which one is killed.

    python benchmarks/machines.py speed --data-dir MULTI30K [--small] [--processes 2] [--rounds 3]
    python benchmarks/machines.py kills [--processes 2] [--kills 3]           Linux, as root

speed: target tokens per second of `nmt train` in bf16 by several processes of one core each, beside one process on as many
cores and one on one core. Gradients are summed by gloo. The sides alternate, and start afresh in each round.

kills: the machines are network namespaces of this one, joined by a pair of virtual network cards. On each of them torchrun
starts so many processes, which find each other by its c10d rendezvous. One run is left alone. In the other all processes of
the second machine, torchrun too, get SIGKILL while it trains; after two seconds torchrun is started there again. The first
machine's torchrun is never touched. Exit 1 if the last checkpoints or the records differ in anything but clocks.
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
from functools import partial
from pathlib import Path

from common import medians, nmt, ratios, records, sets, settings, setup, shards
from train import Nmt, Task

# --- speed ---


class Processes(Nmt):
    """`processes` processes of `threads` threads, on so many cores."""

    def __init__(self, processes: int, threads: int) -> None:
        super().__init__("bf16")
        self.processes, self.threads = processes, threads
        self.name = f"{processes} × {threads} core{'s' * (threads > 1)}"

    def command(self, run: Path, threads: int) -> list[str]:
        cores = sorted(os.sched_getaffinity(0))[: self.processes * self.threads]
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))]
        return [*pinned, *super().command(run, threads), f"--devices={self.processes}"]


def speed(options: argparse.Namespace) -> None:
    """Print the rates of several processes, of several threads and of one."""
    setup(0)
    changes = settings(options.data_dir, options.small)
    recipe, folder = shards(options.data_dir, changes)
    sides = [Processes(options.processes, 1), Processes(1, options.processes), Processes(1, 1)]
    for side in sides:
        side.prepare(folder.parent, Task(recipe, changes, folder))
    rates = medians({side.name: partial(side.rate, side.threads) for side in sides}, options.rounds)
    ratios(rates, [sides[0].name], "target tok/s")


# --- two machines ---

ADDRESSES = ("10.213.0.1", "10.213.0.2")
PORT = 29500
PAUSE = 2.0
"""Seconds that a killed machine is away."""
UPDATES, LOG_EVERY = 600, 10
NOTICED = "cannot exchange data with the others"
CLOCKS = ("seconds", "tokens_per_second", "began")
RECIPE = [
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=2"),
    *("train.batch_tokens=512", f"train.updates={UPDATES}", "train.warmup=60", f"train.log_every={LOG_EVERY}"),
    *("train.valid_every=100", "train.checkpoint_every=15", "train.valid_bleu_sentences=0", "train.best_metric=nll"),
    *("train.decay_updates=0", "train.precision=fp32", "train.patience=0", "train.keep=5"),
]
"""Of the recipe demo."""


class Machine:
    """A network namespace, and what runs in it."""

    def __init__(self, number: int, processes: int) -> None:
        self.name, self.card = f"nmt-{os.getpid()}-{number}", f"nmt{os.getpid() % 10_000}n{number}"
        self.address, self.processes = ADDRESSES[number], processes
        self.torchrun: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, run: str, restarts: int) -> None:
        """Start torchrun; what it and the ranks say is appended to RUN-ADDRESS.log."""
        is_host = int(self.address == ADDRESSES[0])
        command = [
            *("ip", "netns", "exec", self.name, sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", "2", "--nproc-per-node", str(self.processes), "--max-restarts", str(restarts)),
            *("--local-addr", self.address, "--rdzv-id", run, "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}", "--rdzv-conf", f"is_host={is_host}"),
            *("-m", "--", "nmt_cli", "train", "demo", "--data", "shards", "--run", f"runs/{run}", "--threads", "1"),
            *sets(RECIPE),
        ]
        environment = {
            **os.environ,
            **{"GLOO_SOCKET_IFNAME": self.card, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
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
        while _updates(folder / "runs" / run) < (number + draw.uniform(0.2, 0.8)) * UPDATES / kills:
            time.sleep(0.01)
        size, killed = log.stat().st_size, time.monotonic()
        second.kill()
        noticed.append(_wait_for(NOTICED, log, size) - killed)
        time.sleep(PAUSE)
        size, again = log.stat().st_size, time.monotonic()
        second.start(folder, run, kills)
        resumed.append(_wait_for("resuming after update", log, size) - again)
        print(f"kill {number + 1}: noticed after {noticed[-1]:.1f} s", file=sys.stderr, flush=True)
    codes = [machine.wait() for machine in pair]
    if codes != [0, 0]:
        raise SystemExit(f"torchrun ended with {codes}:\n{_ends_of_logs(folder)}")
    return noticed, resumed


def _updates(run: Path) -> int:
    """Return the number of updates that the run's records have."""
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b'"type": "train"') * LOG_EVERY if metrics.exists() else 0


def _wait_for(what: str, log: Path, start: int) -> float:
    """Wait until the log has `what` behind its first `start` bytes, and return the time."""
    deadline = time.monotonic() + 120
    while what.encode() not in log.read_bytes()[start:]:
        if time.monotonic() > deadline:
            raise SystemExit(f"{log} does not say {what!r}:\n{_ends_of_logs(log.parent)}")
        time.sleep(0.01)
    return time.monotonic()


def _ends_of_logs(folder: Path) -> str:
    logs = sorted(folder.glob("*.log"))
    return "\n".join(f"--- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')[-4000:]}" for log in logs)


def contents(run: Path) -> dict[str, object]:
    """Return the weights and optimizer states of a run's checkpoints, and its records without clocks."""
    timeless = [{key: value for key, value in one.items() if key not in CLOCKS} for one in records(run)]
    files = sorted((run / "checkpoints").glob("*/*.safetensors"))
    return {"records": timeless, **{str(file.relative_to(run)): file.read_bytes() for file in files}}


def kills(options: argparse.Namespace) -> None:
    """Train twice and compare."""
    with tempfile.TemporaryDirectory(prefix="nmt-machines-") as name, machines(options.processes) as pair:
        folder = Path(name)
        nmt(folder / "log", "preprocess", "demo", "--out", folder / "shards")
        trained(pair, folder, "untouched", 0, random.Random())
        noticed, resumed = trained(pair, folder, "killed", options.kills, random.Random(options.seed))
        whole, other = contents(folder / "runs" / "killed"), contents(folder / "runs" / "untouched")
    different = sorted(name for name in {*whole, *other} if whole.get(name) != other.get(name))
    times = f"{statistics.median(noticed):.1f} s (median), trained again {statistics.median(resumed):.1f} s"
    print(
        f"2 machines of {options.processes} processes, {options.kills} kills: noticed after {times} after the new start"
    )
    print(f"{len(whole)} parts of the run:", f"NOT equal: {', '.join(different)}" if different else "equal, to the bit")
    sys.exit(bool(different))


def main() -> None:
    """Read the options and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "kills"])
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument("--processes", type=int, default=2, help="of each machine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    options = parser.parse_args()
    {"speed": speed, "kills": kills}[options.what](options)


if __name__ == "__main__":
    main()
