"""Training in both directions: half of the pairs of each epoch are read from target to source.

    pair ──▶ (source, target) or (target, source), drawn from the seed, the epoch and the index of the pair

One model then translates both ways (Niu et al. 2018, arXiv 1805.11213). Only the source text shows the direction. Such
a model can initialise a model of one direction (Ding et al. 2021, arXiv 2109.07780). It can also translate target text
back to make synthetic pairs (Sennrich et al. 2016, arXiv 1511.06709).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batches import Pair


@dataclass(frozen=True)
class BothDirections:
    """Swaps source and target of each pair with probability 1/2 in each epoch."""

    seed: int

    def __call__(self, pair: Pair, epoch: int, number: int) -> Pair:
        """Return the pair `number` of the corpus as it is read in `epoch`."""
        source, target = pair
        return (
            (target, source) if np.random.default_rng((self.seed, 1, epoch, number)).integers(2) else (source, target)
        )
