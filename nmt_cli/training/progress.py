"""What training counts. All of it is saved with each checkpoint, so that a resumed run continues with the same numbers.

    Progress   the update, epoch, best score, …         Meter   sums since the last training record

Some fields have another name in state.json (their alias): the one under which older versions wrote them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer


class Stored(BaseModel):
    """A part of a JSON file whose fields are stored under their aliases."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)

    @model_serializer(mode="wrap")
    def _by_alias(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {fields[name].alias or name: value for name, value in handler(self).items()}


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
    """Of the latest update."""
    lr: float = Field(default=0, alias="rate")
    """Of the latest update."""
    started_at: float = Field(default=0, alias="began")
    """`Progress.seconds` at the last training record."""

    def add(self, loss: float, nll: float, tokens: int, grad_norm: float, lr: float) -> None:
        """Add one update: sums over its target tokens, the norm of its gradient, its learning rate."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.updates += 1
        self.grad_norm, self.lr = grad_norm, lr


class Progress(Stored):
    """Where training is after `update` updates: all that resuming needs besides weights and optimizer state."""

    update: int = 0
    epoch: int = 0
    """Epochs done."""
    position: int = 0
    """Updates done in the current epoch."""
    seconds: float = 0.0
    """Time spent on updates, over all starts of the run."""
    best: float | None = None
    """The best validation score so far, by train.best_metric."""
    since_best: int = 0
    """Validations since then."""
    skipped: int = 0
    """Updates without a step, because their gradient was not finite."""
    skipped_in_a_row: int = 0
    """How many of the latest updates, without a gap, were skipped."""
    meter: Meter = Field(default_factory=Meter)
    periodic: bool = Field(default=True, alias="spaced")
    """Whether the checkpoint is a periodic one, which `train.keep` counts and `nmt average` uses. It is not if it was
    saved only because the run was stopped or the score was good."""
    data_fingerprint: str = ""
    """SHA-256 of the shards' text and tokenizer."""
    ids_fingerprint: str = ""
    """SHA-256 of the shards' ids, however they are divided into files; "" if the shards do not state it."""
    micro_batch_tokens: int = 0
    """The size of micro-batches. A resumed run uses no larger one, so that it repeats the same roundings."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl. Later records belong to updates that a resumed run repeats."""
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
