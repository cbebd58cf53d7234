"""Plain beam search without torch: a short text is translated before torch would even be loaded, in less than half of the memory.

    ReadyModel ──▶ ReadyWorker ──▶ StoredDecoder (`kernels.cpu_decoding.stored`) ◀──▶ ReadySearch: the state of the beam in arrays

    B sentences   W beam   K n-best   L longest output

It does the steps of `beam_search` with the same compiled functions, so the results are equal bit for bit. It has no constraints, no
alignments and no log-probabilities of tokens. `ready_model` returns a model where all of this suffices, and else None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from ..errors import UsageError
from ..hardware import cores, threads_by_default
from ..kernels.cpu_decoding.functions import Beam
from ..kernels.cpu_decoding.stored import Array, StoredDecoder, StoredModel, address, is_stored, stored_model
from ..kernels.switch import switched_off
from ..recipe import DecodeSection
from .search import ROWS, FinishedSentences, Hypothesis, Search, SearchOptions, check_numbers
from .sentence import Sentence
from .workers import SearchableModels, SearchClass, Worker

if TYPE_CHECKING:
    from ..model.contents import ModelConfig

NONE = -np.inf
"""The log-probability or score of a hypothesis that does not exist."""


def is_plain(decode: DecodeSection) -> bool:
    """Return whether these options ask for nothing but plain beam search."""
    return decode.search == "beam" and not (decode.coverage_penalty or decode.constraints or decode.constraint_options)


def may_be_ready(config: ModelConfig, precision: str) -> bool:
    """Return whether `ready_model` may find a model, without reading it."""
    return precision in ("auto", "int8") and not switched_off() and is_stored(config)


def ready_model(config: ModelConfig, precision: str, devices: int | None) -> ReadyModel | None:
    """Return a model on the CPU, with this number of workers (None: one for each core); None if it was not kept, or not in this precision ("auto": the fastest one)."""
    model = stored_model(config) if may_be_ready(config, precision) else None
    if model is None or not (precision == "int8" or config.precision == "int8" or model.is_fastest):
        return None
    return ReadyModel(model, devices)


class ReadyModel(SearchableModels):
    """A stored model, the number of workers that share it, and the number of threads that translate few lines."""

    TAKES_CONSTRAINTS = False

    def __init__(self, model: StoredModel, devices: int | None) -> None:
        self.model, self.devices, self.threads = model, devices or cores(), devices or threads_by_default()

    @property
    def max_positions(self) -> int:
        """See `SearchableModels`."""
        return self.model.max_positions

    def search_class(self, name: str) -> SearchClass:
        """See `SearchableModels`. Raises UsageError for another search than "beam"."""
        if name != "beam":
            raise UsageError(f"the search {name!r} needs torch.")
        return cast(SearchClass, ReadySearch)

    def workers(self, options: SearchOptions, batch_tokens: int, search: SearchClass, align: bool) -> list[ReadyWorker]:
        """See `SearchableModels`."""
        return [ReadyWorker(self.model, options, batch_tokens, search, self.threads) for _ in range(self.devices)]


class ReadyWorker(Worker):
    """A worker with a stored model on the CPU."""

    device: Any = "cpu"

    def __init__(
        self, model: StoredModel, options: SearchOptions, batch_tokens: int, search: SearchClass, threads: int
    ) -> None:
        super().__init__(options, batch_tokens, search)
        self.model, self.threads = model, threads

    def copy(self) -> Self:
        """See `Worker`."""
        return type(self)(self.model, self.options, self.batch_tokens, self.search, self.threads)

    def use_threads(self, count: int) -> None:
        """See `Worker`."""
        self.threads = count

    def decoder(self, sources: Sequence[Sequence[int]]) -> Any:
        """See `Worker`."""
        return StoredDecoder(self.model, sources, self.options.beam, self.threads)


@dataclass
class State:
    """The state of B sentences: `beam_search.Beam` without constraints."""

    ids: Array  # (B,)
    lengths: Array  # (B,) |Y| of an output that ends in the next step, end symbol counted
    max_lengths: Array  # (B,) end symbol not counted
    tokens: Array  # (B, W, L) of the open hypotheses
    newest: Array  # (B, W)
    log_probs: Array  # (B, W); NONE: there is no hypothesis
    missing: Array  # (B, W) tokens with text that an output needs before it may end
    done_tokens: Array  # (B, K, L) of the finished hypotheses, best first
    done_lengths: Array  # (B, K)
    done_log_probs: Array  # (B, K)
    done_scores: Array  # (B, K); NONE: there is no hypothesis

    @staticmethod
    def start(ids: Sequence[int], max_lengths: Array, options: SearchOptions) -> State:
        """Return one empty hypothesis per sentence."""
        count, width, kept, longest = len(ids), options.beam, options.nbest, int(max_lengths.max())
        log_probs = np.full((count, width), NONE, np.float32)
        log_probs[:, 0] = 0.0
        return State(
            np.array(ids),
            np.ones(count, np.int64),
            max_lengths,
            np.zeros((count, width, longest), np.int64),
            np.full((count, width), options.bos, np.int64),
            log_probs,
            np.repeat(np.minimum(max_lengths, options.min_length)[:, None], width, 1),
            np.zeros((count, kept, longest), np.int64),
            np.zeros((count, kept), np.int64),
            np.full((count, kept), NONE, np.float32),
            np.full((count, kept), NONE, np.float32),
        )

    @property
    def exists(self) -> Array:
        """(B, W) whether there is an open hypothesis."""
        exists: Array = self.log_probs != NONE
        return exists

    def select(self, rows: Array) -> State:
        """Return the sentences at these indices."""
        return State(*(values[rows] for values in vars(self).values()))

    def concat(self, other: State) -> State:
        """Return these sentences, then those of `other`."""
        longest = max(self.tokens.shape[2], other.tokens.shape[2])
        return State(
            *(
                np.concatenate([_filled(first, longest), _filled(second, longest)])
                for first, second in zip(vars(self).values(), vars(other).values(), strict=True)
            )
        )

    def results(self) -> FinishedSentences:
        """Return the finished hypotheses. Raises ModelError, see `check_numbers`."""
        columns = (self.done_tokens, self.done_lengths, self.done_log_probs, self.done_scores)
        every = zip(*(column.tolist() for column in columns), strict=True)
        found = [
            check_numbers(Hypothesis(t[:n], p, s) for t, n, p, s in zip(*of_sentence, strict=True) if s != NONE)
            for of_sentence in every
        ]
        return list(zip(self.ids.tolist(), found, strict=True))


def _filled(values: Array, longest: int) -> Array:
    """Return values (B, W, L) with L = `longest`; others as they are."""
    return np.pad(values, ((0, 0), (0, 0), (0, longest - values.shape[2]))) if values.ndim == 3 else values


class ReadySearch(Search):
    """See `Search`."""

    def __init__(self, decoder: Any, options: SearchOptions) -> None:
        self.decoder, self.options = cast(StoredDecoder, decoder), options
        self.state: State | None = None
        self.penalties = np.empty(0, np.float32)  # lp by length
        never = tuple(dict.fromkeys(options.banned_tokens))
        banned = tuple(dict.fromkeys((*never, options.eos, *options.textless)))
        self.is_bounded = (
            len(banned) < self.decoder.model.vocabulary
        )  # else there is no token with text, and a shortest output means nothing
        self.always_banned, self.banned = len(never), np.array(banned if self.is_bounded else never, np.int64)
        self.textless = np.array(options.textless, np.int64)

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.state is not None

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return int(self.state.exists.sum()) if self.state else 0

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence], device: Any) -> None:
        """See `Search`."""
        max_lengths = np.array([sentence.max_length for sentence in sentences], np.int64)
        new = State.start(sentence_ids, max_lengths, self.options)
        self.state = self.state.concat(new) if self.state else new
        if len(self.penalties) < (needed := int(max_lengths.max()) + 2):
            lengths = range(1 << needed.bit_length())
            self.penalties = np.array(
                [self.options.length_penalty(length, self.options.alpha) for length in lengths], np.float32
            )

    def step(self) -> FinishedSentences:
        """See `Search`."""
        if self.state is None:
            return []
        if count := self.open_hypotheses:
            self.decoder.search(
                self._beam(self.state), max(1, min(self.options.steps, ROWS // count)), self.options.compact_below
            )
        return self._leave(self.state)

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """See `Search`."""
        if self.state:
            self._keep(self.state, np.flatnonzero(~np.isin(self.state.ids, sentence_ids)))

    def _beam(self, state: State) -> Beam:
        """Return the structure that the compiled function reads and changes."""
        options, too_early = self.options, self.always_banned + 1 if self.is_bounded else self.always_banned
        (batch, beam, longest), kept = state.tokens.shape, state.done_scores.shape[1]
        return Beam(
            batch,
            beam,
            2 * beam if beam > 1 else 1,
            kept,
            longest,
            options.eos,
            options.lookahead if options.stop_early else 0,
            *map(
                address,
                (
                    self.penalties,
                    state.lengths,
                    state.max_lengths,
                    state.newest,
                    state.tokens,
                    state.log_probs,
                    state.done_tokens,
                    state.done_lengths,
                    state.done_log_probs,
                    state.done_scores,
                    state.missing,
                ),
            ),
            self.always_banned,
            too_early,
            len(self.banned),
            address(self.banned),
            len(self.textless),
            address(self.textless),
        )

    def _leave(self, state: State) -> FinishedSentences:
        """Return the finished sentences and drop them, if enough have finished."""
        unfinished = state.exists[:, 0]
        count = int(unfinished.sum())
        if count > self.options.compact_below * len(unfinished) or count == len(unfinished):
            return []
        leaving = state.select(np.flatnonzero(~unfinished))
        self._keep(state, np.flatnonzero(unfinished))
        return leaving.results()

    def _keep(self, state: State, stay: Array) -> None:
        """Keep the sentences at these indices, here and in the decoder."""
        self.decoder.keep(stay)
        self.state = state.select(stay) if len(stay) else None
