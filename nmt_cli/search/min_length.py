"""The minimum output length, for every search: ban tokens that may not follow a hypothesis that is too short.

    MinLength.missing ──▶ bans: what may not follow each hypothesis ──▶ missing_after the new tokens

The end symbol may not follow a hypothesis that has fewer than `min_length` tokens with text. The other tokens do not
get its probability. `textless` tokens (white space) do not count. They are banned too if every token that may still
be added must be a token with text. So an output has at least min(`min_length`, its longest length) tokens with text:
the longest length wins. There are three exceptions: a prefix may fill an output up to its longest length; with a
vocabulary that has no tokens with text, nothing more is banned; and the bans do not apply where constraints leave a
hypothesis no other token.

    B sentences   W beam   N open hypotheses   V vocabulary
"""

from __future__ import annotations

from ..engine.model import Bans
from .arrays import NONE, Array, arrays_of, ban
from .search import SearchOptions


class MinLength:
    """The rule for one search. "Missing": how many tokens with text a hypothesis still needs before it may end."""

    def __init__(self, options: SearchOptions) -> None:
        self.min_length, self.textless = options.min_length, options.textless
        self.always = Bans(options.banned_tokens)
        self.tokens = tuple(dict.fromkeys((*options.banned_tokens, options.eos, *options.textless)))
        self.always_banned = len(set(options.banned_tokens))

    def missing(self, max_lengths: Array) -> Array:
        """Return the number of missing tokens of an empty hypothesis of each sentence, (B,)."""
        return max_lengths.clip(None, min(self.min_length, int(max_lengths.max())))

    def bans(self, missing: Array, remaining: Array, vocabulary: int) -> Bans:
        """Return the tokens that may not follow hypotheses, given the numbers of missing tokens (N,) and of tokens that
        may still be added (N,).
        """
        if len(self.tokens) >= vocabulary:
            return self.always
        where, short = arrays_of(missing).where, missing > 0
        counts = where(short, self.always_banned + 1, self.always_banned)
        return Bans(self.tokens, where(short & (missing >= remaining), len(self.tokens), counts))

    def give_way(self, bans: Bans, log_probs: Array) -> Bans:
        """Return the bans, fewer where they leave a hypothesis no token, given edited log-probabilities (N, V)."""
        if bans.counts is None:
            return bans
        arrays = arrays_of(log_probs)
        left = arrays.copy(log_probs)
        ban(left, bans)
        return bans._replace(counts=arrays.where(arrays.amax(left, 1) == NONE, self.always_banned, bans.counts))

    def missing_after(self, missing: Array, tokens: Array) -> Array:
        """Return the numbers of missing tokens after each hypothesis got one of `tokens`; all have the same shape."""
        arrays = arrays_of(tokens)
        textless = arrays.array(self.textless, arrays.int64)
        return (missing - arrays.astype((tokens[..., None] != textless).all(-1), missing.dtype)).clip(0)
