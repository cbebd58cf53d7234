"""The run folder: checkpoints that are complete or not there, the links `best` and `last`, metrics and log.

    runs/NAME/
      checkpoints/step-00001000/   model folder + state.safetensors (Adam's moments) + state.json (`State`)
      best, last                   links to checkpoints
      averaged/                    what `nmt average` wrote
      metrics.jsonl  train.log

Random numbers need no saved state: every update's are drawn from (seed, update, rank).

config.json and state.json hold a hash of their own content and those of all other files of the checkpoint. A folder is
trained in if it is new, empty or a run (`not_a_run`), and only what is a checkpoint as it was written is ever deleted.
"""

from __future__ import annotations

import fcntl
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .. import console
from ..errors import ModelError, NmtError, TrainingError, UsageError, write_failed
from ..files import clear_partial, link_atomic, new_folder, sha256, system_error
from ..model.contents import (
    CONFIG,
    METRICS,
    REMEDY,
    WEIGHTS,
    ModelConfig,
    check_files,
    foreign,
    read_config,
    read_metrics,
)
from ..model.folder import write_model
from ..recipe import DecodeSection, Recipe
from ..records import Record, read_record, to_json

MOMENTS, STATE = "state.safetensors", "state.json"
MAY_CHANGE = {
    "train": {
        "micro_batch_tokens", "updates", "precision", "log_every", "valid_bleu_sentences", "valid_samples", "valid_beam",
        "patience", "checkpoint_every", "checkpoint_minutes", "keep", "keep_best", "average", "skip_nonfinite",
    },
    "data": {"shard_pairs"},
    "decode": set(DecodeSection.model_fields),
}  # fmt: skip
"""Keys that a resumed run may change; any other would make it another experiment.

All of [decode]: of a run it changes only how validation translates. The weights of an update never depend on it; with
`best_metric = "bleu"` the choice of `best` and the end by `patience` may, as they do on `valid_beam`."""


STEP = re.compile(r"step-(\d+)")
LINKS = ("best", "last")
LOCK = ".lock"


class Progress(BaseModel):
    """Where training is after `update` updates; all that resuming needs besides weights and moments."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    update: int = 0
    epoch: int = 0
    """Epochs done."""
    position: int = 0
    """Updates done of the current epoch."""
    seconds: float = 0.0
    """Training time, over all resumptions."""
    best: float | None = None
    """Best validation score so far, by train.best_metric."""
    since_best: int = 0
    """Validations since then."""
    skipped: int = 0
    """Updates without a step, because their gradient was not finite."""
    skipped_in_a_row: int = 0
    """Of them, the latest, with none between."""
    meter: dict[str, float] = Field(default_factory=dict)
    """Sums since the last training record."""
    spaced: bool = True
    """Whether the checkpoint is one of the evenly spaced, which `keep` counts and `nmt average` takes; false for one
    saved only because the run was stopped or scored well."""
    data_fingerprint: str = ""
    """SHA-256 of the shards' text and tokenizer."""
    ids_fingerprint: str = ""
    """SHA-256 of what the shards hold, however they are cut; "" where they do not say."""
    micro_batch_tokens: int = 0
    """As it was chosen; a resumed run takes no larger one, so that it repeats the same roundings."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what was written after it belongs to updates that are done again."""
    validation: dict[str, Any] = Field(default_factory=dict)
    """The latest validation's record."""


