"""The length up to which a model translates lines whole: how long the lines are that it has learnt to translate."""

from __future__ import annotations

import numpy as np

from .batches import WINDOW, Lengths

SHARE = 0.99
"""The share of the training lines that are not longer."""


def safe_length(*sides: Lengths) -> int:
    """Return the smallest length, in tokens, that SHARE of the lines of these sides do not exceed; at least 1.

    Memory does not grow with the corpus.
    """
    longest = max(int(side.max(initial=1)) for side in sides)
    counts = np.zeros(longest + 1, np.int64)  # lines of each length
    for side in sides:
        for start in range(0, len(side), WINDOW):
            pairs = np.arange(start, min(start + WINDOW, len(side)))
            counts += np.bincount(side[pairs], minlength=len(counts))
    return max(1, int(np.searchsorted(counts.cumsum(), SHARE * counts.sum())))
