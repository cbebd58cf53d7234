"""The run folder: checkpoints, the links `best` and `last`, metrics and log.

    runs/NAME/
      checkpoints/step-00001000/   see checkpoint.py
      best, last                   links to checkpoints
      averaged/                    written by `nmt average`
      metrics.jsonl  train.log     see report.py

Training writes only into a folder that is new, empty or a run (`not_a_run`). It deletes only checkpoints that are
unchanged since training wrote them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from .. import console
from ..data.shards import FILE_KEYS, ShardIndex
from ..errors import ModelError, NmtError, TrainingError, UsageError, of_machine, write_failed
from ..model.folder_files import CONFIG, WEIGHTS
from ..recipe import DecodeSection, Recipe, TrainSection
from ..storage.files import Lock, clear_partial, link_atomic, new_folder, sha256, system_error
from ..storage.sealed_json import to_json
from .checkpoint import OPTIMIZER_STATE, STATE, Checkpoint, State, best_of, trained_on
from .progress import TrainingProgress
from .times import BYTES_PER_PARAMETER

if TYPE_CHECKING:
    from torch import Tensor

MAY_CHANGE = {
    "train": {
        *("micro_batch_tokens", "updates", "decay_updates", "precision", "log_every", "skip_nonfinite"),
        *("valid_every", "valid_bleu_sentences", "valid_bleu_tokenizer", "valid_samples", "valid_beam"),
        *("patience", "best_metric", "checkpoint_every", "checkpoint_minutes", "keep", "keep_best", "average"),
    },
    "data": {"shard_pairs"},
    "decode": set(DecodeSection.model_fields),
}
"""Keys that a resumed run may change. A change of any other key would make it another experiment.

All keys of [decode] may change: during training they change only how validation translates. The weights after an update
never depend on them. The choice of `best` and the stop by `patience` may depend on them, as on `valid_every` and
`best_metric`. The names of files (`shards.FILE_KEYS`) may change too, because the shards' contents are compared."""

STEP = re.compile(r"step-(\d+)")
LINKS = ("best", "last")
LOCK = ".lock"


def not_a_run(path: Path) -> str:
    """Return why training may not write into an existing folder, which is then neither empty nor a run.

    Return "" if training may write.
    """
    if not path.is_dir():
        return "it is not a folder"
    names = {item.name for item in path.iterdir()}
    checkpoints = path / "checkpoints"
    if not names or (LOCK in names and checkpoints.is_dir()):
        return ""
    if checkpoints.is_dir() and any(
        (folder / STATE).is_file() and (folder / CONFIG).is_file() for folder in checkpoints.glob("step-*")
    ):
        return ""
    return f"it holds {sorted(names)[0]!r} and no checkpoints of nmt train"


