"""The run folder: checkpoints that are complete or not there, the links `best` and `last`, metrics and log.

    runs/NAME/
      checkpoints/step-00001000/   model folder + state.safetensors (Adam's moments) + state.json (`Progress`)
      best, last                   links to checkpoints
      averaged/                    what `nmt average` wrote
      metrics.jsonl  train.log

Random numbers need no saved state: every update's are drawn from (seed, update, rank).
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import ModelError, NmtError, TrainingError, write_failed
from ..files import clear_away, link_atomic, new_folder, sha256, system_error
from ..model.contents import METRICS, check_files, read_config
from ..model.folder import write_model
from ..recipe import DecodeSection, Recipe

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


@dataclass
class Progress:
    """Where training stands after `update` updates; all that resuming needs besides weights and moments."""

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
    meter: dict[str, float] = field(default_factory=dict)
    """Sums since the last training record."""
    spaced: bool = True
    """Whether the checkpoint is one of the evenly spaced, which `keep` counts and `nmt average` takes; false for one
    saved only because the run was stopped or scored well."""
    text: str = ""
    """SHA-256 of the shards' text and tokenizer."""
    micro_batch_tokens: int = 0
    """As it was chosen; a resumed run takes no larger one, so that it repeats the same roundings."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what was written after it belongs to updates that are done again."""
    validation: dict[str, Any] = field(default_factory=dict)
    """The latest validation's record."""


@dataclass(frozen=True)
class Checkpoint:
    """One folder below checkpoints/."""

    folder: Path
    update: int

    def validation(self) -> dict[str, Any]:
        """What it scored, if it was validated; a metrics.json that is damaged or gone counts as no score."""
        try:
            scores = json.loads((self.folder / METRICS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return scores if isinstance(scores, dict) else {}

    @property
    def spaced(self) -> bool:
        """Whether it is one of the evenly spaced."""
        return bool(self._state().get("spaced", True))

    @property
    def lasting(self) -> bool:
        """Whether a run that nobody stopped has it too: it is evenly spaced, or the best so far when it was saved."""
        return self.spaced or self._state().get("since_best", 0) == 0

    def _state(self) -> dict[str, Any]:
        try:
            state = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}


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
        try:
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in (self.path, self.path / "checkpoints"):
                clear_away(folder)
            for deleted in sorted((self.path / "checkpoints").glob(".*.deleted")):
                shutil.rmtree(deleted, ignore_errors=True)
        except BlockingIOError:
            raise TrainingError(f"another nmt train works in {str(self.path)!r} just now. Let it finish, or start another run with --run DIR.") from None
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
            if match := re.fullmatch(r"step-(\d+)", folder.name):
                found.append(Checkpoint(folder, int(match[1])))
        return sorted(found, key=lambda checkpoint: checkpoint.update)

    def save(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor], progress: Progress, recipe: Recipe,
             vocabularies: tuple[int, int], tokenizers: Mapping[str, bytes], scores: Mapping[str, Any]) -> Checkpoint:  # fmt: skip
        """Write a checkpoint and let `last` point to it. Raises TrainingError; what stood there before is safe."""
        folder = self.path / "checkpoints" / f"step-{progress.update:08d}"
        try:
            with new_folder(folder) as aside:
                save_file(dict(moments), aside / MOMENTS)
                state = {**asdict(progress), "sha256": {MOMENTS: sha256(aside / MOMENTS)}}
                (aside / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
                write_model(aside, weights, recipe, vocabularies, tokenizers, scores)
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
        points to a deleted one at any moment.
        """
        self.relink(metric)
        there = self.checkpoints()
        spaced = [c for c in there if c.spaced]
        kept = {c.folder for c in (*spaced[-keep:], *best_of(there, metric)[:keep_best], *there[-1:])}
        for checkpoint in there:
            if checkpoint.folder not in kept:
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

    def load_last(self, recipe: Recipe, text: str) -> tuple[Checkpoint, Progress, dict[str, Tensor], dict[str, Tensor]] | None:
        """The newest checkpoint: its progress, weights and moments; None when there is none yet.

        Raises ModelError when it is damaged, naming the one before it, and when the recipe, or the shards' `text`, became
        another experiment's.
        """
        there = self.checkpoints()
        if not there:
            return None
        checkpoint = there[-1]
        try:
            config = read_config(checkpoint.folder)
            state = json.loads((checkpoint.folder / STATE).read_text(encoding="utf-8"))
            check_files(checkpoint.folder, {"sha256": {**config["sha256"], **state.pop("sha256")}})
            progress = Progress(**state)
            weights, moments = load_file(checkpoint.folder / "model.safetensors"), load_file(checkpoint.folder / MOMENTS)
        except (NmtError, OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
            before = f"The one before it is {there[-2].folder.name}: to go on from there" if len(there) > 1 else "There is none before it: to begin anew"
            raise ModelError(f"the newest checkpoint, {str(checkpoint.folder)!r}, is damaged: {error} {before}, remove {str(checkpoint.folder)!r}.") from None
        check_same_experiment(Recipe.from_dict(config["recipe"], str(checkpoint.folder)), recipe, self.path)
        if progress.text not in ("", text):
            raise ModelError(f"run {str(self.path)!r} began with shards of another text or tokenizer. Name those with --data, or start another run with --run DIR.")
        return checkpoint, progress, weights, moments


def best_of(checkpoints: list[Checkpoint], metric: str) -> list[Checkpoint]:
    """Those that were validated, the best first; ties go to the earlier. One that is there only because the run was
    stopped does not count."""
    scored = [(c.validation().get(metric), c) for c in checkpoints if c.lasting]
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
