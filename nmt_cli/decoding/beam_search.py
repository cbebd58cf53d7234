"""Beam search (section 6.1): of each sentence the W most probable open hypotheses are extended, token by token.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   K n-best   L longest output

    one step:  decoder.step ──▶ logits (N, V) ──▶ top candidates (B, C) ─┬─ those that end ──▶ finished hypotheses (B, K)
                                                                         └─ the W best others ──▶ open hypotheses (B, W)

Each step ranks 2W candidates per sentence. A hypothesis can end in one way only, so at most W of them are ends and at
least W stay open. With a beam of one it ranks one candidate: that is greedy search, which ends at the first end symbol.

An open hypothesis is given up as soon as it cannot reach its sentence's n best any more. log P only falls and lp only
grows, so a hypothesis ends with log P / lp(longest) at most. Those behind it in the beam are worse, so the n best are
never lost. The decoder computes open hypotheses alone. A sentence is finished when it has no open hypothesis.

With a coverage penalty, cp is added to the score of a finished hypothesis (`coverage`). cp is at most 0, so a hypothesis
cannot reach more than the bound above.

An output that has its longest length gets the end symbol, at the model's own log-probability. Equal scores are ordered
by (hypothesis, token id).

Constraints may require, forbid or adjust what follows (`constraint`). Where they adjust log-probabilities, hypotheses are
ranked by the adjusted ones; log P stays the model's own. Where they demand something of an output, the open hypotheses
are chosen by what they have of it already (`allocation`), and outputs that lack some of it rank behind the others. Then
the search is not exact: once the n best are finished, a hypothesis is given up if ending now would not make it one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UsageError
from ..kernels.protocols import AttentionDecoder, Decoder
from . import allocation
from .constraint import Constraints, Sentence, States, Step
from .coverage import Coverage
from .min_length import Bans, MinLength
from .search import (
    FinishedSentences,
    Hypothesis,
    SearchOptions,
    check_numbers,
    plain_sentences,
    run_to_end,
)
from .search_state import Rows, Sentences, split_off_finished

NONE = float("-inf")
"""The log-probability or score of a hypothesis that does not exist."""
LAST = 1 << 62
"""What a hypothesis lacks that does not exist."""


def beam_search(decoder: Decoder, max_lengths: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None = None) -> list[list[Hypothesis]]:
    """Return the `nbest` best hypotheses of each sentence that `decoder` holds; see `Search.add`."""
    return run_to_end(BeamSearch(decoder, options), plain_sentences(max_lengths, prefixes), max_lengths.device)


class Candidates(NamedTuple):
    """The best ways to extend the open hypotheses of each sentence, best first; all (B, C)."""

    log_probs: Tensor  # of the whole output; NONE: no candidate
    parents: Tensor  # the hypothesis that is extended, 0 to W - 1
    tokens: Tensor
    own: Tensor | None  # where constraints adjust `log_probs`: the model's own

    @property
    def own_log_probs(self) -> Tensor:
        """The model's own log-probabilities of the whole outputs."""
        return self.log_probs if self.own is None else self.own


class Scores(NamedTuple):
    """What may follow the open hypotheses."""

    rows: Tensor  # (N,) the numbers b * W + w of the hypotheses, ascending
    logits: Tensor  # (N, V); log-probabilities where constraints edit, and in diverse beam search
    own: Tensor | None  # (N, V) where constraints adjust: the model's own log-probabilities
    bans: Bans
    only: Tensor | None  # (N,) the one token that may follow, or FREE


