"""An ensemble: a decoder that averages the probabilities of several decoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from .arrays import Array


class EnsembleDecoder:
    """Averages the probabilities of several `GrowingDecoder`s over the same sentences and vocabulary."""

    def __init__(self, members: Sequence[Any]) -> None:
        self.members, self.arrays = members, members[0].arrays

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        for member in self.members:
            member.add(sources)

    def step(self, tokens: Array, rows: np.ndarray) -> Array:
        """See `Decoder`; the logits are log-probabilities."""
        log_probs = [self.arrays.log_softmax(member.step(tokens, rows)) for member in self.members]
        largest = reduce(self.arrays.maximum, log_probs)
        total = sum(self.arrays.exp(each - largest) for each in log_probs)
        return self.arrays.log(total) + (largest - math.log(len(log_probs)))

    def reorder(self, parents: Array) -> None:
        for member in self.members:
            member.reorder(parents)

    def keep(self, sentences: np.ndarray) -> None:
        for member in self.members:
            member.keep(sentences)
