"""Models of the engine, on a CPU.

    model folders, or models of torch ──▶ EngineModels: packed once ─┬─▶ PlainSearch
                                                                     └─▶ other searches over EngineDecoder

All threads share the packed weights.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..data.tokenizer import EOS
from ..engine import model as engine
from ..engine.model import EngineModel, Finished, SearchRequest, use_threads
from ..search.arrays import NUMPY
from ..search.length_penalties import penalties_of
from ..search.search import ROWS, Search, SearchOptions, check_numbers
from ..search.sentence import FinishedSentences, Hypothesis, Sentence
from .processes import SearchableModels

if TYPE_CHECKING:
    from ..search.protocols import GrowingDecoder


MANY = 4
"""Number of sentences from which on those that finish within `SearchOptions.seconds` leave together: their time hardly
counts."""


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
        return bool(self.search.sentences)

    @property
    def open_hypotheses(self) -> int:
        return self.search.open_hypotheses

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        longest = max(sentence.max_length for sentence in sentences)
        self.search.add(
            sentence_ids,
            [[*sentence.tokens, EOS] for sentence in sentences],
            [sentence.max_length for sentence in sentences],
            penalties_of(self.options.length_penalty, self.options.alpha, longest),
        )

    def step(self) -> FinishedSentences:
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


class EngineDecoder(engine.EngineDecoder):
    """A `RankingDecoder` and an `AttentionDecoder` that holds no sentences at first."""

    arrays = NUMPY

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    def record_attention(self, layer: int | None = None) -> None:
        """See `AttentionDecoder`. Without a `layer`: the one that alignments use."""
        super().record_attention(max(self.model.config.decoder_layers - 2, 0) if layer is None else layer)


class EngineModels(SearchableModels):
    """A model, or an ensemble. `workers` search at once; `cores` are those of the CPU."""

    on_host = True

    def __init__(self, models: Sequence[EngineModel], workers: int, cores: int) -> None:
        super().__init__(workers, cores)
        self.models, self.has_plain_search = models, len(models) == 1

    @property
    def max_positions(self) -> int:
        return min(model.max_positions for model in self.models)

    @property
    def aligning(self) -> EngineModel:
        return self.models[0]

    def plain_search(self, options: SearchOptions) -> Search:
        return PlainSearch(self.models[0], options)

    def decoders(self, beam: int) -> list[GrowingDecoder]:
        return [EngineDecoder(model, beam) for model in self.models]

    def use_threads(self, count: int) -> None:
        use_threads(count)
