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
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from ..engine.library import CResults, Owner, flattened, integers
from ..engine.model import Bans, EngineModel, expect, ranked
from .arrays import NUMPY, Array
from .length_penalties import penalties_of
from .search import ROWS, EngineOptions, Search, SearchOptions
from .sentence import FinishedSentences, Sentence, hypotheses_of

MANY = 4
"""Number of sentences from which on those that finish within `SearchOptions.seconds` leave together: their time hardly
counts."""


NAMES = [field.name for field in fields(EngineOptions)]


class CSearchOptions(ctypes.Structure):
    """nmt_search_options."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*NAMES, "banned_count", "textless_count")),
        *((name, ctypes.c_void_p) for name in ("banned", "textless")),
    )


class EngineSearch(Owner, Search):
    """Plain beam search. Constraints of the options are not used."""

    def __init__(self, model: EngineModel, options: SearchOptions) -> None:
        self.model, self.library, self.options = model, model.library, options
        self._seconds = 0.0  # per hypothesis in the last step, if `SearchOptions.seconds` asks for it
        lists = [integers(options.banned_tokens), integers(options.textless)]
        numbers = [getattr(options, name) for name in NAMES]
        described = CSearchOptions(*numbers, *map(len, lists), *(tokens.ctypes.data for tokens in lists))
        self.delete = self.library.nmt_search_delete
        self.handle = self.library.nmt_search_new(model.handle, ctypes.byref(described))

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
        lengths, tokens = flattened([[*sentence.tokens, *[options.eos] * sentence.ended] for sentence in sentences])
        longest = integers([sentence.max_length for sentence in sentences])
        penalties = penalties_of(
            options.length_penalty, options.alpha, options.word_penalty, int(longest.max(initial=0))
        )
        of_sentences = len(numbers), numbers, lengths, tokens, longest
        self.library.nmt_search_add(self.handle, *of_sentences, penalties.shape[1], *penalties)

    def step(self) -> FinishedSentences:
        options, count = self.options, max(1, self.open_hypotheses)
        steps, stay = max(1, min(options.steps, ROWS // count)), options.compact_below
        if options.seconds:
            steps = max(1, min(options.steps, int(options.seconds / (self._seconds * count)))) if self._seconds else 1
            stay = stay if self.sentences < MANY else 0.0
        began = time.perf_counter()
        found = CResults.from_address(self.library.nmt_search_step(self.handle, steps, stay))
        self._seconds = (time.perf_counter() - began) / (steps * count)
        return self._finished(found) if found.count else []

    def drop(self, sentence_ids: Sequence[int]) -> None:
        numbers = integers(sentence_ids)
        self.library.nmt_search_drop(self.handle, len(numbers), numbers)

    def _finished(self, found: CResults) -> FinishedSentences:
        """Return the hypotheses of the sentences that leave. Raises ModelError, see `check_numbers`."""
        of_outputs = (found.count, found.nbest)  # (F, K)
        of_tokens = (*of_outputs, found.longest)  # (F, K, L)
        columns = [_values(each, of_outputs) for each in (found.lengths, found.log_probs, found.scores)]
        paths = _values(found.paths, of_tokens) if self.options.token_log_probs else None
        every = hypotheses_of([_values(found.tokens, of_tokens), *columns], paths)
        return list(zip(_values(found.ids, (found.count,)), every, strict=True))


def _values(pointer: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the numbers at a pointer, which may be null if the shape has no numbers."""
    values: list[Any] = (np.ctypeslib.as_array(pointer, shape) if pointer else np.zeros(shape, np.int64)).tolist()
    return values


class EngineDecoder(Owner):
    """A `RankingDecoder`. Hypothesis w of sentence b is number b * W + w."""

    arrays = NUMPY

    def __init__(self, model: EngineModel, beam: int) -> None:
        self.model, self.library, self.sentences, self.beam = model, model.library, 0, beam
        self.vocabulary = model.vocabulary
        self.delete = self.library.nmt_decoder_delete
        self.handle = self.library.nmt_decoder_new(model.handle, beam)

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        lengths, tokens = flattened(sources)
        self.library.nmt_decoder_add(self.handle, len(lengths), lengths, tokens)
        self.sentences += len(lengths)

    def step(self, tokens: Array, rows: np.ndarray) -> Array:
        opened, newest = self._opened(tokens, rows)
        logits = np.empty((len(opened), self.vocabulary), np.float32)
        self.library.nmt_decoder_step(self.handle, len(opened), opened, newest, logits)
        return logits

    def best(
        self, tokens: Array, rows: np.ndarray, log_probs: Array, count: int, bans: Bans, only: Array | None
    ) -> tuple[Array, Array]:
        opened, newest = self._opened(tokens, rows)
        expect("log-probabilities so far", np.shape(log_probs), (self.sentences, self.beam))
        function = partial(self.library.nmt_decoder_best, self.handle, len(opened), opened, newest)
        return ranked(function, log_probs, len(opened), count, bans, only)

    def reorder(self, parents: Array) -> None:
        numbers = integers(parents)
        expect("parents", numbers.shape, (self.sentences, self.beam))
        self.library.nmt_decoder_reorder(self.handle, numbers)

    def keep(self, sentences: np.ndarray) -> None:
        numbers = integers(sentences)
        self.library.nmt_decoder_keep(self.handle, len(numbers), numbers)
        self.sentences = len(numbers)

    def _opened(self, tokens: Array, rows: np.ndarray) -> tuple[Array, Array]:
        """Return the numbers of the open hypotheses, and their newest tokens."""
        expect("newest tokens", np.shape(tokens), (self.sentences, self.beam))
        opened = integers(rows)
        inside = opened.clip(0, max(0, np.size(tokens) - 1))  # the engine refuses what is not
        return opened, integers(np.ravel(tokens)[inside]) if np.size(tokens) else np.zeros_like(opened)
