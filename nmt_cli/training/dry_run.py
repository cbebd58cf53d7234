"""A dry run: do all checks of a training, and estimate its time on this machine. Nothing is written.

recipe, shards, run folder ──▶ `Trainer`, which checks ──▶ some micro-batches of random tokens (`speed`), and a file
without a name (`times.seconds_to_save`) ──▶ Forecast
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from ..device.hardware import Hardware
from ..model.transformer import count_parameters
from ..recipe import Recipe
from .estimate import tokens_per_rank
from .process_group import ProcessGroup
from .run import existing
from .speed import measure
from .times import Intervals, Speed, seconds_to_save, validation_seconds
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
    speed: Speed
    every: Intervals

    @property
    def seconds(self) -> tuple[float, float]:
        """The shortest and the longest time of the remaining updates, with validations and checkpoints."""
        return self.speed.seconds(self.updates - self.updates_done, self.every)

    @property
    def end(self) -> datetime:
        """The latest time at which training would end if it started now."""
        return datetime.now() + timedelta(seconds=self.seconds[1])


def dry_run(
    recipe: Recipe, shards: Path, run: Path, hardware: Hardware, devices: int, loggers: Sequence[str] = ()
) -> Forecast:
    """Make all checks of a training, measure its speed, and return the forecast. Raises the same errors as training."""
    group = ProcessGroup(local_world_size=devices)
    trainer = Trainer(recipe, shards, run, hardware, group, loggers, dry_run=True)
    tokens = min(trainer.progress.micro_batch_tokens, tokens_per_rank(recipe.train.batch_tokens, hardware, devices))
    speed = measure(trainer.updater, trainer.corpus.index.vocabularies, trainer.plan, tokens, devices)
    parameters = count_parameters(trainer.updater.weights.model)["total"]
    speed = replace(speed, save=seconds_to_save(existing(run), parameters))
    if held_out := trainer.validator:
        size = held_out.lines, held_out.tokens, len(held_out.source)
        speed = replace(speed, validation=validation_seconds(speed.slowest, recipe.train.batch_tokens, *size))
    trainer.held_shards.close()
    return Forecast(
        recipe.name,
        parameters,
        len(trainer.corpus),
        recipe.train.updates,
        min(trainer.progress.update, recipe.train.updates),
        tokens,
        hardware.device,
        hardware.precision,
        devices,
        speed,
        Intervals(recipe.train.valid_every, recipe.train.checkpoint_every),
    )
