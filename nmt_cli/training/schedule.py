"""The learning rate: linear warmup, then a schedule of the registry's SCHEDULES; by default that of section 5.3.

The learning rate may also fall to zero at the end (`decay`). The last steps then average out the noise of the
gradients, as the averaging of checkpoints does (Hägele et al. 2024, arXiv 2405.18392).

A schedule returns the shape of the learning rate at `step`, counted from 1; its highest value is warmup^-0.5.
"""

from __future__ import annotations

from ..recipe import TrainSection
from ..registry import SCHEDULES, load


def inverse_sqrt(step: int, train: TrainSection) -> float:
    """Return min(step^-0.5, step * warmup^-1.5): after the warmup the learning rate falls (equation 3)."""
    return float(min(step**-0.5, step * train.warmup**-1.5))


def constant(step: int, train: TrainSection) -> float:
    """Return min(warmup^-0.5, step * warmup^-1.5): after the warmup the learning rate stays at its highest value."""
    return float(min(train.warmup**-0.5, step * train.warmup**-1.5))


def learning_rate(step: int, d_model: int, train: TrainSection) -> float:
    """Return lr_factor * d_model^-0.5 * the schedule's value, times `decay`. `step` counts from 1."""
    shape: float = load(SCHEDULES, train.schedule, "train.schedule")(step, train)
    return float(train.lr_factor * d_model**-0.5 * shape) * decay(step, train.updates, train.decay_updates)


def decay(step: int, last: int, steps: int) -> float:
    """Return the factor of the learning rate at `step`.

    It falls from 1 to nearly 0 in the `steps` steps that end with step `last`; 1 if `steps` is 0.
    """
    return min(1.0, (last + 1 - step) / steps) if steps else 1.0


def concerns(train: TrainSection) -> list[str]:
    """Return remarks about a learning rate that does not rise to its highest value, or falls before it has, and about
    frozen parameters that have random values.
    """
    remarks, why, constant = [], "", train.updates - train.decay_updates
    if train.warmup >= train.updates:
        why = f"is not smaller than train.updates = {train.updates:,}: the learning rate only rises"
    elif train.warmup > constant:
        why = (
            f"is larger than the {max(0, constant):,} updates before train.decay_updates: the learning rate "
            "falls before it has risen"
        )
    if why:
        remarks.append(
            f"train.warmup = {train.warmup:,} {why}. Set it to a sixth of the updates or less: "
            f"{max(1, train.updates // 6):,}"
        )
    if train.freeze and not train.init:
        remarks.append("train.freeze without train.init: the frozen parameters keep their random values")
    return remarks
