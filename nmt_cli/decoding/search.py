"""What all searches share: their interface, their options and their results.

    engine ──▶ Search(decoder, options): add(sentence ids, …) · step() ──▶ (sentence id, hypotheses) of those that leave

A search builds the outputs of the sentences that a decoder holds, one token per step. Sentences enter at any step and
leave when they are finished: each has its own length. `nmt_cli.registry.SEARCHES` lists the searches by name. A search
sees a `Decoder` (`kernels.protocols`), never a model.

Score: log P(Y) / lp(Y) with the length penalty lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14). |Y|
counts the end symbol. log P is the sum of the model's own log-probabilities, end symbol included. Banned tokens (PAD,
BOS, UNK) are never generated; the other tokens do not get their probability.

What happens to a sentence does not depend on the other sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from ..errors import ModelError
from ..kernels.protocols import Decoder, TopCandidates
from .candidates import top_candidates


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

    samples: int = 100
    """Hypotheses per sentence; the search needs `SearchOptions.beam` to be the same."""
    candidates: str = "sample"
    """The hypotheses: "sample" (random samples) or "beam" (the n-best list of beam search)."""
    utility: str = "chrf"
    """A name of the registry's UTILITIES."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search: `beam`, `alpha` and `min_length` as in [decode], and the token ids that it must know."""

    beam: int
    """W, hypotheses per sentence."""
    alpha: float
    bos: int
    eos: int
    banned_tokens: tuple[int, ...]
    """Ids that are never generated."""
    nbest: int = 1
    """Hypotheses to return per sentence, at most `beam`."""
    min_length: int = 0
    textless: tuple[int, ...] = ()
    """Ids that do not count in `min_length`: white space."""
    top_candidates: TopCandidates = top_candidates
    """The function that ranks candidates; a kernel may replace it."""
    stop_early: bool = True
    """False: no hypothesis is given up before the longest output. This is the reference: the n best are the same."""
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    mbr: MbrOptions = field(default_factory=MbrOptions)
    detokenize: Callable[[list[list[int]]], list[str]] | None = None
    """Returns the text of each output, for searches that compare texts."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its tokens without the end symbol, log P with the end symbol, and log P / lp."""

    tokens: list[int]
    log_prob: float
    score: float


FinishedSentences = list[tuple[int, list[Hypothesis]]]
"""Sentence ids, and the hypotheses of each sentence, best first."""


class Search(Protocol):
    """A search over the sentences that `decoder` holds. Call `step` as long as it is `busy`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None: ...

    @property
    def busy(self) -> bool:
        """Whether any sentence is in the search."""
        ...

    @property
    def open_hypotheses(self) -> int:
        """N, the hypotheses that the next step extends."""
        ...

    def add(
        self, sentence_ids: Sequence[int], max_lengths: Tensor,
        prefixes: Sequence[Sequence[int]] | None = None, sources: Sequence[Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        """Start sentences that were just added to the decoder, behind those that it had.

        `sentence_ids` name them in the results. `max_lengths` (B,) int64 are the tokens that each output may have, the
        end symbol besides. Each output begins with its prefix, which is no longer than that; its tokens count in log P.
        `sources` are the sentences' own tokens.
        """
        ...

    def step(self) -> FinishedSentences:
        """Add one token to each open hypothesis. Return the sentences that leave, with up to `nbest` hypotheses each.

        Raises ModelError if the model's output is not a number.
        """
        ...


def run_to_end(
    search: Search, max_lengths: Tensor, prefixes: Sequence[Sequence[int]] | None = None, sources: Sequence[Sequence[int]] | None = None
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each sentence that the decoder of a new search holds; see `Search.add`."""
    search.add(range(len(max_lengths)), max_lengths, prefixes, sources)
    results = dict[int, list[Hypothesis]]()
    while search.busy:
        results.update(search.step())
    return [results[number] for number in range(len(max_lengths))]


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """Return ((5 + |Y|) / 6) ** alpha; `length` counts the end symbol."""
    return ((5.0 + length) / 6.0) ** alpha


def check_numbers(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses. Raises ModelError if there are none, or if a score is not a number."""
    checked = list(hypotheses)
    if not checked or any(h.score != h.score for h in checked):
        raise ModelError("the model's output is not a number (NaN or infinite): its weights are damaged or it diverged in training. Use another checkpoint.")
    return checked
