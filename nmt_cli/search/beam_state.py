"""The state of a beam search, and the data that pass between its steps.

B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   K n-best   L longest output

Scores (N, V) ──▶ Candidates (B, C) ──▶ OpenHypotheses (B, W) and FinishedHypotheses (B, K) of a Beam
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..engine.model import Bans
from .arrays import NONE, Array, Arrays, arrays_of
from .constraint import States, Step
from .search import SearchOptions
from .search_state import Rows, Sentences
from .sentence import Hypothesis, hypotheses_of

LAST = 1 << 62
"""The value of `lacking` for a hypothesis that does not exist."""


class Candidates(NamedTuple):
    """The best ways to extend the open hypotheses of each sentence, best first; all (B, C)."""

    log_probs: Array  # of the whole output; NONE: no candidate
    parents: Array  # the hypothesis that is extended, 0 to W - 1
    tokens: Array
    own: Array | None = None  # where constraints adjust `log_probs`: the model's own

    @property
    def own_log_probs(self) -> Array:
        """The model's own log-probabilities of the whole outputs."""
        return self.log_probs if self.own is None else self.own


class Scores(NamedTuple):
    """The scores of the tokens that may follow the open hypotheses."""

    rows: Array  # (N,) the numbers b * W + w of the hypotheses, ascending
    logits: Array  # (N, V); log-probabilities where constraints edit, and in diverse beam search
    bans: Bans
    only: Array | None  # (N,) the one token that may follow, or FREE


@dataclass
class OpenHypotheses(Rows):
    """The open hypotheses of each sentence, best first."""

    tokens: Array  # (B, W, L); values beyond the length mean nothing
    newest: Array  # (B, W) the last token of each
    log_probs: Array  # (B, W); NONE: there is no hypothesis at this index or behind it
    missing: Array  # (B, W) see `MinLength`
    own: Array | None  # (B, W) where constraints adjust `log_probs`: the model's own
    path: Array | None  # (B, W, L) if asked for: the model's own log P of the output up to each token

    @staticmethod
    def start(
        arrays: Arrays, max_lengths: Array, options: SearchOptions, missing: Array, adjusted: bool
    ) -> OpenHypotheses:
        """Return one empty hypothesis per sentence."""
        shape, longest = (len(max_lengths), options.beam), int(max_lengths.max())
        log_probs = arrays.full(shape, NONE, arrays.float32)
        log_probs[:, 0] = 0.0
        zeros = arrays.zeros(shape, arrays.int64)
        return OpenHypotheses(
            tokens=arrays.zeros((*shape, longest), arrays.int64),
            newest=zeros + options.bos,
            log_probs=log_probs,
            missing=zeros + missing[:, None],
            own=arrays.zeros(shape, arrays.float32) if adjusted else None,
            path=arrays.zeros((*shape, longest), arrays.float32) if options.token_log_probs else None,
        )


@dataclass
class FinishedHypotheses(Rows):
    """The K best finished hypotheses of each sentence, best first."""

    tokens: Array  # (B, K, L)
    lengths: Array  # (B, K) end symbol not counted
    log_probs: Array  # (B, K) the model's own
    scores: Array  # (B, K); NONE: there is no hypothesis
    lacking: Array | None  # (B, K) where constraints demand something: how much is missing
    path: Array | None  # (B, K, L) see `OpenHypotheses`

    @staticmethod
    def start(arrays: Arrays, max_lengths: Array, options: SearchOptions, demanding: bool) -> FinishedHypotheses:
        """Return the state of sentences that have no finished hypotheses."""
        shape, longest = (len(max_lengths), options.nbest), int(max_lengths.max())
        return FinishedHypotheses(
            tokens=arrays.zeros((*shape, longest), arrays.int64),
            lengths=arrays.zeros(shape, arrays.int64),
            log_probs=arrays.full(shape, NONE, arrays.float32),
            scores=arrays.full(shape, NONE, arrays.float32),
            lacking=arrays.zeros(shape, arrays.int64) if demanding else None,
            path=arrays.zeros((*shape, longest), arrays.float32) if options.token_log_probs else None,
        )

    def add(self, more: FinishedHypotheses) -> FinishedHypotheses:
        """Return the K best of these hypotheses and `more`, (B, C). An older hypothesis precedes an equal newer one."""
        concat = arrays_of(self.scores).concat
        return self.each(lambda *values: concat(values, 1), more).best(self.scores.shape[1])

    def best(self, count: int) -> FinishedHypotheses:
        """Return the `count` best of each sentence, best first. Equal hypotheses keep their order."""
        arrays = arrays_of(self.scores)
        order = arrays.argsort(self.scores)
        if self.lacking is not None:
            lacking = arrays.where(self.scores == NONE, LAST, self.lacking)
            order = arrays.gather(order, arrays.argsort(-arrays.gather(lacking, order)))
        return self.each(lambda values: arrays.gather(values, order[:, :count]))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, without those that lack more than the best one.

        Raises ModelError, see `hypotheses_of`.
        """
        scores = self.scores
        if self.lacking is not None:
            scores = arrays_of(scores).where(self.lacking > self.lacking[:, :1], NONE, scores)
        columns = [column.tolist() for column in (self.tokens, self.lengths, self.log_probs, scores)]
        return hypotheses_of(columns, None if self.path is None else self.path.tolist())


@dataclass
class Beam(Rows):
    """The state of B sentences."""

    sentences: Sentences
    open: OpenHypotheses
    finished: FinishedHypotheses
    constraints: States

    def step(self, rows: Array) -> Step:
        """Return the step that extends the hypotheses `rows` (N,)."""
        return Step(rows, self.open.tokens, self.sentences.lengths - 1, self.sentences.remaining)


def append(values: Array, position: Array, newest: Array) -> None:
    """Set values (B, W, L) at `position` (B,) to `newest` (B, W), if L reaches that far; in place."""
    if longest := values.shape[2]:
        values[arrays_of(position).arange(len(values)), :, position.clip(None, longest - 1)] = newest