class RunFolder:
    """Reads and writes one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self._lock: Lock | None = None

    def create(self, *, dry_run: bool = False) -> None:
        """Create the folder, lock it until `close` or the end of this process, and remove partial files of killed
        processes. With `dry_run`, nothing is written: raise only the errors.

        Raises UsageError when training may not write into the folder, TrainingError when it cannot, or when another
        process trains in it.
        """
        checkpoints, lock_file = self.path / "checkpoints", self.path / LOCK
        try:
            if (self.path.exists() or self.path.is_symlink()) and (reason := not_a_run(self.path)):
                raise UsageError(
                    f"--run {str(self.path)!r} is not a run folder: {reason}. Give a new or an empty folder, "
                    "or an earlier run."
                )
            self._check_writable()
            if not dry_run:
                checkpoints.mkdir(parents=True, exist_ok=True)
            if not dry_run or lock_file.exists():
                busy = TrainingError(
                    f"another nmt train is using {str(self.path)!r}. Let it finish, or start another run with "
                    "--run DIR."
                )
                self._lock = Lock(lock_file, busy, shared=dry_run, flags=os.O_RDWR | os.O_CREAT)
            if dry_run:
                self.close()
                return
            clear_partial(self.path, [*LINKS, self.metrics.name, "averaged"])
            clear_partial(checkpoints, STEP)
            for deleted in checkpoints.glob(".step-[0-9]*.deleted"):
                shutil.rmtree(deleted, ignore_errors=True)
        except OSError as error:
            raise write_failed(error, self.path, "the run", TrainingError) from None

    def _check_writable(self) -> None:
        """Raise OSError when a part of the run cannot be written, UsageError when a name is taken by something else."""
        for link in (self.path / name for name in LINKS):
            if link.exists() and not link.is_symlink():
                raise UsageError(
                    f"{str(link)!r} is not a link: nmt train keeps this name for a link to a checkpoint. Move it away; "
                    "if the run was copied, links must stay links (cp -a)."
                )
        for file in (self.metrics, self.log, self.path / LOCK):
            if file.is_symlink() or (file.exists() and not file.is_file()):
                raise UsageError(
                    f"{str(file)!r} is no plain file: nmt train would write into what is there. Move it away."
                )
            if file.exists():
                file.open("a").close()
        for folder in (existing(self.path), self.path / "checkpoints"):
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
            if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    def check_disk(self, parameters: int, kept: int) -> None:
        """Warn if the disk has no space for as many checkpoints as are missing of `kept`.

        Raises TrainingError if not even one fits.
        """
        size = BYTES_PER_PARAMETER * parameters
        missing = max(1, kept - len(self.checkpoints()))
        total, _, free = shutil.disk_usage(existing(self.path))
        if not total or free >= missing * size:  # 0: a file system that does not report its size
            return
        sizes = f"a checkpoint takes {size / 2**20:,.1f} MiB, and {free / 2**20:,.1f} MiB are free"
        if free < size:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise of_machine(TrainingError(f"{write_failed(full, self.path, 'a checkpoint')} Of this model {sizes}."))
        console.warn(
            f"the disk of {str(self.path)!r} may become full: {sizes}. With train.keep and train.keep_best, the run "
            f"needs space for {missing:,} more checkpoints"
        )

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock:
            self._lock.close()

    def checkpoints(self) -> list[Checkpoint]:
        """Return the run's checkpoints, the oldest first."""
        checkpoints = []
        for folder in (self.path / "checkpoints").glob("step-*"):
            if match := STEP.fullmatch(folder.name):
                checkpoints.append(Checkpoint(folder, int(match[1])))
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.update)

    def save(
        self, progress: TrainingProgress, optimizer_state: Mapping[str, Tensor], write_model: Callable[[Path], None]
    ) -> None:
        """Write a checkpoint, whose model folder `write_model` writes, and point the link `last` to it.

        Raises TrainingError; earlier checkpoints then stay unchanged.
        """
        from safetensors.torch import save_file

        folder = self.checkpoint_folder(progress.update)
        try:
            with new_folder(folder) as partial:
                save_file(dict(optimizer_state), partial / OPTIMIZER_STATE)
                write_model(partial)
                mode = (partial / CONFIG).stat().st_mode
                (partial / OPTIMIZER_STATE).chmod(mode)  # safetensors lets only the owner read it
                state = State(
                    format_version=State.newest,
                    progress=progress,
                    sha256={name: sha256(partial / name) for name in (OPTIMIZER_STATE, CONFIG)},
                )
                (partial / STATE).write_bytes(to_json(state))
            self.point("last", folder)
        except (OSError, SafetensorError) as error:
            raise write_failed(system_error(error), folder, "a checkpoint", TrainingError) from None

    def checkpoint_folder(self, update: int) -> Path:
        """Return the folder of the checkpoint after `update` updates."""
        return self.path / "checkpoints" / f"step-{update:08d}"

    def point(self, link: str, folder: Path) -> None:
        """Point the link `best` or `last` to a checkpoint. Raises TrainingError."""
        try:
            link_atomic(self.path / link, str(folder.relative_to(self.path)))
        except OSError as error:
            raise write_failed(error, self.path / link, "a link", TrainingError) from None

    def prune(self, train: TrainSection) -> None:
        """Delete all checkpoints except the latest `keep` periodic ones, the best `keep_best` and the newest.

        First point `last` and `best` to the last and the best one: an earlier process may have been killed before it
        did so. At no moment does a link point to a deleted checkpoint. Checkpoints that are damaged or contain other
        files are not deleted.
        """
        checkpoints = self.checkpoints()
        best, periodic = best_of(checkpoints, train.chosen_by), [c for c in checkpoints if c.periodic]
        for link, choice in (("last", checkpoints[-1:]), ("best", best[:1])):
            if choice:
                self.point(link, choice[0].folder)
        kept = {c.folder for c in (*periodic[-train.keep :], *best[: train.keep_best], *checkpoints[-1:])}
        for checkpoint in checkpoints:
            if checkpoint.folder not in kept and not checkpoint.foreign():
                # a half-deleted folder is never a checkpoint
                hidden = checkpoint.folder.with_name(f".{checkpoint.folder.name}.deleted")
                shutil.rmtree(hidden, ignore_errors=True)
                checkpoint.folder.rename(hidden)
                shutil.rmtree(hidden, ignore_errors=True)

    def last_update(self) -> int | None:
        """Return the update of the newest checkpoint; None when there is no checkpoint yet."""
        checkpoints = self.checkpoints()
        return checkpoints[-1].update if checkpoints else None

    def load(
        self, update: int, recipe: Recipe, index: ShardIndex
    ) -> tuple[TrainingProgress, dict[str, Tensor], dict[str, Tensor]]:
        """Return progress, weights and optimizer state of the checkpoint after `update` updates, and ignore newer
        checkpoints.

        If the metric by which the best one is chosen has changed, `TrainingProgress.best` is None; see `best_score`.

        Raises ModelError when this checkpoint is missing; when it is damaged, with the name of the one before it; and
        when the recipe or the shards are those of another experiment.
        """
        from safetensors.torch import load_file

        checkpoints = [checkpoint for checkpoint in self.checkpoints() if checkpoint.update <= update]
        if not checkpoints or checkpoints[-1].update != update:
            raise ModelError(
                f"training resumes from update {update:,}, and {str(self.checkpoint_folder(update))!r} is not "
                "there: --data and --run must lie on a file system that all machines share."
            )
        checkpoint = checkpoints[-1]
        try:
            config, state = checkpoint.verify()
            progress = state.progress
            weights, optimizer_state = (load_file(checkpoint.folder / name) for name in (WEIGHTS, OPTIMIZER_STATE))
        except (NmtError, OSError, SafetensorError) as error:
            before = (
                f"The one before it is {checkpoints[-2].folder.name}: to resume from there"
                if len(checkpoints) > 1
                else "There is none before it: to start again"
            )
            raise ModelError(
                f"the newest checkpoint, {str(checkpoint.folder)!r}, is damaged: {error} {before}, remove "
                f"{str(checkpoint.folder)!r}."
            ) from None
        earlier = Recipe.from_dict(config.recipe, str(checkpoint.folder))
        check_same_experiment(earlier, recipe, self.path, names=not progress.data_fingerprint)
        if not trained_on(index, progress, config.tokenizers):
            raise ModelError(
                f"run {str(self.path)!r} began with shards of another text or tokenizer. Name those with "
                "--data, or start another run with --run DIR."
            )
        if recipe.train.chosen_by != earlier.train.chosen_by:
            progress.best, progress.since_best = None, 0
        return progress, weights, optimizer_state

    def last_line_with(self, start: str) -> str:
        """Return the last line of train.log that begins so, after its time; "" if there is none."""
        with suppress(OSError), self.log.open(encoding="utf-8", errors="replace") as lines:
            found = [line.strip() for line in lines if line.lstrip().startswith(start)]
            return found[-1] if found else ""
        return ""

    def best_score(self, metric: str) -> float | None:
        """Return the best score of the run's checkpoints by `metric`; None if none was validated."""
        return next((checkpoint.metrics[metric] for checkpoint in best_of(self.checkpoints(), metric)), None)


