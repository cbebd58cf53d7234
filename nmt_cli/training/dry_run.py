"""A dry run: do all checks of a training, and estimate its time on this machine. Nothing is written.

recipe, shards, run folder ──▶ the checks of `Trainer` ──▶ some micro-batches of random tokens (`speed`) ──▶ Forecast
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ..data.batches import EpochPlan
from ..data.shards import Corpus, verify
from ..data.tokenizer import Vocabulary
from ..hardware import Hardware
from ..recipe import Recipe
from .estimate import estimate
from .initial import initial_model
from .run import RunFolder
from .speed import seconds_per_update


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
    """The estimated size of micro-batches. Training measures which size fits into memory."""
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


def dry_run(recipe: Recipe, shards: Path, run: Path, hardware: Hardware, devices: int) -> Forecast:
    """Check recipe, shards and run folder, measure the speed, and return the forecast. Raises the same errors as training."""
    index = verify(shards)
    vocabulary, folder = Vocabulary.load(shards, index.vocabularies), RunFolder(run)
    folder.check()
    folder.check_unused()
    done = folder.last_update()
    if done is not None:
        folder.load(done, recipe, index.data_fingerprint, index.ids_fingerprint)
    elif recipe.train.init:
        initial_model(Path(recipe.train.init), recipe, vocabulary)
    corpus = Corpus(shards, "train", index)
    plan = EpochPlan(corpus.source_lengths, corpus.target_lengths, recipe.train.batch_tokens, recipe.train.seed)
    numbers = estimate(recipe, index.vocabularies, hardware, devices)
    return Forecast(
        recipe.name,
        numbers["parameters"],
        len(corpus),
        recipe.train.updates,
        min(done or 0, recipe.train.updates),
        numbers["micro_batch_tokens"],
        hardware.device,
        hardware.precision,
        devices,
        seconds_per_update(recipe, index.vocabularies, hardware, devices, plan),
    )
