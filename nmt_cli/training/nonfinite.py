"""Evidence for the cause of a gradient that is not finite: the update's pairs, and the parameters whose gradients are
affected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..data.batches import EpochPlan
from ..errors import TrainingError, write_failed
from ..files import write_atomic
from .in_flight import StepMetrics
from .parameters import Weights


def write_evidence(
    folder: Path, record: Mapping[str, Any], step: StepMetrics, plan: EpochPlan, weights: Weights | None
) -> Path:
    """Write nonfinite-UPDATE.json in `folder`, and return its path. Raises TrainingError.

    It has the update's pairs, their lengths with end symbols, and the number of gradient values that are not finite, by
    parameter. `weights` must still hold the update's gradient; pass None if they no longer do.
    """
    path = folder / f"nonfinite-{step.update:08d}.json"
    gradients = weights.by_name(weights.main_grads) if weights else {}
    broken = {name: int((~torch.isfinite(gradient)).sum()) for name, gradient in gradients.items()}
    pairs = step.result.batch.pairs
    columns = zip(pairs.tolist(), *(lengths.tolist() for lengths in plan.lengths(pairs)), strict=True)
    content = {
        **record,
        "loss_sums": [str(value) for value in step.result.sums.tolist()],
        "not_finite": {name: count for name, count in broken.items() if count},
        "pairs": [{"pair": pair, "source_tokens": source, "target_tokens": target} for pair, source, target in columns],
    }
    try:
        write_atomic(path, (json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise write_failed(error, path, "what helps to look at a gradient that is not finite", TrainingError) from None
    return path


def error_message(step: StepMetrics, checkpoint: Path, evidence: Path, saved_updates: int) -> str:
    """Return the error message; `checkpoint` is the state after `saved_updates` updates."""
    micro_batches = "; ".join(str(micro_batch) for micro_batch in step.result.batch.micro_batches)
    state = "before it" if saved_updates == step.update - 1 else f"after {saved_updates:,} updates"
    return (
        f"the gradient is not finite at update {step.update:,} (epoch {step.epoch + 1}, micro-batches of "
        f"{micro_batches}); no step was taken. "
        f"The state {state} is saved in {str(checkpoint)!r}, the batch in {str(evidence)!r}. "
        'Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = "fp32"; '
        "or let it pass with train.skip_nonfinite."
    )
