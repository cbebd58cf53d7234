"""Beam search (section 6.1): extend the W most probable open hypotheses of each sentence, token by token.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   K n-best   L longest output

    a step:  decoder.step ──▶ logits (N, V) ──▶ top candidates (B, C) ─┬─ those that end ──▶ finished hypotheses (B, K)
                                                                       └─ the W best others ──▶ open hypotheses (B, W)

Each step ranks 2W candidates per sentence. A hypothesis can end in one way only, so at most W candidates end and
at least W stay open. With a beam of one each step ranks one candidate: this is greedy search, which ends at the first
end symbol.

An open hypothesis is given up as soon as it cannot reach its sentence's n best within `lookahead` tokens. log P only
falls and lp only grows, so a hypothesis of n tokens ends with log P / lp(n + lookahead) at most; with a word penalty,
with the highest score that its log P has at any length up to that one. The hypotheses behind it in the beam are worse.
With a lookahead up to the longest output the n best are never lost. A shorter lookahead saves a third of the steps,
because the tokens that follow a translation that could end have probabilities below 1. The decoder computes only open
hypotheses. A sentence is finished when it has no open hypothesis.

An output that has reached its longest length gets the end symbol, at the model's own log-probability. Equal scores are
ordered by (hypothesis, token id).

The engine has the same search without constraints, several steps in one call (`engine`). docs/search.md, "Length and
repetition", has the rules of both for users, and tests/engine/test_search.py holds both to the same outputs.

Constraints may require or forbid the next token, or adjust its probability (`constraint`). Where they adjust
log-probabilities, hypotheses are ranked by the adjusted ones; log P stays the model's own. Where they demand something
of an output, the open hypotheses are chosen by how much of it they have already (`allocation`), and outputs that lack
some of it rank behind the others. Then the search is not exact: once the n best are finished, a hypothesis is given up
if it would not be one of them by ending now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.model import Bans
from .allocation import allocate
from .array_search import ArraySearch
from .arrays import NONE, Array
from .beam_state import Beam, Candidates, FinishedHypotheses, OpenHypotheses, Scores, append
from .constraint import Step
from .length_penalties import penalties_of
from .protocols import Decoder, RankingDecoder
from .search import UNLIMITED, SearchOptions
from .search_state import Sentences
from .sentence import FinishedSentences, Sentence


class BeamSearch(ArraySearch):
    """See `Search`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        super().__init__(decoder, options)
        self.normalized, self.adjusts = self.constraints.edits, self.constraints.adjusts
        self.count = 2 * options.beam if options.beam > 1 else 1  # of candidates, per sentence
        plain = not (self.normalized or self.constraints.progresses)
        self.ranking = decoder if plain and isinstance(decoder, RankingDecoder) else None
        self.complete: bool  # whether some hypothesis must end
        self.too_short: bool  # whether some hypothesis may not end
        self.on_host: np.ndarray  # (N,) the numbers of the open hypotheses
        self.rows: Array  # the same, in an array of the decoder's kind
        self.penalties: Array = ()  # lp by length
        self.word_penalties: Array = ()  # word_penalty |Y| by length

    @property
    def open_hypotheses(self) -> int:
        return len(self.on_host) if self.state else 0

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        arrays, options = self.arrays, self.options
        max_lengths = arrays.array([sentence.max_length for sentence in sentences], arrays.int64)
        missing = self.min_length.missing(max_lengths)
        beam = Beam(
            Sentences.start(arrays, sentence_ids, max_lengths),
            OpenHypotheses.start(arrays, max_lengths, options, missing, self.adjusts),
            FinishedHypotheses.start(arrays, max_lengths, options, self.constraints.progresses),
            self.constraints.start(sentences, options.beam, arrays),
        )
        self._enter(beam)
        longest = int(max_lengths.max())
        if len(self.penalties) < longest + 2:
            both = penalties_of(options.length_penalty, options.alpha, options.word_penalty, longest)
            self.penalties, self.word_penalties = (arrays.array(each, arrays.float32) for each in both)

    def _step(self, beam: Beam) -> None:
        candidates = self._candidates(beam)
        ends = candidates.tokens == self.options.eos
        self._finish(beam, candidates, ends)
        parents = self._extend(beam, candidates, ends)
        self._give_up(beam)
        beam.sentences.lengths = beam.sentences.lengths + 1
        self.decoder.reorder(parents)

    def _read(self, beam: Beam) -> None:
        """Read what a step needs on the host, with a single copy: the only wait of a step on a device."""
        arrays, columns = self.arrays, (beam.sentences.complete, (beam.open.missing > 0).any(1))
        status = arrays.host(arrays.concat([beam.open.log_probs != NONE, *(column[:, None] for column in columns)], 1))
        exists, (complete, too_short) = status[:, :-2], status[:, -2:].any(0)
        self.complete, self.too_short = bool(complete), bool(too_short)
        self.unfinished, self.on_host = exists[:, 0], np.flatnonzero(exists)
        self.rows = arrays.array(self.on_host)

    def _candidates(self, beam: Beam) -> Candidates:
        """Take a step of the decoder. Return the best candidates."""
        arrays, step = self.arrays, beam.step(self.rows)
        newest, only = beam.open.newest, self._only(beam, step)
        if self.ranking:
            bans = self._bans(beam, step, self.ranking.vocabulary)
            best = self.ranking.best(newest, self.on_host, beam.open.log_probs, self.count, bans, only)
            return _candidates(best, self.ranking.vocabulary)
        logits = self.decoder.step(newest, self.on_host)
        bans = self._bans(beam, step, logits.shape[1])
        if self.normalized:
            logits = arrays.log_softmax(logits)
        own = arrays.copy(logits) if self.constraints.adjusts else logits
        if self.constraints.edits:
            self.constraints.edit(beam.constraints, step, logits, only, self.options.eos)
            bans = self.min_length.give_way(bans, logits)
        candidates = self._ranked(beam, Scores(self.rows, logits, bans, only))
        if not self.adjusts:
            return candidates
        rows = arrays.gather(self._row_of(self.rows, len(newest)), candidates.parents)
        before = arrays.gather(beam.open.own, candidates.parents)
        return candidates._replace(own=before + own[rows, candidates.tokens])

    def _bans(self, beam: Beam, step: Step, vocabulary: int) -> Bans:
        """Return the tokens that may not follow."""
        if not self.too_short:
            return self.min_length.always
        return self.min_length.bans(step.of_rows(beam.open.missing), step.remaining[step.sentences], vocabulary)

    def _only(self, beam: Beam, step: Step) -> Array | None:
        """Return the one token that may follow each open hypothesis, (N,), or FREE; None: all of them are free."""
        required = self.constraints.required(beam.constraints, step)
        if not self.complete:
            return required
        return beam.sentences.required_tokens(required, step.sentences, self.options.eos)

    def _ranked(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates by `scores`. The logits may be written to."""
        logits, rows = scores.logits, scores.rows
        best = self.arrays.top_candidates(
            logits, beam.open.log_probs, rows, self.count, scores.bans, scores.only, self.normalized
        )
        candidates = _candidates(best, logits.shape[1])
        if not self.constraints.progresses:
            return candidates
        row_of = self._row_of(rows, len(beam.open.newest))
        return allocate(beam, candidates, scores, self.constraints, row_of, self.options.eos)

    def _row_of(self, open_rows: Array, batch: int) -> Array:
        """Return the row of each hypothesis among the N open ones, (B, W); any row for a closed hypothesis."""
        row_of = self.arrays.zeros((batch * self.options.beam,), self.arrays.int64)
        row_of[open_rows] = self.arrays.arange(len(open_rows))
        return row_of.reshape((batch, self.options.beam))

    def _finish(self, beam: Beam, candidates: Candidates, ends: Array) -> None:
        """Add the candidates that end, where `ends` (B, C) is true, to the finished hypotheses."""
        arrays, parents, path = self.arrays, candidates.parents, beam.open.path
        log_probs = arrays.where(ends, candidates.log_probs, NONE)
        if isinstance(log_probs, np.ndarray) and not (log_probs != NONE).any():  # a device would have to be waited for
            return
        lengths = beam.sentences.lengths[:, None]
        missing = self.constraints.missing(beam.constraints) if self.constraints.progresses else None
        beam.finished = beam.finished.add(
            FinishedHypotheses(
                tokens=arrays.gather(beam.open.tokens, parents),
                lengths=parents * 0 + (lengths - 1),
                log_probs=arrays.where(ends, candidates.own_log_probs, NONE),
                # finished sentences may stay for long: their lengths go on
                scores=self._scores(log_probs, lengths.clip(None, len(self.penalties) - 1)),
                lacking=None if missing is None else arrays.gather(missing, parents),
                path=None if path is None else arrays.gather(path, parents),
            )
        )

    def _extend(self, beam: Beam, candidates: Candidates, ends: Array) -> Array:
        """Replace the open hypotheses by the W best candidates that do not end. Return their parents, (B, W)."""
        hypotheses, gather = beam.open, self.arrays.gather
        hypotheses.log_probs, order = self._best_open(candidates, ends)
        parents = gather(candidates.parents, order)
        hypotheses.newest = gather(candidates.tokens, order)
        if candidates.own is not None:
            hypotheses.own = gather(candidates.own, order)
        if self.too_short:
            hypotheses.missing = self.min_length.missing_after(gather(hypotheses.missing, parents), hypotheses.newest)
        if self.constraints.members:
            beam.constraints = self.constraints.advance(beam.constraints, hypotheses.newest, parents)
        position = beam.sentences.lengths - 1
        hypotheses.tokens = gather(hypotheses.tokens, parents)
        append(hypotheses.tokens, position, hypotheses.newest)
        if hypotheses.path is not None:
            hypotheses.path = gather(hypotheses.path, parents)
            append(hypotheses.path, position, gather(candidates.own_log_probs, order))
        return parents

    def _best_open(self, candidates: Candidates, ends: Array) -> tuple[Array, Array]:
        """Return the W best candidates that do not end, best first: log-probabilities and indices, (B, W)."""
        arrays, shape = self.arrays, (len(ends), self.options.beam)
        log_probs = arrays.where(ends, NONE, candidates.log_probs)
        order = arrays.argsort(log_probs)[:, : shape[1]]
        log_probs = arrays.gather(log_probs, order)
        # greedy search, or a vocabulary smaller than the beam, may have fewer candidates
        return arrays.padded(log_probs, shape, NONE), arrays.padded(order, shape, 0)

    def _give_up(self, beam: Beam) -> None:
        """Close hypotheses that are complete, and those that cannot reach the n best within `lookahead` tokens."""
        hopeless = beam.sentences.complete[:, None]
        if self.options.lookahead:
            hopeless = hopeless | self._hopeless(beam, beam.open.log_probs)
        beam.open.log_probs = self.arrays.where(hopeless, NONE, beam.open.log_probs)

    def _hopeless(self, beam: Beam, log_probs: Array) -> Array:
        """Return which hypotheses with log_probs (B, W) cannot reach the n best in `lookahead` tokens: bool, (B, W)."""
        arrays, lookahead = self.arrays, self.options.lookahead or UNLIMITED
        longest = arrays.minimum(beam.sentences.max_lengths + 1, beam.sentences.lengths + lookahead)
        if self.constraints.progresses:
            longest = arrays.where(self.constraints.demands(beam.constraints), beam.sentences.lengths + 1, longest)
        lengths = longest[:, None]  # (B, R) at which the score is highest: without a word penalty, at the largest one
        if self.options.word_penalty:
            within = arrays.arange(min(lookahead, len(self.penalties)))
            lengths = arrays.minimum(lengths, beam.sentences.lengths[:, None] + 1 + within)
        attainable = arrays.amax(self._scores(log_probs[:, :, None], lengths[:, None]), 2)
        worse = attainable <= beam.finished.scores[:, -1:]
        return worse if beam.finished.lacking is None else worse & (beam.finished.lacking[:, -1:] == 0)

    def _scores(self, log_probs: Array, lengths: Array) -> Array:
        """Return the scores of outputs with these log-probabilities and numbers of tokens |Y|."""
        return (log_probs - self.word_penalties[lengths]) / self.penalties[lengths]

    def _results(self, leaving: Beam) -> FinishedSentences:
        return list(zip(leaving.sentences.ids.tolist(), leaving.finished.hypotheses(), strict=True))


def _candidates(best: tuple[Array, Array], vocabulary: int) -> Candidates:
    """Return the candidates of `Arrays.top_candidates`."""
    log_probs, numbers = best
    return Candidates(log_probs, numbers // vocabulary, numbers % vocabulary)
