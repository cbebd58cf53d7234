"""The speed of a training on this machine, from a few timed micro-batches and steps of Adam.

    recipe, lengths of a text ──▶ random pairs of these lengths ──▶ updates, split into micro-batches as in training
           ──▶ some of them forward and backward, and steps of Adam ──▶ `times.Speed`

The first update is slower: it counts as the start of training. The next ones, at least RUNS and for MEASURED seconds,
give the range, without the fastest and the slowest tenth. None comes twice, since training has new shapes in almost
every update, and a new shape takes longer. Times are scaled to the target tokens of the whole update. For several
devices, they are divided by their number; the exchange of gradients is not counted.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from ..data.batches import EpochPlan, Indices, collate, micro_batches
from ..device.hardware import Hardware
from ..device.torch_device import synchronize
from ..model.transformer import Transformer
from ..recipe import Recipe
from .estimate import estimate_micro_batch
from .loader import MicroBatch
from .process_group import ProcessGroup
from .times import Speed
from .update import Updater

SAMPLES, RUNS, MEASURED = 3, 2, 3.0
"""The number of measured micro-batches of an update, with short, medium and long sentences; the smallest number of
measured updates, and for how many seconds they are measured."""


def speed_of(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, plan: EpochPlan) -> Speed:
    """Return the speed of a training of `recipe` on a device like this one. `plan` has the lengths of the text.

    Raises TrainingError when memory runs out.
    """
    try:
        torch.manual_seed(recipe.train.seed)
        updater = Updater(
            Transformer(recipe.model, *vocabularies).to(hardware.device).train(), recipe, hardware, ProcessGroup()
        )
        return measure(updater, vocabularies, plan, estimate_micro_batch(recipe, vocabularies, hardware))
    finally:
        gc.collect()  # weights and their hooks form reference cycles, and the next recipe needs their memory


def measure(updater: Updater, vocabularies: tuple[int, int], plan: EpochPlan, tokens: int, devices: int = 1) -> Speed:
    """Return the speed on `devices` devices like that of `updater`, whose weights change.

    `tokens` is the size of micro-batches, per side. Raises TrainingError when memory runs out.
    """
    train, hardware = updater.recipe.train, updater.hardware
    random, rounds, end = np.random.default_rng(train.seed), list[float](), time.perf_counter() + MEASURED
    for pairs in (pairs for epoch in itertools.count() for pairs in plan.updates(epoch)):
        parts = micro_batches(plan, pairs, max(1, tokens // train.passes), max_padding=updater.max_padding)[0]
        # evenly spread from short to long sentences
        samples = [parts[i] for i in sorted({round(i * (len(parts) - 1) / (SAMPLES - 1)) for i in range(SAMPLES)})]
        batches = [_random_micro_batch(plan, sample, vocabularies, train.passes, random) for sample in samples]
        measured_share = sum(plan.target_tokens(sample) for sample in samples) / plan.target_tokens(pairs)
        seconds = sum(_seconds(partial(updater.try_out, batch), hardware) for batch in batches)
        rounds.append(seconds / measured_share / devices + _seconds(partial(updater.step, 1), hardware))
        if len(rounds) > RUNS and time.perf_counter() >= end:
            break
    fastest, slowest = map(float, np.quantile(rounds[1:], (0.1, 0.9)))
    return Speed(fastest, slowest, max(0.0, rounds[0] - slowest))


def _random_micro_batch(
    plan: EpochPlan, pairs: Indices, vocabularies: tuple[int, int], passes: int, random: np.random.Generator
) -> MicroBatch:
    """Return a micro-batch of random ids with the lengths of `pairs`."""
    source_lengths, target_lengths = (lengths.tolist() for lengths in plan.lengths(pairs))
    ids = [
        (random.integers(4, vocabularies[0], source - 1), random.integers(4, vocabularies[1], target - 1))
        for source, target in zip(source_lengths, target_lengths, strict=True)
    ]
    return MicroBatch.of(collate(ids), passes)


def _seconds(work: Callable[[], object], hardware: Hardware) -> float:
    """Return the seconds of `work`, until the device has finished it."""
    synchronize(hardware.device)
    start = time.perf_counter()
    work()
    synchronize(hardware.device)
    return time.perf_counter() - start
