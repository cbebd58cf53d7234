"""How long an update takes here: a few micro-batches and a step of Adam, timed. `nmt info --probe` shows it.

    recipe ──▶ made-up pairs of the lengths of news text ──▶ an update, cut as training cuts it
           ──▶ some of its micro-batches, forward and backward; one step ──▶ seconds an update

Each micro-batch runs once unmeasured, because the first of a shape compiles kernels. The time is scaled by tokens to the
whole update; over several devices it is divided, and the exchange of gradients between them is left out.
"""

from __future__ import annotations

import gc
import time

import numpy as np
import torch

from ..data.batches import EpochPlan, collate, micro_batches
from ..hardware import Hardware
from ..model.transformer import Transformer
from ..recipe import Recipe
from .estimate import micro_batch
from .loader import MicroBatch
from .process_group import Ranks
from .update import Updater

SAMPLES = 3
"""Micro-batches that are measured: short, middling and long sentences."""
SENTENCE, SPREAD = 3.25, 0.6
"""Of the logarithm of a sentence's tokens, as in news text: 31 tokens on average."""


def seconds_an_update(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, devices: int = 1) -> float:
    """Seconds that an update of `recipe` takes on devices like this one. Raises TrainingError when memory does not suffice."""
    try:
        return _seconds(recipe, vocabularies, hardware, devices)
    finally:
        gc.collect()  # weights and their hooks hold one another: without it several recipes in turn would fill the memory


def _seconds(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, devices: int) -> float:
    torch.manual_seed(recipe.train.seed)
    model = Transformer(recipe.model, *vocabularies).to(hardware.device).train()
    updater = Updater(model, recipe, hardware, Ranks())
    plan = _plan(recipe)
    pairs = next(plan.updates(0))
    parameters = updater.weights.master.numel()
    tokens = recipe.train.micro_batch_tokens or micro_batch(recipe.model, parameters, recipe.train.batch_tokens, vocabularies[1], hardware, devices)
    parts = micro_batches(plan, pairs, tokens)[0]
    chosen = [parts[i] for i in sorted({round(place * (len(parts) - 1) / max(1, SAMPLES - 1)) for place in range(SAMPLES)})]
    random = np.random.default_rng(recipe.train.seed)
    measured = 0.0
    for part in chosen:
        sides = zip(*(side.tolist() for side in plan.lengths(part)), strict=True)
        rows = [tuple(random.integers(4, size, length - 1) for size, length in zip(vocabularies, pair, strict=True)) for pair in sides]
        micro = MicroBatch.of(collate([(source, target) for source, target in rows]))
        _timed(updater, micro, hardware)
        measured += _timed(updater, micro, hardware)
    _step(updater, hardware)
    share = sum(plan.target_tokens(part) for part in chosen) / plan.target_tokens(pairs)
    return measured / share / devices + _step(updater, hardware)


def _plan(recipe: Recipe) -> EpochPlan:
    """Pairs enough for some updates; none longer than the recipe takes."""
    random = np.random.default_rng(recipe.train.seed)
    pairs = max(64, recipe.train.batch_tokens // 4)
    source = random.lognormal(SENTENCE, SPREAD, pairs)
    target = source * np.exp(random.normal(0.0, 0.15, pairs))
    lengths = [np.clip(side, 1, recipe.data.max_length).astype(np.int32) for side in (source, target)]
    return EpochPlan(lengths[0], lengths[1], recipe.train.batch_tokens, recipe.train.seed)


def _timed(updater: Updater, micro: MicroBatch, hardware: Hardware) -> float:
    began = _now(hardware)
    with updater.weights.collecting(first=True, last=True):
        updater.pass_through(micro, micro.rows.target.tokens)
    return _now(hardware) - began


def _step(updater: Updater, hardware: Hardware) -> float:
    began = _now(hardware)
    updater.step(1)
    return _now(hardware) - began


def _now(hardware: Hardware) -> float:
    """The time at which all that was asked of the device is done."""
    if hardware.device != "cpu":
        torch.cuda.synchronize(hardware.device)
    return time.perf_counter()
