"""A dry run: do all checks of a training, and estimate its time on this machine. Nothing is written.

recipe, shards, run folder ──▶ `Trainer`, which checks ──▶ some micro-batches of random tokens (`speed`) ──▶ Forecast
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from ..device import is_host
from ..hardware import Hardware
from ..model.transformer import count_parameters
from ..recipe import Recipe
from .estimate import tokens_per_rank
from .process_group import ProcessGroup
from .speed import measure
from .trainer import Trainer


@dataclass(frozen=True)
class Forecast:
    """The figures of a training that was not started."""

    name: str
    parameters: int
    pairs: int
    updates: int
    """All updates of the recipe."""
    updates_done: int
    """The updates of the newest checkpoint in the run folder, or 0."""
    micro_batch_tokens: int
    """The size of micro-batches, in tokens per side."""
    device: str
    precision: str
    devices: int
    seconds_per_update: float

    @property
    def seconds(self) -> float:
        """The time of the remaining updates, without validation and checkpoints."""
        return (self.updates - self.updates_done) * self.seconds_per_update

    @property
    def end(self) -> datetime:
        """The time at which training would end if it started now."""
        return datetime.now() + timedelta(seconds=self.seconds)


def dry_run(
    recipe: Recipe, shards: Path, run: Path, hardware: Hardware, devices: int, loggers: Sequence[str] = ()
) -> Forecast:
    """Make all checks of a training, measure its speed, and return the forecast. Raises the same errors as training."""
    here = replace(hardware, memory=hardware.memory // devices) if is_host(hardware.device) else hardware
    trainer = Trainer(recipe, shards, run, here, ProcessGroup(), loggers, dry_run=True)
    tokens = min(trainer.micro_batch_tokens, tokens_per_rank(recipe.train.batch_tokens, hardware, devices))
    seconds = measure(trainer.updater, trainer.corpus.index.vocabularies, trainer.plan, tokens, devices)
    trainer.held_shards.close()
    return Forecast(
        recipe.name,
        count_parameters(trainer.updater.weights.model)["total"],
        len(trainer.corpus),
        recipe.train.updates,
        min(trainer.progress.update, recipe.train.updates),
        tokens,
        hardware.device,
        hardware.precision,
        devices,
        seconds,
    )