class State(Record):
    """state.json."""

    progress: Progress
    sha256: dict[str, str]
    """Of the checkpoint's other files: MOMENTS, and since format version 2 config.json."""

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Format version 1 had no version, and what is `progress` here was beside `sha256`."""
        if "format_version" in values or "update" not in values:
            return values
        progress = {"data_fingerprint" if key == "text" else key: value for key, value in values.items() if key != "sha256"}
        return {"format_version": 1, "progress": progress, "sha256": values.get("sha256", {})}


@dataclass(frozen=True)
class Checkpoint:
    """One folder below checkpoints/."""

    folder: Path
    update: int

    def read(self) -> tuple[ModelConfig, State]:
        """Its records. Raises ModelError for a damaged one."""
        config = read_config(self.folder)
        try:
            state = read_record(self.folder / STATE, State, ModelError, REMEDY)
        except FileNotFoundError:
            raise ModelError(f"{str(self.folder)!r} lacks {STATE}. {REMEDY}") from None
        if state.progress.update != self.update:
            raise ModelError(f"{str(self.folder)!r} is damaged: its name says update {self.update:,}, its {STATE} {state.progress.update:,}. {REMEDY}")
        return config, state

    def verify(self) -> None:
        """Read every file and compare its SHA-256. Raises ModelError for one that is damaged."""
        config, state = self.read()
        check_files(self.folder, {**config.sha256, **state.sha256}, sha256)

    def foreign(self) -> str:
        """Why it is not a checkpoint as training wrote it, "" if it is: what is not is never deleted.

        Its records and the names of its files say so; gigabytes of weights are not read again for it.
        """
        try:
            config, state = self.read()
        except ModelError as error:
            return str(error)
        return foreign(self.folder, dict.fromkeys([CONFIG, METRICS, STATE, *config.sha256, *state.sha256], ""))

    @cached_property
    def progress(self) -> Progress | None:
        """Its progress, or that of an evenly spaced one where somebody has taken the state away, to save space.

        None: its records are damaged, which a warning says; it then counts as none of the evenly spaced or scored.
        """
        try:
            if not (self.folder / STATE).exists():
                read_config(self.folder)
                return Progress(update=self.update)
            return self.read()[1].progress
        except ModelError as error:
            console.warn_once(f"{error} It is passed over, and kept.")
            return None

    def score(self, metric: str) -> float | None:
        """What it scored in validation, if it was validated; a damaged metrics.json counts as no score, with a warning."""
        try:
            config, metrics = read_config(self.folder), read_metrics(self.folder)
            if METRICS in config.sha256:
                check_files(self.folder, {METRICS: config.sha256[METRICS]})
            value = metrics.get(metric)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)):
                raise ModelError(f"{str(self.folder / METRICS)!r} is damaged: {metric} is {value!r}, expected a number.")
        except ModelError as error:
            console.warn_once(f"{error} The checkpoint counts as not validated.")
            return None
        return value

    @property
    def spaced(self) -> bool:
        """Whether it is one of the evenly spaced."""
        return self.progress is not None and self.progress.spaced

    @property
    def lasting(self) -> bool:
        """Whether a run that nobody stopped has it too: it is evenly spaced, or the best so far when it was saved."""
        return self.progress is not None and (self.progress.spaced or self.progress.since_best == 0)


def not_a_run(path: Path) -> str:
    """Why training may not write into a folder: it is not empty, and no run; "" if it may."""
    if not path.is_dir():
        return "it is not a folder"
    there = {item.name for item in path.iterdir()}
    checkpoints = path / "checkpoints"
    if not there or (LOCK in there and checkpoints.is_dir()):
        return ""
    if checkpoints.is_dir() and any((folder / STATE).is_file() and (folder / CONFIG).is_file() for folder in checkpoints.glob("step-*")):
        return ""
    return f"it holds {sorted(there)[0]!r} and no checkpoints of nmt train"


class RunFolder:
    """Reads and writes one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self._lock: TextIO | None = None

    def create(self) -> None:
        """Make the folder, keep other trainings out of it until `close` or the end of this process, and clear away what a
        killed one left half-written or half-deleted.

        Raises TrainingError when it cannot be written to, or when another process trains in it.
        """
        self.check()
        try:
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / LOCK).open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear_partial(self.path, [*LINKS, self.metrics.name])
            clear_partial(self.path, ["averaged"], unless_running=True)  # an `nmt average` may be at work
            clear_partial(self.path / "checkpoints", STEP)
            for deleted in sorted((self.path / "checkpoints").glob(".*.deleted")):
                if STEP.fullmatch(deleted.name[1:].removesuffix(".deleted")):
                    shutil.rmtree(deleted, ignore_errors=True)
        except BlockingIOError:
            raise TrainingError(f"another nmt train works in {str(self.path)!r} just now. Let it finish, or start another run with --run DIR.") from None
        except OSError as error:
            raise write_failed(error, self.path, "the run", TrainingError) from None

    def check(self) -> None:
        """Raise UsageError where the folder is someone else's, TrainingError where it cannot be looked at."""
        try:
            if (self.path.exists() or self.path.is_symlink()) and (reason := not_a_run(self.path)):
                raise UsageError(f"--run {str(self.path)!r} is not a run folder: {reason}. Give a new or an empty folder, or an earlier run.")
        except OSError as error:
            raise write_failed(error, self.path, "the run", TrainingError) from None

    def close(self) -> None:
        """Let other trainings in."""
        if self._lock is not None:
            self._lock.close()

    def checkpoints(self) -> list[Checkpoint]:
        """Those that are there, oldest first."""
        found = []
        for folder in (self.path / "checkpoints").glob("step-*"):
            if match := STEP.fullmatch(folder.name):
                found.append(Checkpoint(folder, int(match[1])))
        return sorted(found, key=lambda checkpoint: checkpoint.update)

    def save(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor], progress: Progress, recipe: Recipe,
             vocabularies: tuple[int, int], tokenizers: Mapping[str, bytes], scores: Mapping[str, Any]) -> Checkpoint:  # fmt: skip
        """Write a checkpoint and let `last` point to it. Raises TrainingError; what stood there before is safe."""
        folder = self.path / "checkpoints" / f"step-{progress.update:08d}"
        try:
            with new_folder(folder) as aside:
                save_file(dict(moments), aside / MOMENTS)
                write_model(aside, weights, recipe, vocabularies, tokenizers, scores)
                (aside / MOMENTS).chmod((aside / CONFIG).stat().st_mode)  # safetensors leaves it to its owner alone
                state = State(format_version=State.newest, progress=progress, sha256={name: sha256(aside / name) for name in (MOMENTS, CONFIG)})
                (aside / STATE).write_bytes(to_json(state))
            self.point("last", folder)
        except (OSError, SafetensorError) as error:
            raise write_failed(system_error(error), folder, "a checkpoint", TrainingError) from None
        return Checkpoint(folder, progress.update)

    def point(self, link: str, folder: Path) -> None:
        """Let the link `best` or `last` point to a checkpoint. Raises TrainingError."""
        try:
            link_atomic(self.path / link, str(folder.relative_to(self.path)))
        except OSError as error:
            raise write_failed(error, self.path / link, "a link", TrainingError) from None

    def prune(self, keep: int, keep_best: int, metric: str) -> None:
        """Delete all but the latest `keep` evenly spaced, the best `keep_best` and the very latest checkpoint; no link
        points to a deleted one at any moment. One that is damaged, or holds a file of another, is left.
        """
        self.relink(metric)
        there = self.checkpoints()
        spaced = [c for c in there if c.spaced]
        kept = {c.folder for c in (*spaced[-keep:], *best_of(there, metric)[:keep_best], *there[-1:])}
        for checkpoint in there:
            if checkpoint.folder not in kept and not checkpoint.foreign():
                hidden = checkpoint.folder.with_name(f".{checkpoint.folder.name}.deleted")  # never a checkpoint in part
                shutil.rmtree(hidden, ignore_errors=True)
                checkpoint.folder.rename(hidden)
                shutil.rmtree(hidden, ignore_errors=True)

    def relink(self, metric: str) -> None:
        """Let `last` and `best` point where they should, whatever moment an earlier process was killed in."""
        there = self.checkpoints()
        for link, folders in (("last", there[-1:]), ("best", best_of(there, metric)[:1])):
            if folders:
                self.point(link, folders[0].folder)

    def load_last(self, recipe: Recipe, data_fingerprint: str, ids_fingerprint: str = "") -> tuple[Checkpoint, Progress, dict[str, Tensor], dict[str, Tensor]] | None:
        """The newest checkpoint: its progress, weights and moments; None when there is none yet.

        Raises ModelError when it is damaged, naming the one before it, and when the recipe, or the shards' fingerprints,
        became another experiment's.
        """
        there = self.checkpoints()
        if not there:
            return None
        checkpoint = there[-1]
        try:
            config, state = checkpoint.read()
            check_files(checkpoint.folder, {**config.sha256, **state.sha256})
            progress = state.progress
            weights, moments = load_file(checkpoint.folder / WEIGHTS), load_file(checkpoint.folder / MOMENTS)
        except (NmtError, OSError, SafetensorError) as error:
            before = f"The one before it is {there[-2].folder.name}: to go on from there" if len(there) > 1 else "There is none before it: to begin anew"
            raise ModelError(f"the newest checkpoint, {str(checkpoint.folder)!r}, is damaged: {error} {before}, remove {str(checkpoint.folder)!r}.") from None
        check_same_experiment(Recipe.from_dict(config.recipe, str(checkpoint.folder)), recipe, self.path)
        same_ids = not (progress.ids_fingerprint and ids_fingerprint) or progress.ids_fingerprint == ids_fingerprint
        if progress.data_fingerprint not in ("", data_fingerprint) or not same_ids:
            raise ModelError(f"run {str(self.path)!r} began with shards of another text or tokenizer. Name those with --data, or start another run with --run DIR.")
        return checkpoint, progress, weights, moments


def best_of(checkpoints: list[Checkpoint], metric: str) -> list[Checkpoint]:
    """Those that were validated, the best first; ties go to the earlier. One that is there only because the run was
    stopped does not count."""
    scored = [(c.score(metric), c) for c in checkpoints if c.lasting]
    sign = -1.0 if metric == "bleu" else 1.0
    return [c for _, c in sorted(((sign * s, c) for s, c in scored if s is not None), key=lambda pair: (pair[0], pair[1].update))]


def check_same_experiment(old: Recipe, new: Recipe, run: Path) -> None:
    """Raise ModelError naming each key whose change would make the run another experiment."""
    before, after = old.to_dict(), new.to_dict()
    changed = [
        f"  - {section}.{key}: the run has {value!r}, the recipe {after[section][key]!r}"
        for section in ("data", "model", "train", "decode")
        for key, value in before[section].items()
        if after[section][key] != value and key not in MAY_CHANGE.get(section, set())
    ]
    if changed:
        raise ModelError(
            f"run {str(run)!r} cannot go on with another recipe:\n" + "\n".join(changed) + "\nSet them back, or start another run with --run DIR."
        )
