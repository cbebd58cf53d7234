"""Checkpoints: folders with weights, optimizer state and progress, complete or absent.

    step-00001000/   a model folder (config.json, weights, tokenizers) + state.safetensors (Adam's moments)
                     + state.json (`State`: progress, and hashes)

config.json and state.json hold a hash of their own content, and the hashes of all other files of the checkpoint. The
state of random generators is not saved: the random numbers of each update depend only on (seed, update, rank).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import console
from ..data.shards import ShardIndex
from ..errors import ModelError
from ..model.folder_files import (
    CARD,
    CONFIG,
    METRICS,
    REMEDY,
    ModelConfig,
    check_files,
    foreign,
    read_config,
    read_metrics,
)
from ..recipe import Recipe
from ..storage.sealed_json import Record, read_record
from .metrics import NAMES, by_chance, goodness, measure_in
from .progress import TrainingProgress

OPTIMIZER_STATE, STATE = "state.safetensors", "state.json"


class State(Record):
    """The content of state.json."""

    progress: TrainingProgress
    sha256: dict[str, str]
    """SHA-256 of other files of the checkpoint: OPTIMIZER_STATE, and since format version 2 config.json."""

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a file of version 1 in today's form.

        Version 1 had no `format_version`, and the fields of `progress` were beside `sha256`.
        """
        if "format_version" in values or "update" not in values:
            return values
        progress = {
            "data_fingerprint" if key == "text" else key: value for key, value in values.items() if key != "sha256"
        }
        return {"format_version": 1, "progress": progress, "sha256": values.get("sha256", {})}


@dataclass(frozen=True)
class Checkpoint:
    """One folder below checkpoints/."""

    folder: Path
    update: int

    def read(self) -> tuple[ModelConfig, State]:
        """Return the contents of config.json and state.json. Raises ModelError for a damaged file."""
        config = read_config(self.folder)
        try:
            state = read_record(self.folder / STATE, State, ModelError, REMEDY)
        except FileNotFoundError:
            raise ModelError(f"{str(self.folder)!r} lacks {STATE}. {REMEDY}") from None
        if state.progress.update != self.update:
            raise ModelError(
                f"{str(self.folder)!r} is damaged: its name says update {self.update:,}, its {STATE} "
                f"{state.progress.update:,}. {REMEDY}"
            )
        return config, state

    def verify(self) -> tuple[ModelConfig, State]:
        """Read every file and compare its SHA-256; return what `read` returns. Raises ModelError for a damaged file."""
        config, state = self.read()
        check_files(self.folder, {**config.sha256, **state.sha256})
        return config, state

    def foreign(self) -> str:
        """Return why this folder is not a checkpoint as training wrote it, or "" if it is.

        Only a real checkpoint may be deleted.

        This checks its JSON files and the names of all its files. It does not read the weights, which may be gigabytes.
        """
        try:
            config, state = self.read()
        except ModelError as error:
            return str(error)
        return foreign(self.folder, dict.fromkeys([CONFIG, METRICS, CARD, STATE, *config.sha256, *state.sha256], ""))

    @cached_property
    def progress(self) -> TrainingProgress | None:
        """The progress of the checkpoint. None, with a warning, if its files are damaged.

        If a user has removed state.json to save space, the checkpoint counts as periodic.
        """
        try:
            if not (self.folder / STATE).exists():
                read_config(self.folder)
                return TrainingProgress(update=self.update)
            return self.read()[1].progress
        except ModelError as error:
            console.warn_once(f"{error} It is passed over, and kept.")
            return None

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The checkpoint's validation record. Without scores, and with a warning, if a file is damaged."""
        try:
            config, metrics = read_config(self.folder), read_metrics(self.folder)
            if METRICS in config.sha256:
                check_files(self.folder, {METRICS: config.sha256[METRICS]})
            for name in NAMES:
                if type(metrics.get(name)) not in (int, float, type(None)):
                    raise ModelError(
                        f"{str(self.folder / METRICS)!r} is damaged: {name} is {metrics[name]!r}, expected a number."
                    )
        except ModelError as error:
            console.warn_once(f"{error} The checkpoint counts as not validated.")
            return {}
        return metrics

    def best_score(self, metric: str) -> float | None:
        """Return the best score of the run until then; None if there is none, or if it is by another metric."""
        if self.progress is None:
            return None
        recipe = Recipe.from_dict(read_config(self.folder).recipe, str(self.folder))
        return self.progress.best if recipe.train.chosen_by == metric else None

    @property
    def periodic(self) -> bool:
        """Whether the checkpoint is periodic, see `TrainingProgress.periodic`."""
        return self.progress is not None and self.progress.periodic

    @property
    def kept(self) -> bool:
        """Whether an uninterrupted run has this checkpoint too: it is periodic, or was the best so far when saved."""
        return self.progress is not None and (self.progress.periodic or self.progress.since_best == 0)


def trained_on(index: ShardIndex, progress: TrainingProgress, tokenizers: Mapping[str, str]) -> bool:
    """Return whether a checkpoint was trained on these shards; `tokenizers` are the SHA-256 of its tokenizers by file.

    The ids decide, if both record their hash. They do not depend on how the text is divided or compressed.
    """
    if progress.ids_fingerprint and index.ids_fingerprint:
        known = {entry.file: entry.sha256 for entry in index.files if entry.file in tokenizers}
        return progress.ids_fingerprint == index.ids_fingerprint and known == tokenizers
    return progress.data_fingerprint in ("", index.data_fingerprint)


def best_of(checkpoints: list[Checkpoint], metric: str) -> list[Checkpoint]:
    """Return the validated checkpoints, the best first.

    The first is the last checkpoint whose score is as good as the highest of the run, but for chance (`by_chance`). The
    others follow by their scores; with equal scores, the earlier one comes first.

    Checkpoints that were saved only because the run was stopped do not count. Neither do those whose score was measured
    in another way than that of the last one.
    """
    validated = [c for c in checkpoints if c.kept and c.metrics.get(metric) is not None]
    if not validated:
        return []
    measure = measure_in(validated[-1].metrics, metric)
    comparable = [
        (goodness(metric, c.metrics[metric]), c) for c in validated if measure_in(c.metrics, metric) == measure
    ]
    highest = [score for score, _ in comparable]
    if (best := checkpoints[-1].best_score(metric)) is not None:  # its checkpoint may be pruned
        highest.append(goodness(metric, best))
    least = max(highest) - by_chance(metric, measure)
    ranked = [c for _, c in sorted(comparable, key=lambda pair: (-pair[0], pair[1].update))]
    first = next((c for score, c in reversed(comparable) if score >= least), ranked[0])
    return [first, *(c for c in ranked if c is not first)]
