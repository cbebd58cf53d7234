"""The interfaces between a search and the code that computes for it.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   S source length

A search sees a `Decoder`, never a model. A decoder holds B sentences with W hypotheses each. Hypothesis w of sentence b
is number b * W + w. A hypothesis is open while tokens are still added to it. `cached_decoder` and `engine` have
decoders.

The arrays of a decoder are NumPy's or torch's (`arrays`). What the host must know, `rows` and `sentences`, is always an
array of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ..engine.model import Bans
from .arrays import Array, Arrays

if TYPE_CHECKING:
    from ..recipe import ModelSection
    from .search import Search, SearchOptions


class Decoder(Protocol):
    """A model with the sentences that are being translated."""

    @property
    def arrays(self) -> Arrays:
        """The kind of arrays that the decoder takes and returns."""

    def step(self, tokens: Array, rows: np.ndarray) -> Array:
        """Return logits of the next token of each open hypothesis, (N, V) fp32. The caller may write to them.

        `tokens` (B, W) are the newest tokens of all hypotheses; `rows` (N,) are the numbers of the open ones,
        ascending.
        """

    def reorder(self, parents: Array) -> None:
        """Replace hypothesis w of sentence b by hypothesis parents[b, w] of the same sentence; `parents` is (B, W)."""

    def keep(self, sentences: np.ndarray) -> None:
        """Keep the sentences at these indices, (B',) ascending, and drop the others."""


class GrowingDecoder(Decoder, Protocol):
    """A decoder that takes more sentences while it is in use."""

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Append sentences to those that the decoder holds. `sources` are their token ids, end symbols included."""


def alignment_layer(config: ModelSection) -> int:
    """Return the index of the decoder layer that alignments use, the last but one: among single layers, its attention
    is nearest to alignments by people (Garg et al. 2019).
    """
    return max(config.decoder_layers - 2, 0)


@runtime_checkable
class RankingDecoder(Decoder, Protocol):
    """A decoder that ranks candidates itself and does not return logits, which is faster."""

    @property
    def vocabulary(self) -> int:
        """The size V of the vocabulary."""

    def best(
        self, tokens: Array, rows: np.ndarray, log_probs: Array, count: int, bans: Bans, only: Array | None
    ) -> tuple[Array, Array]:
        """Take a step. Return what `Arrays.top_candidates` does for its logits, which are not normalised."""


class SearchModels(Protocol):
    """Models, as the code that runs searches sees them (`running`)."""

    @property
    def rows(self) -> int:
        """Largest number of hypotheses in one step."""

    def in_engine(self, options: SearchOptions) -> bool:
        """Return whether the engine has a search of its own for sentences without inputs of constraints."""

    def new_search(self, options: SearchOptions, in_engine: bool) -> tuple[Search, GrowingDecoder | None]:
        """Return a search without sentences, and its decoder; `in_engine`: the engine's own, which has none."""

    def aligned(self, source: Sequence[int], output: Sequence[int]) -> list[int]:
        """Return for each token of an output the index of the token of the source to which it is aligned.

        `source` ends with the end symbol.
        """

    def use_threads(self, count: int) -> None:
        """Let the calling thread compute with `count` threads of a CPU from now on."""

    def computing(self) -> AbstractContextManager[object]:
        """Return the context in which the models compute."""
