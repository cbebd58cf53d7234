"""Minimum Bayes risk decoding: choose the hypothesis that is most similar to all others, not the most probable one.

    sampling or beam search ──▶ n hypotheses of a sentence ──▶ their texts ──▶ utilities (n, n) ──▶ by expected utility

Eikema and Aziz (2020, 2022) choose among random samples of the model the one whose expected utility is greatest. The
same samples are candidates and pseudo-references. The expected utility of a candidate is its mean utility against all
samples. The utility is a sentence-level metric (`nmt_cli.registry.UTILITIES`), as in Freitag et al. (2022).

With `candidates = "beam"`, the hypotheses are the n-best list of beam search. Each is weighted by its probability: the
softmax of log P over the list.

The search itself is sampling or beam search. The hypotheses of a sentence are ranked when it is finished, so the result
does not depend on the other sentences. `beam` is the number of hypotheses per sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..registry import UTILITIES, load
from .beam_search import BeamSearch
from .protocols import Decoder
from .sampling import SamplingSearch
from .search import SamplingOptions, Search, SearchOptions
from .sentence import FinishedSentences, Hypothesis, Sentence

Utility = Callable[[Sequence[str]], NDArray[np.float64]]
"""A utility function, as `nmt_cli.registry.UTILITIES` lists them: n texts → (n, n), with hypothesis i in row i and
reference j in column j."""

CANDIDATES: dict[str, Callable[[Decoder, SearchOptions], Search]] = {"sample": SamplingSearch, "beam": BeamSearch}
"""The searches that find the hypotheses, by `MbrOptions.candidates`."""


class MbrSearch:
    """See `Search`. The score of a hypothesis is its expected utility; its log P is the model's own."""

    SAMPLING = SamplingOptions(min_p=0.02)
    """The sampling options if no others are given. Improbable tokens make poor pseudo-references (Freitag et al. 2023).
    """

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        """Raises UsageError for an unknown utility."""
        self.options, mbr = options, options.mbr
        self.utility: Utility = load(UTILITIES, mbr.utility, "utility")
        self.search = CANDIDATES[mbr.candidates](decoder, replace(options, nbest=options.beam))

    @property
    def busy(self) -> bool:
        return self.search.busy

    @property
    def open_hypotheses(self) -> int:
        return self.search.open_hypotheses

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        self.search.add(sentence_ids, sentences)

    def step(self) -> FinishedSentences:
        return [(sentence, self._ranked(hypotheses)) for sentence, hypotheses in self.search.step()]

    def drop(self, sentence_ids: Sequence[int]) -> None:
        self.search.drop(sentence_ids)

    def _ranked(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Return the `nbest` hypotheses of one sentence by expected utility."""
        texts = self.options.detokenize([h.tokens for h in hypotheses])
        weights = np.ones(len(hypotheses))
        if self.options.mbr.candidates == "beam":
            weights = np.exp(np.array([h.log_prob for h in hypotheses]) - max(h.log_prob for h in hypotheses))
        return by_expected_utility(hypotheses, texts, weights, self.utility)[: self.options.nbest]


def by_expected_utility(
    hypotheses: Sequence[Hypothesis], texts: Sequence[str], weights: NDArray[np.float64], utility: Utility
) -> list[Hypothesis]:
    """Return the hypotheses with distinct texts by expected utility, best first; their score is the expected utility.

    `weights` (n,) are the probabilities of the hypotheses up to a factor. Utilities that differ by rounding alone are
    equal. Equal utilities are ordered by log P, then by the order of `hypotheses`. Of hypotheses with equal texts,
    the first in this order is returned.
    """
    order = sorted(range(len(hypotheses)), key=lambda i: -hypotheses[i].log_prob)
    index = {text: number for number, text in enumerate(dict.fromkeys(texts[i] for i in order))}
    of_text = np.bincount([index[text] for text in texts], weights, len(index))
    expected = (utility(list(index)) * of_text).sum(
        1
    ) / of_text.sum()  # not a matrix product: its last bit may depend on the threads
    first = {index[texts[i]]: i for i in reversed(order)}  # the most probable hypothesis of each text
    best_first = np.argsort(-expected.round(9), kind="stable").tolist()
    return [replace(hypotheses[first[number]], score=float(expected[number])) for number in best_first]
