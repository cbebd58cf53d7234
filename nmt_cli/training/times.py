"""How long a training takes: updates, with validations and checkpoints between them.

    speed.measure ──▶ Speed ──▶ intervals: how often to validate and to save      (nmt init)
                            └─▶ Speed.seconds: a range for the whole training     (nmt init, nmt train --dry-run)

Nothing here loads torch.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BYTES_PER_PARAMETER = 12
"""Of a checkpoint: the weight and Adam's two moments in fp32."""
WRITTEN = 2**26
"""The most bytes that `seconds_to_save` writes."""
CHECKPOINTS, VALIDATIONS, AVERAGED = 80, 20, 10
"""The numbers of checkpoints and validations of a training, and of checkpoints that are averaged, if there is time."""
SAVING, VALIDATING = 0.05, 0.1
"""The largest shares of the time of the updates that checkpoints and validations take."""


@dataclass(frozen=True)
class Intervals:
    """How often a training validates and saves, in updates, and how many checkpoints it averages."""

    valid_every: int
    checkpoint_every: int
    """0: checkpoints are not counted."""
    average: int = AVERAGED


@dataclass(frozen=True)
class Speed:
    """Seconds of the parts of a training on this machine."""

    fastest: float
    slowest: float
    """Of one update, as measured."""
    start: float = 0.0
    """How much longer the first updates take."""
    save: float = 0.0
    validation: float = 0.0

    def seconds(self, updates: int, every: Intervals) -> tuple[float, float]:
        """Return the shortest and the longest time of `updates` updates, with validations and checkpoints."""
        around = self.start + self.validation * math.ceil(updates / every.valid_every)
        around += self.save * math.ceil(updates / (every.checkpoint_every or max(updates, 1)))
        return updates * self.fastest + around, updates * self.slowest + around

    def intervals(self, updates: int, most_kept: float = math.inf) -> Intervals:
        """Return the intervals of a new training.

        There are CHECKPOINTS and VALIDATIONS, or as many as take the shares SAVING and VALIDATING of the time. The
        checkpoints of the last eighth are averaged: AVERAGED, and no more than `most_kept`.
        """
        save = max(1, updates // CHECKPOINTS, math.ceil(self.save / (SAVING * self.slowest)))
        save = min(updates, save)
        affordable = math.ceil(self.validation / (VALIDATING * self.slowest * save))
        validate = min(updates, save * max(1, updates // VALIDATIONS // save, affordable))  # a better one saves too
        average = min(AVERAGED, round(updates / save * AVERAGED / CHECKPOINTS), int(min(most_kept, AVERAGED)))
        return Intervals(validate, save, max(1, average))


def validation_seconds(update: float, batch_tokens: int, pairs: int, tokens: float, translated: int) -> float:
    """Return the seconds of a validation on `pairs` pairs with `tokens` target tokens, `translated` of them translated.

    It is computed from the seconds of an update: the loss needs only the forward pass, a third of the work, and a
    translated token takes about as long as a token of an update.
    """
    return update / batch_tokens * tokens * (1 / 3 + min(1.0, translated / max(1, pairs)))


def seconds_to_save(folder: Path, parameters: int) -> float:
    """Return the seconds in which the disk of `folder` takes a checkpoint, from a file of at most WRITTEN bytes that
    has no name; 0.0 if it takes none.
    """
    size = BYTES_PER_PARAMETER * parameters
    part = os.urandom(max(1, min(size, WRITTEN)))
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as stream:
        start = time.perf_counter()
        stream.write(part)
        stream.flush()
        os.fsync(stream.fileno())
        hashlib.sha256(part).digest()
        return (time.perf_counter() - start) * size / len(part)
    return 0.0
