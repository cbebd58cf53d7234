"""Diverse beam search (Vijayakumar et al. 2018): groups of hypotheses that differ from each other.

    B sentences   W beam   G groups   W' = W / G hypotheses of a group   K n-best   N open hypotheses   V vocabulary

    logits (N, V) ──▶ group 0: its best candidates ──▶ group 1, penalised by the tokens of group 0
        ──▶ group 2, by 0 and 1 ──▶ …

The beam of a sentence is divided into groups. Each group is a beam search of its own, with W' hypotheses. In each step
the groups are extended one after the other: log P of a token falls by the penalty λ for each hypothesis of an earlier
group that gets this token in the same step (Hamming diversity, the paper's section on dissimilarity). The penalties add
up over the steps of a hypothesis, and a group ranks by these sums, as in fairseq and transformers. As in transformers,
the hypotheses that count are those that stay open: a hypothesis that ends, or that cannot reach the best of its group
any more, penalises nobody. A required token, as in a prefix, is not penalised: no other token could be chosen.

The result is the W' best of each group together, ranked by the scores of the model's own log P, without
repeated outputs.

For `BeamSearch` the groups are "sentences" of width W': hypothesis w of group g of sentence b has the number
(b * G + g) * W' + w there, which is its number in the decoder too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UsageError
from .arrays import NONE, Array, arrays_of
from .beam_search import BeamSearch
from .beam_state import Beam, Candidates, Scores
from .protocols import Decoder
from .search import SearchOptions
from .search_state import FREE
from .sentence import FinishedSentences, Hypothesis, Sentence


class Groups:
    """A `Decoder` whose sentences are the groups of another decoder's sentences."""

    def __init__(self, decoder: Any, groups: int, width: int) -> None:
        self.decoder, self.arrays, self.groups, self.width = decoder, decoder.arrays, groups, width

    def step(self, tokens: Array, rows: np.ndarray) -> Any:
        return self.decoder.step(tokens.reshape((-1, self.groups * self.width)), rows)

    def reorder(self, parents: Array) -> None:
        first = self.arrays.arange(self.groups)[:, None] * self.width
        numbers = parents.reshape((-1, self.groups, self.width)) + first
        self.decoder.reorder(numbers.reshape((-1, self.groups * self.width)))

    def keep(self, sentences: np.ndarray) -> None:
        """See `Decoder`: the groups of a sentence are kept together."""
        self.decoder.keep(sentences[:: self.groups] // self.groups)


class DiverseBeamSearch(BeamSearch):
    """See `Search`. If the beam has fewer hypotheses than `options.diverse_groups`, each group has one hypothesis.

    Raises UsageError if the beam is not a multiple of the groups.
    """

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.groups, self.nbest = min(options.diverse_groups, options.beam), options.nbest
        self.penalty = options.diversity_penalty if self.groups > 1 else 0.0
        if options.beam % self.groups:
            raise UsageError(
                f"a beam of {options.beam} cannot be divided into {self.groups} groups of equal size: give a "
                f"beam that is a multiple of {self.groups}, or other groups (decode.diverse_groups)."
            )
        self.width = options.beam // self.groups
        super().__init__(Groups(decoder, self.groups, self.width), replace(options, beam=self.width, nbest=self.width))
        if self.penalty:
            self.normalized = self.adjusts = True

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        super().add(
            [number for number in sentence_ids for _ in range(self.groups)],
            [sentence for sentence in sentences for _ in range(self.groups)],
        )

    def _ranked(self, beam: Beam, scores: Scores) -> Candidates:
        """Return the best candidates, one group after the other."""
        if not self.penalty:
            return super()._ranked(beam, scores)
        arrays, count = self.arrays, len(beam.sentences.ids)
        tokens = arrays.zeros((count // self.groups, 0), arrays.int64)  # (B, w) tokens of the earlier groups
        counted = arrays.zeros(tokens.shape, arrays.boolean)  # (B, w) whether these tokens are penalised
        parts: list[Candidates] = []
        for group in range(self.groups):
            mine = beam.select(arrays.arange(group, count, self.groups))
            mine_scores = self._scores_of_group(group, scores, tokens, counted)
            part = super()._ranked(mine, mine_scores) if len(mine_scores.rows) else self._none(count // self.groups)
            log_probs, order = self._best_open(part, part.tokens == self.options.eos)
            tokens = arrays.concat([tokens, arrays.gather(part.tokens, order)], 1)
            counted = arrays.concat([counted, (log_probs != NONE) & ~self._hopeless(mine, log_probs)], 1)
            parts.append(part)
        return _interleaved(parts)

    def _scores_of_group(self, group: int, scores: Scores, tokens: Array, counted: Array) -> Scores:
        """Return the scores of one group; `tokens` (B, w) of earlier groups are penalised where they are `counted`."""
        arrays = self.arrays
        index = arrays.nonzero(scores.rows // self.width % self.groups == group)[0]
        rows, logits = scores.rows[index], scores.logits[index]
        sentences = rows // (self.width * self.groups)
        only = None if scores.only is None else scores.only[index]
        penalties = arrays.astype(counted[sentences], logits.dtype) * -self.penalty  # (n, w)
        if only is not None:
            penalties = arrays.where((only != FREE)[:, None], 0.0, penalties)
        numbers, chosen = arrays.arange(len(index)), tokens[sentences]
        for position in range(chosen.shape[1]):  # one after the other: a token may be in several
            logits[numbers, chosen[:, position]] += penalties[:, position]
        return Scores(sentences * self.width + rows % self.width, logits, scores.bans.of(index), only)

    def _none(self, batch: int) -> Candidates:
        """Return candidates that do not exist, for a group that is closed in every sentence."""
        none = self.arrays.zeros((batch, 1), self.arrays.int64)
        return Candidates(none + NONE, none, none)

    def _split(self, unfinished: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """See `ArraySearch`: the groups of a sentence stay or leave together."""
        open_groups = np.any(unfinished.reshape(-1, self.groups), 1)
        split = super()._split(open_groups)
        if split is None:
            return None
        stay, leave = ((part[:, None] * self.groups + np.arange(self.groups)).ravel() for part in split)
        return stay, leave

    def _results(self, leaving: Beam) -> FinishedSentences:
        """Return the best hypotheses of all groups of each sentence."""
        finished = leaving.finished
        if self.penalty:
            scores = self._scores(finished.log_probs, finished.lengths + 1)
            finished.scores = self.arrays.where(finished.scores == NONE, NONE, scores)
        ids = leaving.sentences.ids[:: self.groups].tolist()
        count = self.groups * finished.scores.shape[1]
        merged = finished.each(lambda values: values.reshape((len(ids), count, *values.shape[2:])))
        return [
            (number, _distinct(hypotheses)[: self.nbest])
            for number, hypotheses in zip(ids, merged.best(count).hypotheses(), strict=True)
        ]


def _interleaved(parts: Sequence[Candidates]) -> Candidates:
    """Return the candidates (B, C) of each group as candidates of B * G groups, (B * G, C)."""
    arrays, columns = arrays_of(parts[0].tokens), list(zip(*parts, strict=True))
    shape = len(parts[0].tokens), max(part.tokens.shape[1] for part in parts)
    return Candidates(
        *(
            arrays.concat([arrays.padded(x, shape, fill)[:, None] for x in column], 1).reshape((-1, shape[1]))
            for column, fill in zip(columns, (NONE, 0, 0), strict=False)
        )
    )


def _distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses without those whose output an earlier hypothesis has."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(first.values())
