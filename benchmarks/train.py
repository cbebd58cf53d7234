"""Target tokens a second of a training step, beside torch's own nn.Transformer on the same batches, alternated.

    python benchmarks/train.py --data-dir MULTI30K            base: 6 + 6 layers, d_model 512, 8,000 pieces, 2,048-token updates
    python benchmarks/train.py --data-dir MULTI30K --small    4 + 4 layers, d_model 128, d_ff 256, 10,000 pieces, 4,096-token updates

    … --peers FOLDER --rounds 5       beside eole and JoeyNMT instead, whole commands in environments under FOLDER (peers.py)

Without --data-dir the embedded corpus is used. The plain sides are nn.Transformer, F.cross_entropy with label
smoothing and torch.optim.Adam, in fp32 and under bf16 autocast: what a user would write down first. With --peers every
side is its own training command, ours too: each round starts each of them afresh, for 24 updates, all with the same
number of threads.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import harmonic_mean

import torch
from common import alternate, medians, ratios, settings, setup, shards, table
from peers import peers
from plain import steps
from sides import Nmt, Side, Task

from nmt_cli.hardware import keep_freed_memory

UPDATES = 24
"""Of a command in one round."""


def rate(side: Side, threads: int) -> float:
    """Target tokens a second of one run after its warm-up; intervals have like numbers of tokens."""
    return harmonic_mean(side.train(UPDATES, threads))


def beside(environments: Path, task: Task, rounds: int) -> None:
    """Our command and those of the peers, alternated."""
    mine = [Nmt("bf16"), Nmt("fp32")]
    sides: dict[str, Side] = {side.name: side for side in [*mine, *peers(environments)]}
    print("".join(f"  {name}: {side.version}\n" for name, side in sides.items()), end="", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as folder:
        for number, side in enumerate(sides.values()):
            side.prepare(Path(folder) / str(number), task)
        threads = torch.get_num_threads()
        rates = medians({name: partial(rate, side, threads) for name, side in sides.items()}, rounds)
    ratios(rates, [side.name for side in mine], "target tok/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="FOLDER",
        help="beside other toolkits; FOLDER holds their environments, or gets them",
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    keep_freed_memory()
    changes = settings(options.data_dir, options.small)
    recipe, folder = shards(options.data_dir, changes)
    model, what = recipe.model, "training" if options.peers else "training step"
    print(
        f"{what}: {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, {recipe.data.vocab_size:,} pieces, {recipe.train.batch_tokens:,}-token updates; median of {options.rounds}"
    )
    if options.peers:
        beside(options.peers.resolve(), Task(recipe, changes, folder), options.rounds)
    else:
        table(alternate(steps(recipe, folder, options.rounds + 2), options.rounds, 2), "target tok/s")


if __name__ == "__main__":
    main()
