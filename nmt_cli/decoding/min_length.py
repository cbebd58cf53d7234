"""The shortest output: what may not follow a hypothesis that has too few tokens, in search and sampling alike.

    missing ──▶ banned: how many of `bannable` may not follow each hypothesis ──▶ Best, ban ──▶ missing_after the new tokens

The end symbol may not follow a hypothesis that has fewer than `min_length` tokens with text. What the model gives to it
there is not shared out among the others. `textless` tokens (white space) do not count. They are banned too where every
token that is left up to the limit must carry text. So an output has min(`min_length`, its limit) tokens with text at
least: the limit wins. Two exceptions: a prefix may fill an output up to its limit, and a vocabulary without any token
that carries text bans nothing.

    B sentences   W beam   N open hypotheses   V vocabulary
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .search import SearchOptions


def bannable(options: SearchOptions) -> tuple[int, ...]:
    """`never`, then the end symbol, then `textless`: of a hypothesis the first of them are banned."""
    return tuple(dict.fromkeys((*options.never, options.eos, *options.textless)))


def missing(limits: Tensor, options: SearchOptions) -> Tensor:
    """(B,) tokens with text that an empty hypothesis lacks before it may end."""
    return limits.clamp_max(min(options.min_length, int(limits.max())))


def missing_after(missing: Tensor, tokens: Tensor, options: SearchOptions) -> Tensor:
    """The same after one more of `tokens` each; both of one shape."""
    textless = torch.tensor(options.textless, dtype=torch.long, device=tokens.device)
    return (missing - (tokens[..., None] != textless).all(-1).long()).clamp_min(0)


def banned(missing: Tensor, left: Tensor, options: SearchOptions, size: int) -> Tensor | None:
    """(N,) how many of `bannable` may not follow each hypothesis; None: `options.never` alone, for all.

    `missing` (N,) as above; `left` (N,) tokens that each has left up to its limit; `size` V.
    """
    every = len(bannable(options))
    if not options.min_length or every >= size or not bool(missing.any()):
        return None
    never = len(set(options.never))
    return torch.where(missing > 0, never + 1, never).masked_fill((missing > 0) & (missing >= left), every)
