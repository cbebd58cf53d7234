"""How long a command takes on an idle machine and beside other work, by how long OpenMP's waiting threads spin.

    python benchmarks/busy.py train [RECIPE] [--data DIR] [--others 0 1 2] [--rounds 3] [--spins N ...]
    python benchmarks/busy.py translate --model DIR --search sample [--others 0 1 2] [--rounds 3] [--spins N ...] < lines

`--others`: programs that each compute all the time on a core. `--spins`: values of GOMP_SPINCOUNT; unless given, GNU's default and
nmt's own. Every round runs the command once for each of them, for `OMP_WAIT_POLICY=passive` and
for one thread. The table has the medians in milliseconds: of an update, after the first two; of a call for one line after another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import print_rows, setup

GNU, NMT = "300000", "1000"
"""GNU's default, and `SPINS` in `nmt_cli/__init__.py`."""
WORK = "import hashlib\nblock = bytes(10**6)\nwhile True: hashlib.sha256(block).digest()"
UPDATES, SKIPPED = 12, 2
LINES = """
import sys, time
import nmt_cli as nmt
with nmt.load(sys.argv[1]) as translator:
    lines = sys.stdin.read().split("\\n")[:40]
    translator.translate(lines[:1], search=sys.argv[2])
    for line in lines:
        start = time.perf_counter()
        translator.translate([line], search=sys.argv[2])
        print(time.perf_counter() - start)
"""


@contextmanager
def beside(others: int) -> Iterator[None]:
    """Run so many other programs while the block runs."""
    programs = [subprocess.Popen([sys.executable, "-c", WORK]) for _ in range(others)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def training(options: argparse.Namespace, environment: dict[str, str]) -> list[float]:
    """Return the seconds of each update of a short training."""
    keys: dict[str, object] = {
        "updates": UPDATES,
        "warmup": 1,
        "decay_updates": 0,
        "log_every": 1,
        "valid_every": 10**6,
        "batch_tokens": 2048,
    }
    keys |= {"valid_bleu_sentences": 0, "valid_samples": 0, "best_metric": "nll"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nmt_cli", "train", options.recipe, "--run", f"{folder}/run"]
        command += ["--data", options.data] if options.data else []
        command += [part for key, value in keys.items() for part in ("--set", f"train.{key}={value}")]
        command += ["--threads", environment["OMP_NUM_THREADS"]] if "OMP_NUM_THREADS" in environment else []
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        records = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["type"] == "train"]
    return [step["target_tokens"] / step["tokens_per_second"] for step in steps[SKIPPED:]]


def translating(options: argparse.Namespace, environment: dict[str, str]) -> list[float]:
    """Return the seconds of each line that is translated alone."""
    command = [sys.executable, "-c", LINES, options.model, options.search]
    done = subprocess.run(command, env=environment, check=True, input=options.text, text=True, stdout=subprocess.PIPE)
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "translate"))
    parser.add_argument("recipe", nargs="?", default="demo")
    parser.add_argument("--data", help="folder of shards")
    parser.add_argument("--model")
    parser.add_argument("--search", default="beam")
    parser.add_argument("--others", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spins", nargs="+", default=[GNU, NMT], metavar="N")
    options = parser.parse_args()
    settings = {f"{int(spins):,}": {"GOMP_SPINCOUNT": spins} for spins in options.spins}
    settings |= {"passive": {"OMP_WAIT_POLICY": "passive"}, "one thread": {"OMP_NUM_THREADS": "1"}}
    options.text = sys.stdin.read() if options.what == "translate" else ""
    measure = training if options.what == "train" else translating
    setup(0)
    rows = [["other programs", *settings]]
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    for others in options.others:
        seconds: dict[str, list[float]] = {name: [] for name in settings}
        with beside(others):
            for _ in range(options.rounds):
                for name, given in settings.items():
                    seconds[name] += measure(options, plain | given)
        rows.append([str(others), *(f"{1000 * statistics.median(times):.1f}" for times in seconds.values())])
    print_rows(rows, markdown=True)


if __name__ == "__main__":
    main()
