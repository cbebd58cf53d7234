"""The interfaces between a search and what computes for it. A kernel implements them; `decoding` has the plain ones.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   S source length

A search sees a `Decoder`, never a model. A decoder holds B sentences with W hypotheses each. Hypothesis w of sentence b
is number b * W + w. A hypothesis is open while tokens are still added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


class Decoder(Protocol):
    """A model with the sentences that are being translated."""

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return logits of the next token of each open hypothesis, (N, V). The caller may write to them.

        `tokens` (B, W) are the newest tokens of all hypotheses; `rows` (N,) are the numbers of the open ones, ascending.
        """
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue what was its hypothesis parents[b, w]; `parents` is (B, W)."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Keep the sentences at these indices, (B',) ascending, and drop the others."""
        ...


@runtime_checkable
class AttentionDecoder(Decoder, Protocol):
    """A decoder that can report its attention to the source."""

    def record_attention(self) -> None:
        """Record the attention of each step from now on."""
        ...

    def attention(self) -> Tensor:
        """Return the weights of the last step's open hypotheses, (N, S) fp64, for S source tokens, end symbol included.

        They are the mean over the heads of the decoder layer that alignments use. A row sums to 1; beyond the sentence's
        own source its weights are 0. S may change from step to step.
        """
        ...


@runtime_checkable
class RankingDecoder(Decoder, Protocol):
    """A decoder that ranks what may follow without giving out logits, which is faster."""

    @property
    def vocabulary(self) -> int:
        """V."""
        ...

    def best(
        self, tokens: Tensor, rows: Tensor, log_probs: Tensor, count: int, banned_tokens: Sequence[int], only: Tensor | None, banned_counts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Take a step. Return what `TopCandidates` returns for its logits, which are not normalised."""
        ...


class GrowingDecoder(Decoder, Protocol):
    """A decoder that takes more sentences while it is in use."""

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Append sentences to those that it holds: their token ids, end symbols included."""
        ...


class TopCandidates(Protocol):
    """A function that returns the best candidates to extend the hypotheses of each sentence."""

    def __call__(
        self, logits: Tensor, log_probs: Tensor, rows: Tensor, count: int, banned_tokens: Sequence[int],
        only: Tensor | None, banned_counts: Tensor | None, normalized: bool, /,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the `count` largest of log_probs (B, W) + log-softmax(logits) over (W, V), largest first.

        They are values and flat indices w * V + v, both (B, C); equal values are ordered by index. Where a sentence has
        fewer candidates, the rest are -inf with an index that means nothing.

        `logits` (N, V) are those of the open hypotheses `rows` (N,); they may be written to. `banned_tokens` are no
        candidates: for hypothesis n the first banned_counts[n] of them, or all where `banned_counts` (N,) is None. Where
        only[n] is not -1, it is the one candidate of hypothesis n, even if it is banned. Banned tokens keep their share
        of the softmax. With `normalized` the logits are log-probabilities already: no softmax is taken.
        """
        ...


class OpenColumns(Protocol):
    """The open hypotheses of each sentence, best first; see `decoding.beam_state.OpenHypotheses`."""

    tokens: Tensor  # (B, W, L)
    newest: Tensor  # (B, W)
    log_probs: Tensor  # (B, W); -inf: there is none
    missing: Tensor  # (B, W) tokens with text that an output still needs before it may end


class FinishedColumns(Protocol):
    """The K best finished hypotheses of each sentence, best first; see `decoding.beam_state.FinishedHypotheses`."""

    tokens: Tensor  # (B, K, L)
    lengths: Tensor  # (B, K)
    log_probs: Tensor  # (B, K)
    scores: Tensor  # (B, K)


@dataclass(frozen=True)
class BannedTokens:
    """Tokens that may not follow: the first ones of `tokens`, how many says `decoding.min_length`. They are on the host."""

    tokens: Tensor
    """Those that are never generated, the end symbol, those without text."""
    always: int
    """How many of `tokens` may not follow an output that has enough tokens with text."""
    too_early: int
    """How many may not follow one that has not; none of them, if only tokens with text can still make it long enough."""
    textless: Tensor
    """Those without text."""


@dataclass(frozen=True)
class BeamState:
    """What a plain beam search knows of its sentences: tensors, contiguous, which a step changes in place."""

    open: OpenColumns
    finished: FinishedColumns
    lengths: Tensor
    """(B,) of the outputs that the coming step extends, end symbol counted."""
    max_lengths: Tensor
    """(B,) that an output may have, end symbol not counted."""
    penalties: Tensor
    """The length penalty of each length."""
    eos: int
    lookahead: int
    """A hypothesis is given up which cannot become one of the K best within so many tokens; 0: that is not asked."""
    banned: BannedTokens


class ExtendBeam(Protocol):
    """A function that takes a step of beam search, given its candidates: what `decoding.beam_search` does without constraints."""

    def __call__(self, state: BeamState, candidates: tuple[Tensor, Tensor, Tensor], /) -> Tensor:
        """Make the W best candidates that do not end the open hypotheses, and rank those that do among the finished ones.

        `candidates` are, best first, values, hypotheses and tokens, (B, C). Return the parents of the open hypotheses, (B, W). A
        hypothesis that is given up, or whose output is complete, gets -inf. `state.lengths` stay as they are.
        """
        ...


@runtime_checkable
class SearchingDecoder(RankingDecoder, Protocol):
    """A decoder that takes whole steps of plain beam search, which is faster still: small models compute less than what is between their functions."""

    @property
    def searches(self) -> bool:
        """Whether it does, for its model."""
        ...

    def search(self, state: BeamState, steps: int, stay: float) -> None:
        """Take up to `steps` steps, in place; stop behind the one with which finished sentences leave: at most the share `stay` is unfinished.

        It is what `best`, `ExtendBeam` and `reorder` do one after another; `state.lengths` grow.
        """
        ...


class LogSoftmax(Protocol):
    """A function that makes logits log-probabilities."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """Return the log-softmax of logits (N, V), which may be overwritten. `TopCandidates` takes the same logarithms."""
        ...
