"""Target tokens a second of several training processes, one core each, beside one process on one core and one on all.

    python benchmarks/ranks.py --data-dir MULTI30K [--small] [--processes 2] [--rounds 3]

Every side is `nmt train` with its own options, in bf16, started afresh in each round for `UPDATES` updates of the same size; the
sides take turns. Gradients of several processes are summed by gloo.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from statistics import harmonic_mean

from common import medians, ratios, settings, setup, shards
from sides import Nmt, Task

UPDATES = 24


class Ranks(Nmt):
    """`processes` processes of `threads` threads, on so many cores."""

    def __init__(self, processes: int, threads: int) -> None:
        super().__init__("bf16")
        self.processes, self.threads = processes, threads
        self.name = f"{processes} × {threads} core{'s' * (threads > 1)}"

    def command(self, run: Path, updates: int, threads: int) -> list[str]:
        cores = sorted(os.sched_getaffinity(0))[: self.processes * self.threads]
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))]
        return [*pinned, *super().command(run, updates, threads), f"--devices={self.processes}"]


def rate(side: Ranks) -> float:
    """Target tokens a second of one run after its warm-up; intervals have like numbers of tokens."""
    return harmonic_mean(side.train(UPDATES, side.threads))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    setup(0)
    changes = settings(options.data_dir, options.small)
    recipe, folder = shards(options.data_dir, changes)
    sides = [Ranks(options.processes, 1), Ranks(1, options.processes), Ranks(1, 1)]
    for side in sides:
        side.prepare(folder.parent, Task(recipe, changes, folder))
    print(
        f"{recipe.model.encoder_layers} + {recipe.model.decoder_layers} layers, d_model {recipe.model.d_model}, {recipe.train.batch_tokens:,}-token updates; median of {options.rounds}"
    )
    ratios(medians({side.name: partial(rate, side) for side in sides}, options.rounds), [sides[0].name], "target tok/s")


if __name__ == "__main__":
    main()
