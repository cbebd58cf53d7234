"""Writes checkpoints, in three steps: flush the metrics, write the folder, prune old checkpoints.

Also decides when a save by time is due.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..data.tokenizer import Vocabulary
from ..model.folder import weights_of
from ..recipe import Recipe
from .progress import Progress
from .report import Report
from .run import RunFolder, link_latest
from .update import Updater


@dataclass
class Checkpointer:
    """Writes the checkpoints of one run, on rank 0."""

    run: RunFolder
    recipe: Recipe
    vocabulary: Vocabulary
    report: Report
    safe_length: int
    """See `ModelConfig`."""
    saved_at: float = field(default_factory=time.monotonic)
    """The time, by time.monotonic, when this process saved its latest checkpoint; before the first save, when it
    started."""

    def minutes_have_passed(self) -> bool:
        """Return whether train.checkpoint_minutes have passed since the latest checkpoint."""
        minutes = self.recipe.train.checkpoint_minutes
        return minutes > 0 and time.monotonic() - self.saved_at >= 60 * minutes

    def write(self, updater: Updater, progress: Progress, is_final: bool) -> Path:
        """Write a checkpoint of this update, if there is none yet, and return its folder. Raises TrainingError.

        `is_final`: training ends here, but not because of a signal. Such a checkpoint counts as periodic.
        """
        train = self.recipe.train
        is_due = progress.update % train.checkpoint_every == 0 if train.checkpoint_every else self.minutes_have_passed()
        progress.periodic = is_due or is_final
        self.saved_at = time.monotonic()
        checkpoints = self.run.checkpoints()
        if checkpoints and checkpoints[-1].update == progress.update:
            return self.run.checkpoint_folder(progress.update)
        progress.metrics_bytes = self.report.flush()
        scores = progress.validation if progress.validation.get("update") == progress.update else {}
        self.run.save(
            weights_of(updater.weights.model),
            updater.optimizer_state(),
            progress,
            self.recipe,
            (self.vocabulary.source_size, self.vocabulary.target_size),
            self._tokenizers(),
            scores,
            self.safe_length,
        )
        link_latest(self.run.path)
        self.prune()
        return self.run.checkpoint_folder(progress.update)

    def prune(self) -> None:
        """Delete the checkpoints that the recipe does not keep."""
        train = self.recipe.train
        self.run.prune(train.keep, train.keep_best, train.best_metric)

    def _tokenizers(self) -> Mapping[str, bytes]:
        return {name: tokenizer.model for name, tokenizer in self.vocabulary.files.items()}
