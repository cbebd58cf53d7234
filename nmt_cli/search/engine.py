"""What the engine computes for searches: plain beam search as a whole, and a decoder for the other searches.

    EngineModel ─┬─▶ EngineSearch: a `Search`, several steps in one call
                 └─▶ EngineDecoder: a `Decoder` of `protocols`, one step at a time

    B sentences   W beam   N rows of a step   V target vocabulary   S source tokens   C candidates
    F sentences that leave   K n-best   L tokens of the longest output

src/nmt.h has the functions. A search or a decoder is used by one thread at a time. Every method raises ModelError for
what the engine refuses, and MemoryError.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.library import OPTIONS, CSearchOptions
from ..engine.model import EngineModel, Owner, Ranking, address, checked, expect, flattened, integers
from .arrays import NUMPY, Array
from .length_penalties import penalties_of
from .protocols import alignment_layer
from .search import ROWS, Search, SearchOptions, check_numbers
from .sentence import FinishedSentences, Hypothesis, Sentence

MANY = 4
"""Number of sentences from which on those that finish within `SearchOptions.seconds` leave together: their time hardly
counts."""


class EngineSearch(Owner, Search):
    """Plain beam search. Constraints of the options are not used, nor is the coverage penalty."""

    def __init__(self, model: EngineModel, options: SearchOptions) -> None:
        self.model, self.library, self.options = model, model.library, options
        self._seconds = 0.0  # per hypothesis in the last step, if `SearchOptions.seconds` asks for it
        banned, textless = integers(options.banned_tokens), integers(options.textless)
        described = CSearchOptions(
            **{name: getattr(options, name) for name in OPTIONS},
            paths=options.token_log_probs,
            banned_count=len(banned),
            textless_count=len(textless),
            banned=address(banned),
            textless=address(textless),
        )
        self.delete = self.library.nmt_search_delete
        self.handle = checked(self.library, self.library.nmt_search_new(model.handle, ctypes.byref(described)))

    @property
    def sentences(self) -> int:
        """B."""
        return int(self.library.nmt_search_sentences(self.handle))

    @property
    def busy(self) -> bool:
        return self.sentences > 0

    @property
    def open_hypotheses(self) -> int:
        return int(self.library.nmt_search_open(self.handle))

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        options = self.options
        pairs = zip(sentence_ids, sentences, strict=True)  # the engine trusts that they are as many
        numbers = integers([number for number, _ in pairs])
        lengths, tokens = flattened([[*sentence.tokens, options.eos] for sentence in sentences])
        longest = integers([sentence.max_length for sentence in sentences])
        penalties = penalties_of(options.length_penalty, options.alpha, int(longest.max(initial=0)))
        of_sentences = map(address, (numbers, lengths, tokens, longest))
        done = self.library.nmt_search_add(self.handle, len(numbers), *of_sentences, len(penalties), address(penalties))
        checked(self.library, done)

    def step(self) -> FinishedSentences:
        options, count = self.options, max(1, self.open_hypotheses)
        steps, stay = max(1, min(options.steps, ROWS // count)), options.compact_below
        if options.seconds:
            steps = max(1, min(options.steps, int(options.seconds / (self._seconds * count)))) if self._seconds else 1
            stay = stay if self.sentences < MANY else 0.0
        began = time.perf_counter()
        found = self.library.nmt_search_step(self.handle, steps, stay)
        self._seconds = (time.perf_counter() - began) / (steps * count)
        if not found:
            checked(self.library, None)
        return self._finished(found.contents) if found.contents.count else []

    def drop(self, sentence_ids: Sequence[int]) -> None:
        numbers = integers(sentence_ids)
        checked(self.library, self.library.nmt_search_drop(self.handle, len(numbers), address(numbers)))

    def _finished(self, found: Any) -> FinishedSentences:
        """Return the hypotheses of the sentences that leave. Raises ModelError, see `check_numbers`."""
        of_outputs = (found.count, found.nbest)  # (F, K)
        of_tokens = (*of_outputs, found.longest)  # (F, K, L)
        ids, lengths = _values(found.ids, (found.count,)), _values(found.lengths, of_outputs)
        tokens, paths = _values(found.tokens, of_tokens), list[Any]()
        log_probs, scores = _values(found.log_probs, of_outputs), _values(found.scores, of_outputs)
        if self.options.token_log_probs:
            paths = _values(found.paths, of_tokens)
        results: FinishedSentences = []
        for number, (identity, *columns) in enumerate(zip(ids, lengths, tokens, log_probs, scores, strict=True)):
            every = [Hypothesis(t[:n], p, s) for n, t, p, s in zip(*columns, strict=True) if s != -np.inf]
            if paths:
                every = [h.with_path(path) for h, path in zip(every, paths[number], strict=False)]
            results.append((identity, check_numbers(every)))
        return results


def _values(pointer: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the numbers at a pointer, which may be null if the shape has no numbers."""
    values: list[Any] = (np.ctypeslib.as_array(pointer, shape) if pointer else np.zeros(shape, np.int64)).tolist()
    return values


