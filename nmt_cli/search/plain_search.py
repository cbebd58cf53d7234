"""Plain beam search, which the engine does as a whole; torch is not loaded.

    sentences ──▶ PlainSearch ──▶ EngineSearch: several steps in one call ──▶ hypotheses of the sentences that leave

`beam_search` is the same search step by step, with constraints, and explains the rules. Both give the same results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..data.tokenizer import EOS
from ..engine.model import EngineModel, Finished, SearchRequest
from ..recipe import DecodeSection
from .length_penalties import penalties_of
from .search import ROWS, Search, SearchOptions, check_numbers
from .sentence import FinishedSentences, Hypothesis, Sentence

MANY = 4
"""Number of sentences from which on those that finish within `SearchOptions.seconds` leave together: their time hardly counts."""


def is_plain(decode: DecodeSection) -> bool:
    """Return whether these options ask for nothing but plain beam search."""
    return decode.search == "beam" and not (decode.coverage_penalty or decode.constraints or decode.constraint_options)


class PlainSearch(Search):
    """See `Search`. Constraints of the options are not used, nor is the coverage penalty."""

    def __init__(self, model: EngineModel, options: SearchOptions) -> None:
        self.options = options
        self.search = model.search(
            SearchRequest(
                beam=options.beam,
                nbest=options.nbest,
                bos=options.bos,
                eos=options.eos,
                lookahead=options.lookahead if options.stop_early else 0,
                min_length=options.min_length,
                banned=options.banned_tokens,
                textless=options.textless,
                paths=options.token_log_probs,
            )
        )
        self._seconds = 0.0  # per hypothesis in the last step, if `SearchOptions.seconds` asks for it

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return bool(self.search.sentences)

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return self.search.open_hypotheses

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """See `Search`."""
        longest = max(sentence.max_length for sentence in sentences)
        self.search.add(
            sentence_ids,
            [[*sentence.tokens, EOS] for sentence in sentences],
            [sentence.max_length for sentence in sentences],
            penalties_of(self.options.length_penalty, self.options.alpha, longest),
        )

    def step(self) -> FinishedSentences:
        """See `Search`."""
        options, count = self.options, max(1, self.open_hypotheses)
        steps, stay = max(1, min(options.steps, ROWS // count)), options.compact_below
        if options.seconds:
            steps = max(1, min(options.steps, int(options.seconds / (self._seconds * count)))) if self._seconds else 1
            stay = stay if self.search.sentences < MANY else 0.0
        began = time.perf_counter()
        finished = self.search.step(steps, stay)
        self._seconds = (time.perf_counter() - began) / (steps * count)
        return [] if finished is None else list(_hypotheses(finished))

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """See `Search`."""
        self.search.drop(sentence_ids)


def _hypotheses(found: Finished) -> FinishedSentences:
    """Return the hypotheses of each sentence. Raises ModelError, see `check_numbers`."""
    results: FinishedSentences = []
    columns = zip(
        *(column.tolist() for column in (found.ids, found.lengths, found.tokens, found.log_probs, found.scores)),
        strict=True,
    )
    for number, (identity, *of_sentence) in enumerate(columns):
        every = [Hypothesis(t[:n], p, s) for n, t, p, s in zip(*of_sentence, strict=True) if s != -np.inf]
        if found.paths is not None:
            every = [h.with_path(path) for h, path in zip(every, found.paths[number].tolist(), strict=False)]
        results.append((identity, check_numbers(every)))
    return results
