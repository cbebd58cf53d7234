"""Where the time of `nmt train`'s updates goes: data, forward, loss, backward, optimiser.

    python benchmarks/breakdown.py --data-dir MULTI30K [--small] [--precision fp32]

The same steps as the training loop takes, one after another with a clock between them; medians of an update.
Without --data-dir the embedded corpus is used.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from common import settings, setup, shards
from plain import ours

from nmt_cli.hardware import keep_freed_memory
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.update import vocabulary_loss

PARTS = ("data", "forward", "loss", "backward", "optimiser")


class Clock:
    """Adds up the seconds since the lap before, by part."""

    def __init__(self) -> None:
        self.spent, self.before = dict.fromkeys(PARTS, 0.0), time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.spent[part] += now - self.before
        self.before = now


def breakdown(trainer: Trainer, updates: int) -> tuple[list[float], float]:
    """Median seconds of each part of an update, and target tokens a second."""
    updater, weights = trainer.updater, trainer.updater.weights
    stream = rank_batches(trainer.text, 0, 0, trainer.micro_batch_tokens, ProcessGroup(), trainer.hardware)
    spent: list[list[float]] = []
    tokens: list[int] = []
    for number in range(1, updates + 1):
        clock = Clock()
        batch = next(stream)
        clock.lap("data")
        for index, micro_batch in enumerate(batch.micro_batches):
            rows = micro_batch.packed
            with updater.gradients.accumulating(first=index == 0, last=index == len(batch.micro_batches) - 1):
                hidden = weights.compute_model.forward_packed(rows.src, rows.source, rows.tgt_in, rows.target)
                clock.lap("forward")
                real = slice(rows.target.tokens)
                loss, _ = vocabulary_loss(
                    hidden[real],
                    weights.compute_model.output_weight,
                    rows.tgt_out[real],
                    trainer.recipe.train.label_smoothing,
                )
                clock.lap("loss")
                (loss / batch.target_tokens).backward()  # type: ignore[no-untyped-call]
            clock.lap("backward")
        updater.step(number)
        clock.lap("optimiser")
        spent.append(list(clock.spent.values()))
        tokens.append(batch.target_tokens)
    warm = updates // 4
    medians = [statistics.median(column) for column in zip(*spent[warm:], strict=True)]
    return medians, sum(tokens[warm:]) / sum(map(sum, spent[warm:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    keep_freed_memory()
    recipe, folder = shards(options.data_dir, settings(options.data_dir, options.small))
    trainer = ours(recipe, folder, options.precision)
    torch.manual_seed(1)
    medians, tokens_per_second = breakdown(trainer, options.updates)
    print(
        f"{recipe.train.batch_tokens:,}-token updates, {options.precision}: {tokens_per_second:,.0f} target tok/s; an update of {sum(medians) * 1e3:,.0f} ms:"
    )
    for part, seconds in zip(PARTS, medians, strict=True):
        print(f"  {part:<10} {seconds * 1e3:>8.1f} ms  {100 * seconds / sum(medians):>5.1f} %")


if __name__ == "__main__":
    main()
