"""The counters of training. Each checkpoint saves all of them, so a resumed run continues with the same numbers.

    TrainingProgress   the update, epoch, best score, …         Meter   sums since the last training record

Some fields have another name in state.json (their alias), because older versions used that name.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Stored(BaseModel):
    """A part of a JSON file whose fields are stored under their aliases."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class Meter(Stored):
    """Sums over the updates since the last training record, and the latest values."""

    loss: float = Field(default=0, alias="smoothed")
    """The label-smoothed loss, summed over target tokens, in nats."""
    nll: float = 0
    """The NLL, summed over target tokens, in nats."""
    tokens: float = 0
    """Target tokens."""
    updates: float = 0
    grad_norm: float = Field(default=0, alias="norm")
    """The gradient norm of the latest update."""
    lr: float = Field(default=0, alias="rate")
    """The learning rate of the latest update."""
    started_at: float = Field(default=0, alias="began")
    """`TrainingProgress.seconds` at the last training record."""

    def add(self, loss: float, nll: float, tokens: int, grad_norm: float, lr: float) -> None:
        """Add one update. `loss` and `nll` are sums over its `tokens` target tokens."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.updates += 1
        self.grad_norm, self.lr = grad_norm, lr


class TrainingProgress(Stored):
    """The state after `update` updates: all that resuming needs besides weights and optimizer state."""

    update: int = 0
    epoch: int = 0
    """The current epoch, counted from 0."""
    position: int = 0
    """Updates done in the current epoch."""
    seconds: float = 0.0
    """Time spent on updates, over all starts of the run."""
    best: float | None = None
    """The best validation score so far, by train.best_metric."""
    since_best: int = 0
    """The number of validations since the best one."""
    skipped: int = 0
    """Updates without a step, because their gradient was not finite."""
    skipped_in_a_row: int = 0
    """The number of skipped updates since the last update with a step."""
    meter: Meter = Field(default_factory=Meter)
    periodic: bool = Field(default=True, alias="spaced")
    """Whether the checkpoint is periodic: `train.keep` counts these, and `nmt average` uses them. A checkpoint that was
    saved only because the run was stopped, or because its score was the best, is not periodic."""
    data_fingerprint: str = ""
    """SHA-256 of the shards' text and tokenizer."""
    ids_fingerprint: str = ""
    """SHA-256 of the shards' ids, which does not depend on their division into files; "" if the shards do not have it.
    """
    micro_batch_tokens: int = 0
    """The size of micro-batches. A resumed run uses no larger one, so that it repeats the same roundings."""
    metrics_bytes: int = 0
    """The size of metrics.jsonl. Records after it belong to updates that a resumed run repeats."""
    validation: dict[str, Any] = Field(default_factory=dict)
    """The record of the latest validation."""

    @property
    def meter_seconds(self) -> float:
        """Seconds since the last training record."""
        return max(self.seconds - self.meter.started_at, 1e-9)

    def restart_meter(self) -> None:
        """Set the meter's sums to zero."""
        self.meter = Meter()
        self.meter.started_at = self.seconds
