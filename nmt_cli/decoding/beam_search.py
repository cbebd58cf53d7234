"""Beam search (section 6.1): of each sentence the W most probable open hypotheses are extended, token by token.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   K n-best   L longest output

    one step:  decoder.step ──▶ logits (N, V) ──▶ top candidates (B, C) ─┬─ those that end ──▶ finished hypotheses (B, K)
                                                                         └─ the W best others ──▶ open hypotheses (B, W)

Each step ranks 2W candidates per sentence. A hypothesis can end in one way only, so at most W of them are ends and at
least W stay open. With a beam of one it ranks one candidate: that is greedy search, which ends at the first end symbol.

An open hypothesis is given up as soon as it cannot reach its sentence's n best any more. log P only falls and lp only
grows, so a hypothesis ends with log P / lp(longest) at most. Those behind it in the beam are worse, so the n best are
never lost. The decoder computes open hypotheses alone. A sentence is finished when it has no open hypothesis.

An output that has its longest length gets the end symbol, at the model's own log-probability. Equal scores are ordered
by (hypothesis, token id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.protocols import Decoder
from .min_length import MinLength
from .search import FinishedSentences, Hypothesis, SearchOptions, check_numbers, length_penalty, run_to_end
from .search_state import Rows, Sentences, split_off_finished

NONE = float("-inf")
"""The log-probability or score of a hypothesis that does not exist."""


def beam_search(decoder: Decoder, max_lengths: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None = None) -> list[list[Hypothesis]]:
    """Return the `nbest` best hypotheses of each sentence that `decoder` holds; see `Search.add`."""
    return run_to_end(BeamSearch(decoder, options), max_lengths, prefixes)


class Candidates(NamedTuple):
    """The best ways to extend the open hypotheses of each sentence, best first; all (B, C)."""

    log_probs: Tensor  # of the whole output; NONE: no candidate
    parents: Tensor  # the hypothesis that is extended, 0 to W - 1
    tokens: Tensor


@dataclass
class OpenHypotheses(Rows):
    """The open hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, W, L); beyond their length they mean nothing
    newest: Tensor  # (B, W) the last token of each
    log_probs: Tensor  # (B, W); NONE: there is no hypothesis here, nor behind it
    missing: Tensor  # (B, W) see `MinLength`

    @staticmethod
    def start(max_lengths: Tensor, options: SearchOptions, missing: Tensor) -> OpenHypotheses:
        """Return one empty hypothesis per sentence."""
        shape, device = (len(max_lengths), options.beam), max_lengths.device
        log_probs = torch.full(shape, NONE, device=device)
        log_probs[:, 0] = 0.0
        return OpenHypotheses(
            tokens=torch.zeros(*shape, int(max_lengths.max()), dtype=torch.long, device=device),
            newest=torch.full(shape, options.bos, dtype=torch.long, device=device),
            log_probs=log_probs,
            missing=missing[:, None].repeat(1, options.beam),
        )

    @property
    def rows(self) -> Tensor:
        """(N,) the numbers b * W + w of the hypotheses, ascending."""
        return self.log_probs.flatten().isneginf().logical_not_().nonzero().flatten()

    @property
    def unfinished(self) -> Tensor:
        """(B,) whether the sentence has any."""
        return self.log_probs[:, 0].isneginf().logical_not_()

    def tokens_of(self, parents: Tensor) -> Tensor:
        """(B, C) hypotheses -> their tokens, (B, C, L)."""
        return self.tokens.gather(1, parents[:, :, None].expand(-1, -1, self.tokens.size(2)))


@dataclass
class FinishedHypotheses(Rows):
    """The K best finished hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, K, L)
    lengths: Tensor  # (B, K) end symbol not counted
    log_probs: Tensor  # (B, K)
    scores: Tensor  # (B, K); NONE: there is none

    @staticmethod
    def start(max_lengths: Tensor, options: SearchOptions) -> FinishedHypotheses:
        """Return no hypothesis for each sentence."""
        shape, device = (len(max_lengths), options.nbest), max_lengths.device
        return FinishedHypotheses(
            tokens=torch.zeros(*shape, int(max_lengths.max()), dtype=torch.long, device=device),
            lengths=torch.zeros(shape, dtype=torch.long, device=device),
            log_probs=torch.full(shape, NONE, device=device),
            scores=torch.full(shape, NONE, device=device),
        )

    def add(self, log_probs: Tensor, scores: Tensor, lengths: Tensor, tokens: Tensor) -> None:
        """Rank more hypotheses, (B, C) and (B, C, L), among these. An older one precedes an equal newer one."""
        count = self.scores.size(1)
        ranked, order = torch.cat([self.scores, scores], dim=1).sort(dim=1, descending=True, stable=True)
        order = order[:, :count]
        self.scores = ranked[:, :count]
        self.log_probs = torch.cat([self.log_probs, log_probs], dim=1).gather(1, order)
        self.lengths = torch.cat([self.lengths, lengths], dim=1).gather(1, order)
        self.tokens = torch.cat([self.tokens, tokens], dim=1).gather(1, order[:, :, None].expand(-1, -1, tokens.size(2)))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return those of each sentence. Raises ModelError, see `check_numbers`."""
        columns = (self.tokens, self.lengths, self.log_probs, self.scores)
        return [
            check_numbers(Hypothesis(t[:n], p, s) for t, n, p, s in zip(*of_sentence, strict=True) if s != NONE)
            for of_sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]


