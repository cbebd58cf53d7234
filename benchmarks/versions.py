"""This checkout against another one of the same project: training steps, decoding and start, alternated in one run.

    python benchmarks/versions.py --other CHECKOUT --model MODEL --text FILE [--rounds 15] [--jobs train-small,start]

Both checkouts run through the command line alone, so any two versions can be compared. Processes that take long to start
are started once per checkout and used in turn: `nmt translate` gets the same lines in each round; `nmt train` is stopped
(SIGSTOP) while the other one computes. A round times checkout A and then B; the table shows the median of each, and
the ratio B / A with the interval that holds the middle half of the rounds. Ratios above 1: this checkout is slower.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
SMALL = (
    "model.encoder_layers=3",
    "model.decoder_layers=3",
    "model.d_model=256",
    "model.d_ff=1024",
    "model.num_heads=4",
    "train.batch_tokens=2048",
    "train.micro_batch_tokens=2048",
)
BASE = (
    "model.encoder_layers=6",
    "model.decoder_layers=6",
    "model.d_model=512",
    "model.d_ff=2048",
    "model.num_heads=8",
    "train.batch_tokens=2048",
    "train.micro_batch_tokens=2048",
)
STEPS = {"train-small": 12, "train-base": 1}
"""Updates per round."""


@dataclass(frozen=True)
class Checkout:
    """A working tree of the project."""

    path: Path

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of `nmt` from this tree."""
        return [sys.executable, "-P", "-m", "nmt_cli", *arguments]  # -P: not the tree of the working folder

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which Python imports this tree."""
        return {**os.environ, "PYTHONPATH": str(self.path)}

    def run(self, *arguments: str, text: bytes = b"") -> bytes:
        """Run `nmt` to its end and return its output. Raises CalledProcessError."""
        return subprocess.run(
            self.command(*arguments), env=self.environment, input=text, capture_output=True, check=True
        ).stdout


Round = Callable[[], float]
"""Does one round of work and returns its seconds."""


@contextmanager
def decoding(checkout: Checkout, model: Path, lines: list[bytes], precision: str) -> Iterator[Round]:
    """Yield a round that translates `lines` with a process that stays."""
    process = subprocess.Popen(
        checkout.command("translate", "--model", str(model), "--precision", precision),
        env=checkout.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def translate() -> float:
        start = time.perf_counter()
        process.stdin.write(b"".join(lines))  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        for _ in lines:
            if not process.stdout.readline():  # type: ignore[union-attr]
                raise SystemExit(f"nmt translate of {checkout.path} ended early")
        return time.perf_counter() - start

    try:
        yield translate
    finally:
        process.kill()
        process.communicate()


@contextmanager
def training(checkout: Checkout, data: Path, run: Path, changes: tuple[str, ...], steps: int) -> Iterator[Round]:
    """Yield a round of `steps` updates of a training that is stopped between rounds."""
    changes = (
        *changes,
        "train.updates=100000",
        "train.log_every=1",
        "train.valid_every=100000",
        "train.checkpoint_every=100000",
        "train.checkpoint_minutes=0",
    )
    options = [word for change in changes for word in ("--set", change)]
    process = subprocess.Popen(
        checkout.command("train", "demo", "--data", str(data), "--run", str(run), "--precision", "fp32", *options),
        env=checkout.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    records = run / "metrics.jsonl"

    def updates() -> int:
        return records.read_bytes().count(b"\n") if records.exists() else 0

    def wait(count: int) -> None:
        while updates() < count:
            if process.poll() is not None:
                raise SystemExit(f"nmt train of {checkout.path} ended with status {process.returncode}")
            time.sleep(0.002)

    def train() -> float:
        os.kill(process.pid, signal.SIGCONT)
        wait(updates() + 1)  # the update that was stopped
        before, start = updates(), time.perf_counter()
        wait(before + steps)
        seconds = time.perf_counter() - start
        os.kill(process.pid, signal.SIGSTOP)
        return seconds / steps

    try:
        wait(2)
        os.kill(process.pid, signal.SIGSTOP)
        yield train
    finally:
        process.kill()
        process.communicate()


@contextmanager
def starting(checkout: Checkout, model: Path, line: bytes) -> Iterator[Round]:
    """Yield a round that starts `nmt translate` for one line."""

    def start() -> float:
        begin = time.perf_counter()
        checkout.run("translate", "--model", str(model), text=line)
        return time.perf_counter() - begin

    yield start


@contextmanager
def job(
    name: str, checkout: Checkout, model: Path, base: Path, data: Path, folder: Path, lines: list[bytes]
) -> Iterator[Round]:
    """Yield the round of the job `name` for a checkout."""
    kind, _, rest = name.partition("-")
    if kind == "train":
        with training(
            checkout, data, folder / f"{checkout.path.name}-{name}", SMALL if rest == "small" else BASE, STEPS[name]
        ) as work:
            yield work
    elif kind == "decode":
        size, _, precision = rest.partition("-")
        with decoding(
            checkout, model if size == "small" else base, lines if size == "small" else lines[:24], precision or "fp32"
        ) as work:
            yield work
    else:
        with starting(checkout, model, lines[0]) as work:
            yield work


def untrained_base(checkout: Checkout, data: Path, folder: Path) -> Path:
    """Return a model folder of base size after one update."""
    options = [
        word for change in (*BASE, "train.updates=1", "train.valid_bleu_sentences=1") for word in ("--set", change)
    ]
    checkout.run("train", "demo", "--data", str(data), "--run", str(folder), *options)
    return folder


def compare(names: list[str], first: Checkout, second: Checkout, model: Path, lines: list[bytes], rounds: int) -> None:
    """Print a row per job: seconds of both, and the ratio."""
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        folder = Path(name)
        data = folder / "data"
        first.run("preprocess", "demo", "--out", str(data))
        base = (
            untrained_base(first, data, folder / "base")
            if any(job_name.startswith("decode-base") for job_name in names)
            else folder
        )
        print(f"{'job':<20} {'A, s':>9} {'B, s':>9} {'B / A':>7}  middle half")
        for job_name in names:
            with (
                job(job_name, first, model, base, data, folder / "a", lines) as a,
                job(job_name, second, model, base, data, folder / "b", lines) as b,
            ):
                a(), b()  # warm-up
                pairs = [(a(), b()) for _ in range(rounds)]
            ratios = [after / before for before, after in pairs]
            low, _, high = statistics.quantiles(ratios, n=4)
            medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
            print(
                f"{job_name:<20} {medians[0]:>9.3f} {medians[1]:>9.3f} {statistics.median(ratios):>7.3f}  {low:.3f} to {high:.3f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout, A; this one is B")
    parser.add_argument("--model", type=Path, required=True, help="a small trained model folder")
    parser.add_argument("--text", type=Path, required=True, help="lines to translate")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", default="train-small,train-base,decode-small-fp32,decode-base-fp32,start")
    options = parser.parse_args()
    lines = options.text.read_bytes().splitlines(keepends=True)[: options.lines]
    first, second = Checkout(options.other.resolve()), Checkout(HERE)
    compare(options.jobs.split(","), first, second, options.model, lines, options.rounds)


if __name__ == "__main__":
    main()
