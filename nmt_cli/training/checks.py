"""Checks and warnings before a training starts. A dry run makes the same ones, because both construct a `Trainer`."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from ..data.shards import ShardIndex
from ..errors import TrainingError, write_failed
from ..recipe import Recipe
from .schedule import concerns

CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the weight and Adam's two moments in fp32."""


def warnings_of(recipe: Recipe, index: ShardIndex) -> list[str]:
    """Return the warnings about a training of `recipe` on these shards. `nmt train` and its dry run print them."""
    warnings = concerns(recipe.train)
    if not has_validation(index):
        warnings.append("the shards hold no validation pairs: no scores, no best checkpoint, no early stopping")
    return warnings


def has_validation(index: ShardIndex) -> bool:
    """Return whether the shards hold validation pairs."""
    return "valid" in index.splits and index.splits["valid"].pairs > 0


def check_disk(run: Path, parameters: int, checkpoints: int) -> str:
    """Return a warning if the disk of the run has no space for `checkpoints` more checkpoints, else "".

    Raises TrainingError if not even one fits.
    """
    size = parameters * CHECKPOINT_BYTES
    total, _, free = shutil.disk_usage(existing(run))
    if not total or free >= checkpoints * size:  # 0: a file system that does not report its size
        return ""
    sizes = f"a checkpoint takes {size / 2**20:,.1f} MiB, and {free / 2**20:,.1f} MiB are free"
    if free < size:
        full = write_failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), run, "a checkpoint", TrainingError)
        raise TrainingError(f"{full} Of this model {sizes}.")
    return (
        f"the disk of {str(run)!r} may become full: {sizes}. With train.keep and train.keep_best, the run needs space "
        f"for {checkpoints:,} more checkpoints"
    )


def existing(path: Path) -> Path:
    """Return `path`, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())
