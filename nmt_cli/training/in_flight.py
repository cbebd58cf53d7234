"""Updates in flight: the GPU still computes them while the training loop starts the next updates.

    StepResult (on the device) ──▶ InFlight ──drain──▶ every update's metrics over all ranks

Reading a result waits for the device. Therefore the loop reads the results of several updates at once, in `drain`.
There, the ranks exchange the results in one collective. The same collective makes them agree on two values: a signal,
and whether a save is due.

`error_message` says what helps to find the cause of a gradient that is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .parameters import Weights
from .process_group import ProcessGroup
from .update import StepResult


@dataclass(frozen=True)
class StepMetrics:
    """One update's metrics over all ranks."""

    update: int
    """The update's number, counted from 1."""
    epoch: int
    """The epoch, counted from 0."""
    loss: float
    """The label-smoothed loss, summed over the update's target tokens, in nats."""
    nll: float
    """The NLL, summed over the update's target tokens, in nats."""
    grad_norm: float
    skipped: bool
    """Whether the update took no step because its gradient was not finite."""
    result: StepResult
    """This rank's result of the update."""


InFlight = tuple[int, int, StepResult]
"""The update, the epoch, and the result of an update that has been started, and was not read from the device yet."""


def drain(
    results: Sequence[InFlight], group: ProcessGroup, signal: int, save_is_due: bool
) -> tuple[list[StepMetrics], int, bool]:
    """Wait for the updates in flight. Return their metrics, and the signal and the decision to save of all ranks.

    `signal` is the number of a signal that this rank received, or 0; of several ranks' signals, the largest is
    returned. `save_is_due` counts only on rank 0. Every rank must call this function after the same updates. All that
    is returned is equal on all ranks, except each step's `result`.
    """
    local_row = [float(signal), float(save_is_due)]
    if results:  # one copy from the device for all results
        local_row += torch.cat(
            [torch.stack((*result.sums, result.grad_norm, result.skipped)) for _, _, result in results]
        ).tolist()
    rows = group.all_gather(local_row)
    steps = []
    for index, (update, epoch, result) in enumerate(results):
        by_rank = [row[2 + 4 * index : 6 + 4 * index] for row in rows]
        loss, nll = sum(values[0] for values in by_rank), sum(values[1] for values in by_rank)
        grad_norm, skipped = by_rank[0][2:]  # equal on all ranks, because the gradient is summed over them
        steps.append(StepMetrics(update, epoch, loss, nll, grad_norm, bool(skipped), result))
    return steps, int(max(row[0] for row in rows)), bool(rows[0][1])


def error_message(step: StepMetrics, checkpoint: Path, saved_updates: int, weights: Weights | None) -> str:
    """Return the error message for a gradient that is not finite.

    `checkpoint` is the state after `saved_updates` updates. `weights` hold the update's gradient; None: no longer.
    """
    micro_batches = "; ".join(str(micro_batch) for micro_batch in step.result.batch.micro_batches)
    gradients = weights.by_name(weights.main_grads) if weights else {}
    broken = [name for name, gradient in gradients.items() if not torch.isfinite(gradient).all()]
    of = f" of {', '.join(broken[:3])}{' and others' * (len(broken) > 3)}" if broken else ""
    state = "before it" if saved_updates == step.update - 1 else f"after {saved_updates:,} updates"
    return (
        f"the gradient{of} is not finite at update {step.update:,} (epoch {step.epoch + 1}, micro-batches of "
        f"{micro_batches}); no step was taken. The state {state} is saved in {str(checkpoint)!r}. "
        'Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = "fp32"; '
        "or let it pass with train.skip_nonfinite."
    )
