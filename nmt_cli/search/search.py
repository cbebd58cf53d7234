"""The interface, the options and the results that all searches share.

    worker ──▶ Search: add(ids, sentences) · step() ──▶ (id, hypotheses) of the sentences that leave

A search builds the outputs of sentences, one token per step. Sentences enter at any step and leave when they are
finished: each has its own length. `nmt_cli.registry.SEARCHES` lists the searches over decoders by name: such a search
sees a `Decoder` (`protocols`), never a model. The engine has plain beam search too.

Score: (log P(Y) - word_penalty |Y|) / lp(Y) with a length penalty lp (`length_penalties`). log P is the sum of the
model's own log-probabilities, end symbol included. Banned tokens (PAD, BOS, UNK) are never generated; the other tokens
do not get their probability. `constraint` has rules for outputs.

The result for a sentence does not depend on the other sentences. This file does not load torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from .length_penalties import gnmt, none
from .sentence import FinishedSentences, Sentence

if TYPE_CHECKING:
    from .constraint import Constraint


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options of the search "sample". `top_k` 0, `top_p` 1 and `min_p` 0 cut nothing off."""

    top_k: int = 0
    """Sample from the K most probable tokens."""
    top_p: float = 1.0
    """Sample from the fewest tokens whose probabilities reach p."""
    min_p: float = 0.0
    """Sample from the tokens that have at least this share, 0 to 1, of the largest probability."""
    temperature: float = 1.0
    """Divides the logits."""
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class MbrOptions:
    """Options of the search "mbr"."""

    candidates: str = "sample"
    """The source of the hypotheses: "sample" (random samples) or "beam" (the n-best list of beam search)."""
    utility: str = "chrf"
    """A name of the registry's UTILITIES."""


STEPS, ROWS = 8, 512
"""Largest number of steps in one call of a kernel, and of hypotheses that these steps extend in total. The time between
calls is then negligible, and new sentences still join the search soon."""
UNLIMITED = 1 << 30
"""A number of tokens that no output reaches."""
AT_ONCE = 1.0
"""With this `compact_below`, a sentence leaves in the step in which it is finished."""
SECOND = 4
"""Outputs that are looked at if the best one is not accepted."""
COMPACT_BELOW = 0.7
"""Finished sentences leave once at most this share of the sentences is unfinished, because leaving costs a copy."""

Accepts = Callable[[Sentence, Sequence[int]], bool]


def _prefix() -> tuple[Constraint, ...]:
    from .constraints.prefix import Prefix

    return (Prefix(),)


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineOptions:
    """The first fields of nmt_search_options in `engine/src/nmt.h`, in its order."""

    beam: int
    """W, hypotheses per sentence."""
    nbest: int = 1
    """Hypotheses to return per sentence, at most `beam`."""
    bos: int
    eos: int
    lookahead: int = UNLIMITED
    """A hypothesis is given up if it could not become one of the n best even if its next `lookahead` tokens, end symbol
    included, had probability 1. 0: none is given up before the longest output. This is the reference for UNLIMITED: the
    n best are the same."""
    min_length: int = 0
    token_log_probs: bool = False
    """Whether hypotheses have `token_log_probs`."""
    scores: bool = True
    """Whether somebody reads log P and scores. If not, greedy search in the engine has zeros, and is faster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchOptions(EngineOptions):
    """Options of a search: `beam`, `alpha` and `min_length` as in [decode], and the ids of special tokens.

    Sentences with the same object of options are searched together.
    """

    alpha: float
    banned_tokens: tuple[int, ...]
    """Ids that are never generated."""
    search: Callable[..., Search] | None = None
    """(decoder, options) → the search: a class as `nmt_cli.registry.SEARCHES` lists them; None: beam search."""
    batch_tokens: int = 4096
    """Source tokens of a search, about: it takes no more sentences when it has so many."""
    align: bool = False
    """Whether results have alignments."""
    textless: tuple[int, ...] = ()
    """Ids that do not count in `min_length`: white space."""
    length_penalty: Callable[[int, float], float] = gnmt
    """lp: (|Y|, alpha) → the divisor of log P. It must not fall when |Y| grows."""
    word_penalty: float = 0.0
    """Subtracted from log P for each token of an output, end symbol included."""
    constraints: tuple[Constraint, ...] = field(default_factory=_prefix)
    compact_below: float = COMPACT_BELOW
    """Finished sentences leave the search once at most this share of its sentences is unfinished. This changes no
    result."""
    steps: int = STEPS
    """Number of tokens that `Search.step` may add if there are few hypotheses and a kernel can add several at once.
    This changes no result."""
    seconds: float = 0.0
    """If not 0: a kernel that can add several tokens at once adds as many as it can in about this time, up to `steps`.
    Sentences then leave together. This changes no result."""
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    diverse_groups: int = 4
    """G of diverse beam search: groups of the beam."""
    diversity_penalty: float = 0.5
    """λ of diverse beam search: the penalty of a token for each hypothesis of an earlier group that gets the same token
    in the same step."""
    mbr: MbrOptions = field(default_factory=MbrOptions)
    accepts: Accepts | None = None
    """(sentence, the tokens of its best output) → whether this stays; else the best of SECOND outputs that is accepted
    takes its place, if there is one. None: every output stays."""
    detokenize: Any = None
    """(token ids of outputs) → their texts; searches that compare texts need it."""

    @cached_property
    def second(self) -> SearchOptions:
        """The options of the search for another output: the most probable ones, whatever their length."""
        return replace(self, beam=SECOND, nbest=SECOND, length_penalty=none, accepts=None, align=False)

    def score(self, log_prob: float, length: int) -> float:
        """Return the score of an output; `length` is |Y|, the end symbol counted."""
        return (log_prob - self.word_penalty * length) / self.length_penalty(length, self.alpha)


class Search(Protocol):
    """A search, as `nmt_cli.registry.SEARCHES` lists them: made from a decoder and `SearchOptions`; or the engine's.

    Call `step` as long as it is `busy`.
    """

    @property
    def busy(self) -> bool:
        """Whether any sentence is in the search."""

    @property
    def open_hypotheses(self) -> int:
        """N, the hypotheses that the next step extends."""

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """Start the search of sentences. `sentence_ids` name them in the results.

        If the search was made from a decoder, they were just added to it, behind its earlier sentences.
        """

    def step(self) -> FinishedSentences:
        """Add one token to each open hypothesis, or up to `SearchOptions.steps`.

        Return the sentences that leave, with up to `nbest` hypotheses each.

        Raises ModelError if the model's output is not a number.
        """

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """Remove these sentences without results. Ids that are not in the search are ignored."""