@dataclass
class Beam(Rows):
    """The state of B sentences."""

    sentences: Sentences
    open: OpenHypotheses
    finished: FinishedHypotheses


class BeamSearch:
    """See `Search`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.options = decoder, options
        self.min_length = MinLength(options)
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

    def add(
        self, sentence_ids: Sequence[int], max_lengths: Tensor,
        prefixes: Sequence[Sequence[int]] | None = None, sources: Sequence[Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        """See `Search`; it does not need `sources`."""
        hypotheses = OpenHypotheses.start(max_lengths, self.options, self.min_length.missing(max_lengths))
        new = Beam(Sentences.start(sentence_ids, max_lengths, prefixes), hypotheses, FinishedHypotheses.start(max_lengths, self.options))
        self.beam = self.beam.concat(new) if self.beam else new
        self.rows = self.beam.open.rows
        longest = int(max_lengths.max())
        if len(self.penalties) < longest + 2:  # computed one by one: a power's last bit depends on its position in a vector
            self.penalties = torch.tensor([length_penalty(n, self.options.alpha) for n in range(2 * longest + 2)], device=max_lengths.device)

    @torch.inference_mode()
    def step(self) -> FinishedSentences:
        """See `Search`."""
        beam = self.beam
        if beam is None:
            return []
        too_short = self.min_length.concerns(beam.open.missing)
        candidates = self._candidates(beam, self.decoder.step(beam.open.newest, self.rows).float(), too_short)
        ends = candidates.tokens == self.options.eos
        self._finish(beam, candidates, ends)
        parents = self._extend(beam, candidates, ends, too_short)
        self._give_up(beam)
        beam.sentences.lengths = beam.sentences.lengths + 1
        self.decoder.reorder(parents)
        return self._leave(beam)

    def _candidates(self, beam: Beam, logits: Tensor, too_short: bool) -> Candidates:
        """Return the best candidates, given the logits (N, V) of the open hypotheses."""
        width, of_row = self.options.beam, self.rows // self.options.beam  # (N,) the sentence of each row
        bans = self.min_length.always
        if too_short:
            bans = self.min_length.bans(beam.open.missing.flatten()[self.rows], beam.sentences.remaining[of_row], logits.size(1))
        required = beam.sentences.required_tokens(self.options.eos)
        only = None if required is None else required[of_row]
        count = 2 * width if width > 1 else 1
        log_probs, flat = self.options.top_candidates(logits, beam.open.log_probs, self.rows, count, bans.tokens, only, bans.counts)
        return Candidates(log_probs, flat // logits.size(1), flat % logits.size(1))

    def _finish(self, beam: Beam, candidates: Candidates, ends: Tensor) -> None:
        """Rank the candidates that end, `ends` (B, C), among the finished hypotheses."""
        log_probs = candidates.log_probs.masked_fill(~ends, NONE)
        if bool(torch.isneginf(log_probs).all()):
            return
        lengths = beam.sentences.lengths[:, None]
        scores = log_probs / self.penalties[lengths]
        beam.finished.add(log_probs, scores, (lengths - 1).expand_as(scores), beam.open.tokens_of(candidates.parents))

    def _extend(self, beam: Beam, candidates: Candidates, ends: Tensor, too_short: bool) -> Tensor:
        """Make the W best candidates that do not end the open hypotheses. Return their parents, (B, W)."""
        hypotheses, width = beam.open, self.options.beam
        log_probs, order = candidates.log_probs.masked_fill(ends, NONE).sort(dim=1, descending=True, stable=True)
        if lacking := max(0, width - order.size(1)):  # greedy search, or a vocabulary smaller than the beam
            log_probs, order = F.pad(log_probs, (0, lacking), value=NONE), F.pad(order, (0, lacking))
        order = order[:, :width]
        parents = candidates.parents.gather(1, order)
        hypotheses.log_probs = log_probs[:, :width]
        hypotheses.newest = candidates.tokens.gather(1, order)
        if too_short:
            hypotheses.missing = self.min_length.missing_after(hypotheses.missing.gather(1, parents), hypotheses.newest)
        hypotheses.tokens = hypotheses.tokens_of(parents)
        if longest := hypotheses.tokens.size(2):
            position = (beam.sentences.lengths - 1).clamp_max(longest - 1)[:, None, None].expand(-1, width, 1)
            hypotheses.tokens.scatter_(2, position, hypotheses.newest[:, :, None])
        return parents

    def _give_up(self, beam: Beam) -> None:
        """Close hypotheses that are complete, and those that cannot reach the n best any more."""
        hopeless = beam.sentences.complete[:, None]
        if self.options.stop_early:
            attainable = beam.open.log_probs / self.penalties[beam.sentences.max_lengths + 1][:, None]
            hopeless = hopeless | (attainable <= beam.finished.scores[:, -1:])
        beam.open.log_probs = beam.open.log_probs.masked_fill(hopeless, NONE)

    def _leave(self, beam: Beam) -> FinishedSentences:
        """Return the finished sentences and drop them, if enough have finished."""
        finished: FinishedSentences = []
        if split := split_off_finished(beam.open.unfinished):
            stay, leave = split
            leaving = beam.select(leave)
            finished = list(zip(leaving.sentences.ids.tolist(), leaving.finished.hypotheses(), strict=True))
            beam = beam.select(stay)
            self.decoder.keep(stay)
        self.beam = beam if len(beam.sentences.ids) else None
        self.rows = beam.open.rows
        return finished
