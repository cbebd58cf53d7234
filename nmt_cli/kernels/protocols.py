"""The interfaces between a search and the code that computes for it. Kernels implement them; `decoding` has the plain implementations.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence   S source length

A search sees a `Decoder`, never a model. A decoder holds B sentences with W hypotheses each. Hypothesis w of sentence b
is number b * W + w. A hypothesis is open while tokens are still added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class Decoder(Protocol):
    """A model with the sentences that are being translated."""

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Return logits of the next token of each open hypothesis, (N, V). The caller may write to them.

        `tokens` (B, W) are the newest tokens of all hypotheses; `rows` (N,) are the numbers of the open ones, ascending.
        """
        ...

    def reorder(self, parents: Tensor) -> None:
        """Replace hypothesis w of sentence b by hypothesis parents[b, w] of the same sentence; `parents` is (B, W)."""
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
    """A decoder that ranks candidates itself and does not return logits, which is faster."""

    @property
    def vocabulary(self) -> int:
        """The size V of the vocabulary."""
        ...

    def best(
        self,
        tokens: Tensor,
        rows: Tensor,
        log_probs: Tensor,
        count: int,
        banned_tokens: Sequence[int],
        only: Tensor | None,
        banned_counts: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Take a step. Return the same as `TopCandidates` for the logits of the step, which are not normalised."""
        ...


class GrowingDecoder(Decoder, Protocol):
    """A decoder that takes more sentences while it is in use."""

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """Append sentences to those that the decoder holds. `sources` are their token ids, end symbols included."""
        ...


class TopCandidates(Protocol):
    """A function that returns the best candidates to extend the hypotheses of each sentence."""

    def __call__(
        self,
        logits: Tensor,
        log_probs: Tensor,
        rows: Tensor,
        count: int,
        banned_tokens: Sequence[int],
        only: Tensor | None,
        banned_counts: Tensor | None,
        normalized: bool,
        /,
    ) -> tuple[Tensor, Tensor]:
        """Return the `count` largest of log_probs (B, W) + log-softmax(logits) over (W, V), largest first.

        The result is values and flat indices w * V + v, both (B, C); equal values are ordered by index. Where a sentence has
        fewer candidates, the rest are -inf with an index that means nothing.

        `logits` (N, V) are those of the open hypotheses `rows` (N,); they may be written to. For hypothesis n, the first
        banned_counts[n] of `banned_tokens` are no candidates, or all of them if `banned_counts` (N,) is None. Where
        only[n] is not -1, it is the one candidate of hypothesis n, even if it is banned. Banned tokens keep their share
        of the softmax. With `normalized` the logits are log-probabilities already: no softmax is computed.
        """
        ...


class OpenColumns(Protocol):
    """The open hypotheses of each sentence, best first; see `decoding.beam_state.OpenHypotheses`."""

    tokens: Tensor  # (B, W, L)
    newest: Tensor  # (B, W)
    log_probs: Tensor  # (B, W); -inf: no such hypothesis
    missing: Tensor  # (B, W) tokens with text that an output still needs before it may end


class FinishedColumns(Protocol):
    """The K best finished hypotheses of each sentence, best first; see `decoding.beam_state.FinishedHypotheses`."""

    tokens: Tensor  # (B, K, L)
    lengths: Tensor  # (B, K)
    log_probs: Tensor  # (B, K)
    scores: Tensor  # (B, K)


@dataclass(frozen=True)
class BannedTokens:
    """Tokens that may not follow a hypothesis: the first n of `tokens`, where `decoding.min_length` decides n. The tensors are on the host."""

    tokens: Tensor
    """In this order: tokens that are never generated, the end symbol, tokens without text."""
    always: int
    """The number n for a hypothesis that has enough tokens with text."""
    too_early: int
    """The number n for a hypothesis that needs more tokens with text. If all tokens that may still be added must have text, n is the size of `tokens`."""
    textless: Tensor
    """Tokens without text."""


@dataclass(frozen=True)
class BeamState:
    """The state of a plain beam search: contiguous tensors, which a step changes in place."""

    open: OpenColumns
    finished: FinishedColumns
    lengths: Tensor
    """(B,), length of an output that ends in the coming step, end symbol counted."""
    max_lengths: Tensor
    """(B,), maximum length of an output, end symbol not counted."""
    penalties: Tensor
    """The length penalty of each length."""
    eos: int
    lookahead: int
    """A hypothesis is given up if it cannot become one of the K best within this number of tokens; 0: no hypothesis is given up."""
    banned: BannedTokens


class ExtendBeam(Protocol):
    """A function that takes a step of beam search from its candidates, as `decoding.beam_search` does without constraints."""

    def __call__(self, state: BeamState, candidates: tuple[Tensor, Tensor, Tensor], /) -> Tensor:
        """Replace the open hypotheses by the W best candidates that do not end, and add candidates that end to the finished hypotheses.

        `candidates` are values, hypotheses and tokens, each (B, C), best first. Return the parents of the open hypotheses, (B, W). A
        hypothesis that is given up, or whose output is complete, gets -inf. `state.lengths` do not change.
        """
        ...


@runtime_checkable
class SearchingDecoder(RankingDecoder, Protocol):
    """A decoder that takes whole steps of plain beam search, which is faster still.

    In small models, the work between the functions of a step takes longer than the functions themselves.
    """

    @property
    def searches(self) -> bool:
        """Whether the decoder searches by itself for its model."""
        ...

    def search(self, state: BeamState, steps: int, stay: float) -> None:
        """Take up to `steps` steps, in place. Stop when finished sentences should leave: when at most the share `stay` of the sentences is unfinished.

        A step does the same as `best`, `ExtendBeam` and `reorder` one after another, and adds 1 to `state.lengths`.
        """
        ...


class LogSoftmax(Protocol):
    """A function that turns logits into log-probabilities."""

    def __call__(self, logits: Tensor, /) -> Tensor:
        """Return the log-softmax of logits (N, V), which may be overwritten. `TopCandidates` computes the same log-softmax."""
        ...