class EngineDecoder(Owner):
    """A `RankingDecoder` and an `AttentionDecoder`. Hypothesis w of sentence b is number b * W + w."""

    arrays = NUMPY

    def __init__(self, model: EngineModel, beam: int) -> None:
        self.model, self.library, self.sentences, self.beam = model, model.library, 0, beam
        self.vocabulary = model.vocabulary
        self.rows = 0  # of the last step
        self.delete = self.library.nmt_decoder_delete
        self.handle = checked(self.library, self.library.nmt_decoder_new(model.handle, beam))

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        lengths, tokens = flattened(sources)
        checked(
            self.library, self.library.nmt_decoder_add(self.handle, len(lengths), address(lengths), address(tokens))
        )
        self.sentences += len(lengths)

    def step(self, tokens: Array, rows: np.ndarray) -> Array:
        opened, newest = self._opened(tokens, rows)
        logits = np.empty((len(opened), self.vocabulary), np.float32)
        arguments = map(address, (opened, newest, logits))
        checked(self.library, self.library.nmt_decoder_step(self.handle, len(opened), *arguments))
        self.rows = len(opened)
        return logits

    def best(
        self,
        tokens: Array,
        rows: np.ndarray,
        log_probs: Array,
        count: int,
        banned_tokens: Sequence[int],
        only: Array | None,
        banned_counts: Array | None,
    ) -> tuple[Array, Array]:
        opened, newest = self._opened(tokens, rows)
        shape = (self.sentences, self.beam)
        ranking = Ranking(log_probs, shape, len(opened), count, banned_tokens, only, banned_counts)
        done = self.library.nmt_decoder_best(
            self.handle, len(opened), address(opened), address(newest), *ranking.arguments
        )
        checked(self.library, done)
        self.rows = len(opened)
        return ranking.values, ranking.numbers

    def reorder(self, parents: Array) -> None:
        numbers = integers(parents)
        expect("parents", numbers.shape, (self.sentences, self.beam))
        checked(self.library, self.library.nmt_decoder_reorder(self.handle, address(numbers)))

    def keep(self, sentences: np.ndarray) -> None:
        numbers = integers(sentences)
        checked(self.library, self.library.nmt_decoder_keep(self.handle, len(numbers), address(numbers)))
        self.sentences, self.rows = len(numbers), 0

    def record_attention(self, layer: int | None = None) -> None:
        """See `AttentionDecoder`. `layer` is an index from 0; None: that of `alignment_layer`."""
        chosen = alignment_layer(self.model.config) if layer is None else layer
        checked(self.library, self.library.nmt_decoder_record(self.handle, chosen))

    def attention(self) -> Array:
        longest = self.library.nmt_decoder_attention(self.handle, None)
        weights = np.zeros((self.rows, longest))
        self.library.nmt_decoder_attention(self.handle, address(weights))
        return weights

    def _opened(self, tokens: Array, rows: np.ndarray) -> tuple[Array, Array]:
        """Return the numbers of the open hypotheses, and their newest tokens."""
        expect("newest tokens", np.shape(tokens), (self.sentences, self.beam))
        opened = integers(rows)
        inside = opened.clip(0, max(0, np.size(tokens) - 1))  # the engine refuses what is not
        return opened, integers(np.ravel(tokens)[inside]) if np.size(tokens) else np.zeros_like(opened)
