"""What searches over arrays share: sentences enter at any step, leave when enough of them are finished, or are dropped.

add ──▶ _enter ──▶ step: _step, then _leave ──▶ the results of the sentences that leave
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import quiet
from .constraint import Constraints
from .min_length import MinLength
from .protocols import Decoder
from .search import Search, SearchOptions
from .sentence import FinishedSentences


class ArraySearch(Search):
    """See `Search`. `state`: the `Rows` of the sentences, with their `sentences`; None: there are none."""

    unfinished: np.ndarray
    """(B,) whether a sentence has an open hypothesis."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.arrays, self.options = decoder, decoder.arrays, options
        self.min_length, self.constraints = MinLength(options), Constraints(options.constraints)
        self.state: Any = None

    @property
    def busy(self) -> bool:
        return self.state is not None

    @abstractmethod
    def _step(self, state: Any) -> None:
        """Add a token to each open hypothesis, of which there is at least one; in place."""

    @abstractmethod
    def _read(self, state: Any) -> None:
        """Set `unfinished` and whatever else a step needs on the host."""

    @abstractmethod
    def _results(self, leaving: Any) -> FinishedSentences:
        """Return the hypotheses of sentences that leave."""

    def _enter(self, state: Any) -> None:
        """Add new sentences behind the others."""
        self._set(self.state.concat(state) if self.state else state)

    @quiet
    def step(self) -> FinishedSentences:
        if self.state is None:
            return []
        if self.open_hypotheses:  # else all others were dropped
            self._step(self.state)
            self._read(self.state)
        split = self._split(self.unfinished)
        if split is None:
            return []
        stay, leave = split
        leaving = self.state.select(self.arrays.array(leave)) if len(stay) else self.state
        self._keep(stay)
        return self._results(leaving)

    def drop(self, sentence_ids: Sequence[int]) -> None:
        if self.state:
            ids = self.arrays.host(self.state.sentences.ids)
            self._keep(np.isin(ids, list(sentence_ids), invert=True).nonzero()[0])

    def _split(self, unfinished: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the indices of the sentences that stay and of those that leave; None: no sentence leaves in this step.

        `unfinished` (B,) says which sentences still have open hypotheses. Sentences leave once at most the share
        `compact_below` is unfinished.
        """
        count = np.count_nonzero(unfinished)
        if count > self.options.compact_below * len(unfinished) or count == len(unfinished):
            return None
        return unfinished.nonzero()[0], (~unfinished).nonzero()[0]

    def _keep(self, stay: np.ndarray) -> None:
        """Keep the sentences at the indices `stay` (on the host), and drop the others here and in the decoder."""
        self.decoder.keep(stay)
        self._set(self.state.select(self.arrays.array(stay)) if len(stay) else None)

    def _set(self, state: Any) -> None:
        """Make this the state of the search."""
        self.state = state
        if state:
            self._read(state)
