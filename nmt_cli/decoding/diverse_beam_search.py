"""Diverse beam search (Vijayakumar et al. 2018): groups of hypotheses that differ from each other.

    B sentences   W beam   G groups   W' = W / G hypotheses of a group   K n-best   N open hypotheses   V vocabulary

    logits (N, V) ──▶ group 0: its best candidates ──▶ group 1, penalised by the tokens of group 0 ──▶ group 2, by 0 and 1 ──▶ …

The beam of a sentence is divided into groups. Each group is a beam search of its own, with W' hypotheses. In each step the
groups are extended one after the other: log P of a token falls by the penalty λ for each hypothesis of an earlier group
that gets this token in the same step (Hamming diversity, the paper's section on dissimilarity). The penalties add up
over the steps of a hypothesis, and a group ranks by these sums, as in fairseq and transformers. As in transformers, the
hypotheses that count are those that stay open: a hypothesis that ends, or that cannot reach the best of its group any
more, penalises nobody. A required token, as in a prefix, is not penalised: no other token could be chosen.

The result is the W' best of each group together, ranked by the model's own log P / lp (+ cp with a coverage penalty), without repeated outputs.

For `BeamSearch` the groups are "sentences" of width W': hypothesis w of group g of sentence b has the number
(b * G + g) * W' + w there, which is its number in the decoder too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UsageError
from .beam_search import BeamSearch
from .beam_state import NONE, Beam, Candidates, Scores
from .min_length import Bans
from .protocols import AttentionDecoder, Decoder
from .search import FinishedSentences, Hypothesis, SearchOptions
from .search_state import FREE, split_off_finished
from .sentence import Sentence


class Groups:
    """A `Decoder` whose sentences are the groups of another decoder's sentences."""

    def __init__(self, decoder: Decoder, groups: int, width: int) -> None:
        self.decoder, self.groups, self.width = decoder, groups, width

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        return self.decoder.step(tokens.view(-1, self.groups * self.width), rows)

    def record_attention(self) -> None:
        """See `AttentionDecoder`. The other decoder must be an `AttentionDecoder`."""
        cast(AttentionDecoder, self.decoder).record_attention()

    def attention(self) -> Tensor:
        """See `AttentionDecoder`."""
        return cast(AttentionDecoder, self.decoder).attention()

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        first = torch.arange(self.groups, device=parents.device)[:, None] * self.width
        self.decoder.reorder((parents.view(-1, self.groups, self.width) + first).flatten(1))

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`: the groups of a sentence are kept together."""
        self.decoder.keep(sentences[:: self.groups] // self.groups)


class DiverseBeamSearch(BeamSearch):
    """See `Search`. If the beam has fewer hypotheses than `options.diverse.groups`, each group has one hypothesis.

    Raises UsageError if the beam is not a multiple of the groups.
    """

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.groups, self.penalty, self.nbest = (
            min(options.diverse.groups, options.beam),
            options.diverse.penalty,
            options.nbest,
        )
        if options.beam % self.groups:
            raise UsageError(
                f"a beam of {options.beam} cannot be divided into {self.groups} groups of equal size: give a beam that is a multiple of {self.groups}, or other groups (decode.diverse_groups)."
            )
        self.width = options.beam // self.groups
        super().__init__(Groups(decoder, self.groups, self.width), replace(options, beam=self.width, nbest=self.width))
        self.penalises = self.groups > 1 and self.penalty > 0
        if self.penalises:
            self.normalized = self.adjusts = True

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence], device: torch.device) -> None:
        """See `Search`."""
        super().add(
            [number for number in sentence_ids for _ in range(self.groups)],
            [sentence for sentence in sentences for _ in range(self.groups)],
            device,
        )

    def _best(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates; `own` holds the log-probabilities without penalties."""
        if self.penalises and scores.own is None:
            scores = scores._replace(own=scores.logits)
        return super()._best(beam, scores)

    def _ranked(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates, one group after the other."""
        if not self.penalises:
            return super()._ranked(beam, scores)
        tokens = beam.open.newest.new_zeros(
            len(beam.sentences.ids) // self.groups, 0
        )  # (B, w) tokens of the earlier groups
        counted = tokens.bool()  # (B, w) whether these tokens are penalised
        parts: list[Candidates] = []
        for group in range(self.groups):
            mine = beam.select(torch.arange(group, len(beam.sentences.ids), self.groups, device=tokens.device))
            part = self._of_group(mine, self._scores_of_group(group, scores, tokens, counted))
            log_probs, order = self._best_open(part, part.tokens == self.options.eos)
            tokens = torch.cat([tokens, part.tokens.gather(1, order)], dim=1)
            counted = torch.cat([counted, ~(log_probs.isneginf() | self._hopeless(mine, log_probs))], dim=1)
            parts.append(part)
        return _interleaved(parts)

    def _scores_of_group(self, group: int, scores: Scores, tokens: Tensor, counted: Tensor) -> Scores:
        """Return the penalised scores of one group; `tokens` (B, w) of earlier groups are penalised where they are `counted`."""
        index = (scores.rows // self.width % self.groups == group).nonzero().flatten()
        rows = scores.rows[index]
        sentences = rows // (self.width * self.groups)
        only = None if scores.only is None else scores.only[index]
        logits = scores.logits[index]
        penalties = counted[sentences].to(logits.dtype) * -self.penalty  # (n, w)
        if only is not None:
            penalties = penalties.masked_fill((only != FREE)[:, None], 0.0)
        logits.scatter_add_(1, tokens[sentences], penalties)
        bans = Bans(scores.bans.tokens, None if scores.bans.counts is None else scores.bans.counts[index])
        return Scores(sentences * self.width + rows % self.width, logits, None, bans, only)

    def _of_group(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates of one group of each sentence."""
        if len(scores.rows):
            return super()._ranked(beam, scores)
        none = beam.open.newest[:, :1]
        return Candidates(
            torch.full_like(none, NONE, dtype=scores.logits.dtype), torch.zeros_like(none), torch.zeros_like(none), None
        )

    def _split(self, unfinished: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `split_off_finished`: the groups of a sentence stay or leave together."""
        split = split_off_finished(unfinished.view(-1, self.groups).any(1), self.options.compact_below)
        if split is None:
            return None
        stay, leave = (
            (sentences[:, None] * self.groups + torch.arange(self.groups, device=sentences.device)).flatten()
            for sentences in split
        )
        return stay, leave

    def _results(self, leaving: Beam) -> FinishedSentences:
        """Return the best hypotheses of all groups of each sentence."""
        finished = leaving.finished
        if self.penalises:
            scores = finished.log_probs / self.penalties[finished.lengths + 1]
            if finished.coverage is not None:
                scores = scores + finished.coverage
            finished.scores = scores.masked_fill(finished.scores == NONE, NONE)
        count = self.groups * finished.scores.size(1)
        merged = finished.each(lambda values: values.reshape(-1, count, *values.shape[2:]))
        ids = leaving.sentences.ids[:: self.groups].tolist()
        return [
            (number, _distinct(hypotheses)[: self.nbest])
            for number, hypotheses in zip(ids, merged.best(count).hypotheses(), strict=True)
        ]


def _interleaved(parts: Sequence[Candidates]) -> Candidates:
    """Return the candidates (B, C) of each group as candidates of B * G groups, (B * G, C)."""
    widest = max(part.tokens.size(1) for part in parts)

    def of_all(columns: Sequence[Tensor], fill: float) -> Tensor:
        return torch.stack(
            [F.pad(column, (0, widest - column.size(1)), value=fill) for column in columns], dim=1
        ).flatten(0, 1)

    return Candidates(
        of_all([part.log_probs for part in parts], NONE),
        of_all([part.parents for part in parts], 0),
        of_all([part.tokens for part in parts], 0),
        None,
    )


def _distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses without those whose output an earlier hypothesis has."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(first.values())