@dataclass
class OpenHypotheses(Rows):
    """The open hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, W, L); beyond their length they mean nothing
    newest: Tensor  # (B, W) the last token of each
    log_probs: Tensor  # (B, W); NONE: there is no hypothesis here, nor behind it
    missing: Tensor  # (B, W) see `MinLength`
    own: Tensor | None  # (B, W) where constraints adjust `log_probs`: the model's own
    path: Tensor | None  # (B, W, L) if asked for: the model's own log P of the output up to each token

    @staticmethod
    def start(max_lengths: Tensor, options: SearchOptions, missing: Tensor, adjusted: bool) -> OpenHypotheses:
        """Return one empty hypothesis per sentence."""
        shape, device = (len(max_lengths), options.beam), max_lengths.device
        log_probs = torch.full(shape, NONE, device=device)
        log_probs[:, 0] = 0.0
        return OpenHypotheses(
            tokens=torch.zeros(*shape, int(max_lengths.max()), dtype=torch.long, device=device),
            newest=torch.full(shape, options.bos, dtype=torch.long, device=device),
            log_probs=log_probs,
            missing=missing[:, None].repeat(1, options.beam),
            own=torch.zeros(shape, device=device) if adjusted else None,
            path=torch.zeros(*shape, int(max_lengths.max()), device=device) if options.token_log_probs else None,
        )

    @property
    def rows(self) -> Tensor:
        """(N,) the numbers b * W + w of the hypotheses, ascending."""
        return self.log_probs.flatten().isneginf().logical_not_().nonzero().flatten()

    @property
    def unfinished(self) -> Tensor:
        """(B,) whether the sentence has any."""
        return self.log_probs[:, 0].isneginf().logical_not_()

    def of_parents(self, values: Tensor, parents: Tensor) -> Tensor:
        """(B, W, L) of hypotheses -> (B, C, L) of the hypotheses `parents` (B, C)."""
        return values.gather(1, parents[:, :, None].expand(-1, -1, values.size(2)))


@dataclass
class FinishedHypotheses(Rows):
    """The K best finished hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, K, L)
    lengths: Tensor  # (B, K) end symbol not counted
    log_probs: Tensor  # (B, K) the model's own
    scores: Tensor  # (B, K); NONE: there is none
    lacking: Tensor | None  # (B, K) where constraints demand something: how much of it is missing
    coverage: Tensor | None  # (B, K) with a coverage penalty: cp, which `scores` include
    path: Tensor | None  # (B, K, L) see `OpenHypotheses`

    @staticmethod
    def start(max_lengths: Tensor, options: SearchOptions, demanding: bool) -> FinishedHypotheses:
        """Return no hypothesis for each sentence."""
        shape, device, longest = (len(max_lengths), options.nbest), max_lengths.device, int(max_lengths.max())
        return FinishedHypotheses(
            tokens=torch.zeros(*shape, longest, dtype=torch.long, device=device),
            lengths=torch.zeros(shape, dtype=torch.long, device=device),
            log_probs=torch.full(shape, NONE, device=device),
            scores=torch.full(shape, NONE, device=device),
            lacking=torch.zeros(shape, dtype=torch.long, device=device) if demanding else None,
            coverage=torch.zeros(shape, device=device) if options.coverage_penalty else None,
            path=torch.zeros(*shape, longest, device=device) if options.token_log_probs else None,
        )

    def add(self, more: FinishedHypotheses) -> FinishedHypotheses:
        """Return the K best of these and of more hypotheses (B, C). An older one precedes an equal newer one."""
        columns: dict[str, Any] = {name: None if mine is None else torch.cat([mine, getattr(more, name)], dim=1) for name, mine in vars(self).items()}
        return FinishedHypotheses(**columns).best(self.scores.size(1))

    def best(self, count: int) -> FinishedHypotheses:
        """Return the `count` best of each sentence, best first. Equals keep their order."""
        order = self.scores.sort(dim=1, descending=True, stable=True).indices
        if self.lacking is not None:
            lacking = self.lacking.masked_fill(self.scores == NONE, LAST)
            order = order.gather(1, lacking.gather(1, order).sort(dim=1, stable=True).indices)
        order = order[:, :count]
        return self.each(lambda values: _gathered(values, order))

    def each(self, change: Callable[[Tensor], Tensor]) -> FinishedHypotheses:
        """Return the hypotheses with `change` applied to each field."""
        columns: dict[str, Any] = {name: None if values is None else change(values) for name, values in vars(self).items()}
        return FinishedHypotheses(**columns)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return those of each sentence. Raises ModelError, see `check_numbers`."""
        columns = (self.tokens, self.lengths, self.log_probs, self.scores)
        every = [
            check_numbers(Hypothesis(t[:n], p, s) for t, n, p, s in zip(*of_sentence, strict=True) if s != NONE)
            for of_sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]
        if self.path is None:
            return every
        return [[h.with_path(path) for h, path in zip(those, paths, strict=False)] for those, paths in zip(every, self.path.tolist(), strict=True)]


def _gathered(values: Tensor, order: Tensor) -> Tensor:
    """(B, C) or (B, C, L) -> the same with the entries `order` (B, K) of C."""
    return values.gather(1, order) if values.dim() == 2 else values.gather(1, order[:, :, None].expand(-1, -1, values.size(2)))


@dataclass
class Beam(Rows):
    """The state of B sentences."""

    sentences: Sentences
    open: OpenHypotheses
    finished: FinishedHypotheses
    constraints: States
    coverage: Coverage | None  # with a coverage penalty


def _appended(values: Tensor, position: Tensor, newest: Tensor) -> Tensor:
    """Return values (B, W, L) with `newest` (B, W) at `position` (B, W, 1), if L reaches that far; in place."""
    if longest := values.size(2):
        values.scatter_(2, position.clamp_max(longest - 1), newest[:, :, None])
    return values


def _reporting(decoder: Decoder) -> AttentionDecoder:
    """Return the decoder, which reports its attention from now on. Raises UsageError if it cannot."""
    if not isinstance(decoder, AttentionDecoder):
        raise UsageError(f"the decoder {type(decoder).__name__} does not report its attention, which a coverage penalty needs (decode.coverage_penalty).")
    decoder.record_attention()
    return decoder


class BeamSearch:
    """See `Search`. Raises UsageError for a coverage penalty if the decoder is no `AttentionDecoder`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.options = decoder, options
        self.min_length, self.constraints = MinLength(options), Constraints(options.constraints)
        self.normalized, self.adjusts = self.constraints.edits, self.constraints.adjusts
        self.attention = _reporting(decoder) if options.coverage_penalty else None
        self.beam: Beam | None = None
        self.rows = torch.empty(0, dtype=torch.long)  # (N,) the open hypotheses
        self.penalties = torch.empty(0)  # lp by length

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.beam is not None

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return len(self.rows)

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence], device: torch.device) -> None:
        """See `Search`."""
        max_lengths = torch.tensor([sentence.max_length for sentence in sentences], device=device)
        new = Beam(
            Sentences.start(sentence_ids, max_lengths),
            OpenHypotheses.start(max_lengths, self.options, self.min_length.missing(max_lengths), self.adjusts),
            FinishedHypotheses.start(max_lengths, self.options, self.constraints.progresses),
            self.constraints.start(sentences, self.options.beam, device),
            Coverage.start(sentences, self.options.beam, device) if self.attention else None,
        )
        self.beam = self.beam.concat(new) if self.beam else new
        self.rows = self.beam.open.rows
        longest = int(max_lengths.max())
        if len(self.penalties) < longest + 2:  # computed one by one: a power's last bit depends on its position in a vector
            self.penalties = torch.tensor([self.options.length_penalty(n, self.options.alpha) for n in range(2 * longest + 2)], device=device)

    @torch.inference_mode()
    def step(self) -> FinishedSentences:
        """See `Search`."""
        beam = self.beam
        if beam is None:
            return []
        too_short = self.min_length.concerns(beam.open.missing)
        candidates = self._candidates(beam, self.decoder.step(beam.open.newest, self.rows).float(), too_short)
        if self.attention and beam.coverage:
            beam.coverage.add(self.rows, self.attention.attention())
        ends = candidates.tokens == self.options.eos
        self._finish(beam, candidates, ends)
        parents = self._extend(beam, candidates, ends, too_short)
        self._give_up(beam)
        beam.sentences.lengths = beam.sentences.lengths + 1
        self.decoder.reorder(parents)
        return self._leave(beam)

    def _candidates(self, beam: Beam, logits: Tensor, too_short: bool) -> Candidates:
        """Return the best candidates, given the logits (N, V) of the open hypotheses."""
        step = Step(self.rows, beam.open.tokens, beam.sentences.lengths - 1, beam.sentences.remaining)
        bans = self.min_length.always
        if too_short:
            bans = self.min_length.bans(step.of_rows(beam.open.missing), step.remaining[step.sentences], logits.size(1))
        only = beam.sentences.required_tokens(self.constraints.required(beam.constraints, step), step.sentences, self.options.eos)
        own = None
        if self.normalized:
            logits = self.options.log_softmax(logits)
        if self.constraints.edits:
            own = logits.clone() if self.constraints.adjusts else None
            self.constraints.edit(beam.constraints, step, logits, only, self.options.eos)
            bans = self.min_length.give_way(bans, logits)
        return self._best(beam, Scores(self.rows, logits, own, bans, only))

    def _best(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates by `scores`, with their own log-probabilities where they differ."""
        candidates = self._ranked(beam, scores)
        if scores.own is not None and beam.open.own is not None:
            own = beam.open.own.gather(1, candidates.parents) + scores.own[self._row_of(candidates.parents, scores.rows), candidates.tokens]
            candidates = candidates._replace(own=own)
        return candidates

    def _ranked(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates by `scores`. The logits may be written to."""
        logits, width = scores.logits, self.options.beam
        count = 2 * width if width > 1 else 1
        log_probs, flat = self.options.top_candidates(logits, beam.open.log_probs, scores.rows, count, scores.bans.tokens, scores.only, scores.bans.counts, self.normalized)
        candidates = Candidates(log_probs, flat // logits.size(1), flat % logits.size(1), None)
        return self._allocate(beam, candidates, scores) if self.constraints.progresses else candidates

    def _row_of(self, parents: Tensor, open_rows: Tensor) -> Tensor:
        """(B, C) hypotheses -> their rows among the N open ones; of a closed one, any."""
        batch, width = len(parents), self.options.beam
        row_of = torch.zeros(batch * width, dtype=torch.long, device=parents.device)
        row_of[open_rows] = torch.arange(len(open_rows), device=parents.device)
        return row_of[parents + torch.arange(batch, device=parents.device)[:, None] * width]

    def _allocate(self, beam: Beam, candidates: Candidates, scores: Scores) -> Candidates:
        """Return more candidates, of which as many as the beam holds do not end: those that the constraints choose.

        Besides the best of all these are, of each hypothesis: its best token, the tokens that constraints propose, and the
        end symbol where it is the most probable token: among the best of all it would not be, because what the constraints
        demanded has its price.
        """
        logits, eos, states = scores.logits, self.options.eos, beam.constraints
        proposals = self.constraints.proposals(states)  # (B, W, E)
        batch, width, count = proposals.shape
        hypotheses = torch.arange(width, device=logits.device).expand(batch, width)
        rows = self._row_of(hypotheses, scores.rows)  # (B, W)
        wants_end = logits.argmax(1) == eos
        ends = logits[:, eos].masked_fill(~wants_end, NONE)[rows].masked_fill(~self.constraints.demands(states)[:, None], NONE)  # (B, W)
        logits[:, eos] = NONE
        best = logits.argmax(1)[rows]  # (B, W) the best token to follow each hypothesis
        tokens = torch.cat([best[:, :, None], torch.full_like(best, eos)[:, :, None], proposals], dim=2)  # (B, W, 2 + E)
        values = logits[rows[:, :, None], tokens.clamp_min(0)].masked_fill(tokens < 0, NONE)
        values[:, :, 1] = ends
        if scores.only is not None:
            values = values.masked_fill((scores.only[rows] >= 0)[:, :, None], NONE)
        log_probs = torch.cat([candidates.log_probs, (beam.open.log_probs[:, :, None] + values).flatten(1)], dim=1)
        parents = torch.cat([candidates.parents, hypotheses.repeat_interleave(2 + count, dim=1)], dim=1)
        tokens = torch.cat([candidates.tokens, tokens.flatten(1)], dim=1)
        log_probs = allocation.without_repeats(log_probs, parents * logits.size(1) + tokens)
        going_on = log_probs.masked_fill(tokens == eos, NONE)
        kept = allocation.allocate(going_on, self.constraints.progress(states, parents, tokens), width)
        return Candidates(log_probs.masked_fill(~kept & (tokens != eos), NONE), parents, tokens, None)

    def _finish(self, beam: Beam, candidates: Candidates, ends: Tensor) -> None:
        """Rank the candidates that end, `ends` (B, C), among the finished hypotheses."""
        log_probs = candidates.log_probs.masked_fill(~ends, NONE)
        if bool(torch.isneginf(log_probs).all()):
            return
        parents, lengths, path = candidates.parents, beam.sentences.lengths[:, None], beam.open.path
        coverage = beam.coverage.log_coverage(parents, log_probs != NONE) * self.options.coverage_penalty if beam.coverage else None
        scores = log_probs / self.penalties[lengths]
        beam.finished = beam.finished.add(FinishedHypotheses(
            tokens=beam.open.of_parents(beam.open.tokens, parents),
            lengths=(lengths - 1).expand_as(log_probs),
            log_probs=candidates.own_log_probs.masked_fill(~ends, NONE),
            scores=scores if coverage is None else scores + coverage,
            lacking=self.constraints.missing(beam.constraints).gather(1, parents) if self.constraints.progresses else None,
            coverage=coverage,
            path=None if path is None else beam.open.of_parents(path, parents),
        ))  # fmt: skip

    def _extend(self, beam: Beam, candidates: Candidates, ends: Tensor, too_short: bool) -> Tensor:
        """Make the W best candidates that do not end the open hypotheses. Return their parents, (B, W)."""
        hypotheses, width = beam.open, self.options.beam
        hypotheses.log_probs, order = self._best_open(candidates, ends)
        parents = candidates.parents.gather(1, order)
        hypotheses.newest = candidates.tokens.gather(1, order)
        if candidates.own is not None:
            hypotheses.own = candidates.own.gather(1, order)
        if too_short:
            hypotheses.missing = self.min_length.missing_after(hypotheses.missing.gather(1, parents), hypotheses.newest)
        if self.constraints.members:
            beam.constraints = self.constraints.advance(beam.constraints.reorder(parents), hypotheses.newest)
        if beam.coverage:
            beam.coverage.attended = beam.coverage.attended.reorder(parents)
        position = (beam.sentences.lengths - 1)[:, None, None].expand(-1, width, 1)
        hypotheses.tokens = _appended(hypotheses.of_parents(hypotheses.tokens, parents), position, hypotheses.newest)
        if hypotheses.path is not None:
            hypotheses.path = _appended(hypotheses.of_parents(hypotheses.path, parents), position, candidates.own_log_probs.gather(1, order))
        return parents

    def _best_open(self, candidates: Candidates, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Return the W best candidates that do not end, best first: log-probabilities and indices, (B, W)."""
        width = self.options.beam
        log_probs, order = candidates.log_probs.masked_fill(ends, NONE).sort(dim=1, descending=True, stable=True)
        if lacking := max(0, width - order.size(1)):  # greedy search, or a vocabulary smaller than the beam
            log_probs, order = F.pad(log_probs, (0, lacking), value=NONE), F.pad(order, (0, lacking))
        return log_probs[:, :width], order[:, :width]

    def _give_up(self, beam: Beam) -> None:
        """Close hypotheses that are complete, and those that cannot reach the n best any more."""
        hopeless = beam.sentences.complete[:, None]
        if self.options.stop_early:
            hopeless = hopeless | self._hopeless(beam, beam.open.log_probs)
        beam.open.log_probs = beam.open.log_probs.masked_fill(hopeless, NONE)

    def _hopeless(self, beam: Beam, log_probs: Tensor) -> Tensor:
        """Return which hypotheses with these log-probabilities (B, W) cannot reach the n best: bool, (B, W)."""
        longest = beam.sentences.max_lengths + 1
        if self.constraints.progresses:
            longest = torch.where(self.constraints.demands(beam.constraints), beam.sentences.lengths + 1, longest)
        attainable = log_probs / self.penalties[longest][:, None]
        worse = attainable <= beam.finished.scores[:, -1:]
        return worse if beam.finished.lacking is None else worse & (beam.finished.lacking[:, -1:] == 0)

    def _leave(self, beam: Beam) -> FinishedSentences:
        """Return the finished sentences and drop them, if enough have finished."""
        finished: FinishedSentences = []
        if split := self._split(beam.open.unfinished):
            stay, leave = split
            finished = self._results(beam.select(leave))
            beam = beam.select(stay)
            self.decoder.keep(stay)
        self.beam = beam if len(beam.sentences.ids) else None
        self.rows = beam.open.rows
        return finished

    def _split(self, unfinished: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `split_off_finished`."""
        return split_off_finished(unfinished)

    def _results(self, leaving: Beam) -> FinishedSentences:
        """Return the hypotheses of sentences that leave."""
        return list(zip(leaving.sentences.ids.tolist(), leaving.finished.hypotheses(), strict=True))