def check_same_experiment(old: Recipe, new: Recipe, run: Path, *, names: bool) -> None:
    """Raise ModelError if the recipe changed in keys that make it another experiment. The error names each such key.

    Without `names`, the names of files may change.
    """
    may_change = {**MAY_CHANGE, "data": MAY_CHANGE["data"] | (set() if names else set(FILE_KEYS))}
    before, after = old.to_dict(), new.to_dict()
    changed = [
        f"  - {section}.{key}: the run has {value!r}, the recipe {after[section][key]!r}"
        for section in ("data", "model", "train", "decode")
        for key, value in before[section].items()
        if after[section][key] != value and key not in may_change.get(section, set())
    ]
    if changed:
        raise ModelError(
            f"run {str(run)!r} cannot resume with another recipe:\n"
            + "\n".join(changed)
            + "\nSet them back, or start another run with --run DIR."
        )


def existing(path: Path) -> Path:
    """Return `path`, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def link_latest(run: Path) -> None:
    """Point the link `latest`, beside the run, to the run.

    If `latest` is not a link, or points outside this parent folder, it is not changed.
    """
    link = run.parent / "latest"
    if run.name == link.name or (link.is_symlink() and "/" in os.readlink(link)):
        return
    with suppress(OSError):  # only a convenience: the parent folder may belong to another user
        link_atomic(link, run.name)
