"""The state of a beam search, and the data that pass between its steps.

B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   K n-best   L longest output

Scores (N, V) ──▶ Candidates (B, C) ──▶ OpenHypotheses (B, W) and FinishedHypotheses (B, K) of a Beam
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..device import is_host
from .constraint import States, Step
from .coverage import Coverage
from .min_length import Bans
from .search import (
    Hypothesis,
    SearchOptions,
    check_numbers,
)
from .search_state import Rows, Sentences

NONE = float("-inf")
"""The log-probability or score of a hypothesis that does not exist."""
LAST = 1 << 62
"""The value of `lacking` for a hypothesis that does not exist."""


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
    """The scores of the tokens that may follow the open hypotheses."""

    rows: Tensor  # (N,) the numbers b * W + w of the hypotheses, ascending
    logits: Tensor  # (N, V); log-probabilities where constraints edit, and in diverse beam search
    own: Tensor | None  # (N, V) where constraints adjust: the model's own log-probabilities
    bans: Bans
    only: Tensor | None  # (N,) the one token that may follow, or FREE


@dataclass
class OpenHypotheses(Rows):
    """The open hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, W, L); values beyond the length mean nothing
    newest: Tensor  # (B, W) the last token of each
    log_probs: Tensor  # (B, W); NONE: there is no hypothesis at this index or behind it
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
    def exists(self) -> Tensor:
        """(B, W) whether there is a hypothesis."""
        return self.log_probs.isneginf().logical_not_()

    def of_parents(self, values: Tensor, parents: Tensor) -> Tensor:
        """Return the values of the hypotheses `parents` (B, C): (B, W, L) -> (B, C, L)."""
        batch, width, length = values.shape
        rows = parents + width * torch.arange(batch, device=parents.device)[:, None]
        return (
            values.view(batch * width, length).index_select(0, rows.flatten()).view(batch, parents.size(1), length)
        )  # whole rows: faster than `gather`


@dataclass
class FinishedHypotheses(Rows):
    """The K best finished hypotheses of each sentence, best first."""

    tokens: Tensor  # (B, K, L)
    lengths: Tensor  # (B, K) end symbol not counted
    log_probs: Tensor  # (B, K) the model's own
    scores: Tensor  # (B, K); NONE: there is no hypothesis
    lacking: Tensor | None  # (B, K) where constraints demand something: how much is missing
    coverage: Tensor | None  # (B, K) with a coverage penalty: cp, which `scores` include
    path: Tensor | None  # (B, K, L) see `OpenHypotheses`

    @staticmethod
    def start(max_lengths: Tensor, options: SearchOptions, demanding: bool) -> FinishedHypotheses:
        """Return the state of sentences that have no finished hypotheses."""
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
        """Return the K best of these hypotheses and `more`, (B, C). An older hypothesis precedes an equal newer one."""
        columns: dict[str, Any] = {
            name: None if mine is None else torch.cat([mine, getattr(more, name)], dim=1)
            for name, mine in vars(self).items()
        }
        return FinishedHypotheses(**columns).best(self.scores.size(1))

    def best(self, count: int) -> FinishedHypotheses:
        """Return the `count` best of each sentence, best first. Equal hypotheses keep their order."""
        order = self.scores.sort(dim=1, descending=True, stable=True).indices
        if self.lacking is not None:
            lacking = self.lacking.masked_fill(self.scores == NONE, LAST)
            order = order.gather(1, lacking.gather(1, order).sort(dim=1, stable=True).indices)
        order = order[:, :count]
        return self.each(lambda values: _gathered(values, order))

    def each(self, change: Callable[[Tensor], Tensor]) -> FinishedHypotheses:
        """Return the hypotheses with `change` applied to each field."""
        columns: dict[str, Any] = {
            name: None if values is None else change(values) for name, values in vars(self).items()
        }
        return FinishedHypotheses(**columns)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, without those that lack more than the best one. Raises ModelError, see `check_numbers`."""
        scores = (
            self.scores if self.lacking is None else self.scores.masked_fill(self.lacking > self.lacking[:, :1], NONE)
        )
        columns = (self.tokens, self.lengths, self.log_probs, scores)
        every = [
            check_numbers(Hypothesis(t[:n], p, s) for t, n, p, s in zip(*of_sentence, strict=True) if s != NONE)
            for of_sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]
        if self.path is None:
            return every
        return [
            [h.with_path(path) for h, path in zip(those, paths, strict=False)]
            for those, paths in zip(every, self.path.tolist(), strict=True)
        ]


def _gathered(values: Tensor, order: Tensor) -> Tensor:
    """Return the entries `order` (B, K) of values (B, C) or (B, C, L)."""
    return (
        values.gather(1, order)
        if values.dim() == 2
        else values.gather(1, order[:, :, None].expand(-1, -1, values.size(2)))
    )


@dataclass
class Beam(Rows):
    """The state of B sentences."""

    sentences: Sentences
    open: OpenHypotheses
    finished: FinishedHypotheses
    constraints: States
    coverage: Coverage | None  # with a coverage penalty

    def step(self, rows: Tensor) -> Step:
        """Return the step that extends the hypotheses `rows` (N,)."""
        return Step(rows, self.open.tokens, self.sentences.lengths - 1, self.sentences.remaining)


@dataclass
class Status(Rows):
    """The values of a beam that the host needs before a step, as tensors on the host. Reading them is the only wait of a step on a device."""

    exists: Tensor  # (B, W) see `OpenHypotheses`
    complete: Tensor  # (B,) see `Sentences`
    too_short: Tensor  # (B,) whether a hypothesis misses tokens (`MinLength`)

    @staticmethod
    def read(beam: Beam) -> Status:
        """Return the status of a beam, with a single copy to the host."""
        exists, too_short = beam.open.exists, (beam.open.missing > 0).any(1)
        if is_host(exists.device):
            return Status(exists, beam.sentences.complete, too_short)
        status = torch.cat([exists, beam.sentences.complete[:, None], too_short[:, None]], 1).to("cpu")
        return Status(status[:, :-2], status[:, -2], status[:, -1])

    @property
    def rows(self) -> Tensor:
        """(N,) the numbers b * W + w of the hypotheses, ascending."""
        return self.exists.flatten().nonzero().flatten()

    @property
    def unfinished(self) -> Tensor:
        """(B,) whether the sentence has an open hypothesis."""
        return self.exists[:, 0]


def appended(values: Tensor, position: Tensor, newest: Tensor) -> Tensor:
    """Return values (B, W, L) with `newest` (B, W) at `position` (B, W, 1), if L reaches that far; in place."""
    if longest := values.size(2):
        values.scatter_(2, position.clamp_max(longest - 1), newest[:, :, None])
    return values
