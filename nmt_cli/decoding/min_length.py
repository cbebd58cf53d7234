"""The minimum output length, for every search: ban tokens that may not follow a hypothesis that is too short.

    MinLength.missing ──▶ bans: what may not follow each hypothesis ──▶ missing_after the new tokens

The end symbol may not follow a hypothesis that has fewer than `min_length` tokens with text. The other tokens do not
get its probability. `textless` tokens (white space) do not count. They are banned too if every token that may still
be added must be a token with text. So an output has at least min(`min_length`, its longest length) tokens with text: the
longest length wins. There are three exceptions: a prefix may fill an output up to its longest length; with a vocabulary that
has no tokens with text, nothing more is banned; and the bans do not apply where constraints leave a hypothesis no other token.

    B sentences   W beam   N open hypotheses   V vocabulary
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .candidates import ban
from .search import SearchOptions


class Bans(NamedTuple):
    """Tokens that may not follow: the first counts[n] of `tokens` for hypothesis n; all of them if `counts` is None."""

    tokens: tuple[int, ...]
    counts: Tensor | None


class MinLength:
    """The rule for one search. "Missing" is the number of tokens with text that a hypothesis still needs before it may end."""

    def __init__(self, options: SearchOptions) -> None:
        self.min_length, self.textless = options.min_length, options.textless
        self.always = Bans(options.banned_tokens, None)
        self.tokens = tuple(dict.fromkeys((*options.banned_tokens, options.eos, *options.textless)))
        self.always_banned = len(set(options.banned_tokens))

    def missing(self, max_lengths: Tensor) -> Tensor:
        """Return the number of missing tokens of an empty hypothesis of each sentence, (B,)."""
        return max_lengths.clamp_max(min(self.min_length, int(max_lengths.max())))

    def bans(self, missing: Tensor, remaining: Tensor, vocabulary: int) -> Bans:
        """Return the tokens that may not follow hypotheses, given the numbers of missing tokens (N,) and of tokens that may still be added (N,)."""
        if len(self.tokens) >= vocabulary:
            return self.always
        counts = torch.where(missing > 0, self.always_banned + 1, self.always_banned)
        return Bans(self.tokens, counts.masked_fill((missing > 0) & (missing >= remaining), len(self.tokens)))

    def give_way(self, bans: Bans, log_probs: Tensor) -> Bans:
        """Return the bans, reduced for hypotheses to which they leave no token, given edited log-probabilities (N, V)."""
        if bans.counts is None:
            return bans
        left = log_probs.clone()
        ban(left, bans.tokens, bans.counts)
        return bans._replace(counts=bans.counts.masked_fill(left.amax(1).isneginf(), self.always_banned))

    def missing_after(self, missing: Tensor, tokens: Tensor) -> Tensor:
        """Return the numbers of missing tokens after each hypothesis got one of `tokens`; all have the same shape."""
        textless = torch.tensor(self.textless, dtype=torch.long, device=tokens.device)
        return (missing - (tokens[..., None] != textless).all(-1).long()).clamp_min(0)
