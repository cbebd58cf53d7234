"""The best candidates to extend hypotheses, computed from logits.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence

On a CPU the engine computes them in one pass, if it is there. `ranked` and `normalized_` are the same in plain torch, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..device import is_host
from ..engine.library import library
from ..engine.model import log_softmax, rank

LOGITS_IN_CACHE = 1 << 18
"""Number of logits that a CPU processes at once, so that they stay in a core's cache: 1 MiB."""
CHUNK = 64
"""Size of the chunks of the vocabulary: the search for the best candidates first compares the maxima of the chunks."""


def top_candidates(
    logits: Tensor,
    log_probs: Tensor,
    rows: Tensor,
    count: int,
    banned_tokens: Sequence[int],
    only: Tensor | None,
    banned_counts: Tensor | None = None,
    normalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of log_probs (B, W) + log-softmax(logits) over (W, V), largest first.

    The result is values and flat indices w * V + v, both (B, C); equal values are ordered by index. Where a sentence has
    fewer candidates, the rest are -inf with an index that means nothing.

    `logits` (N, V) are those of the open hypotheses `rows` (N,); they may be written to. For hypothesis n, the first
    banned_counts[n] of `banned_tokens` are no candidates, or all of them if `banned_counts` (N,) is None. Where
    only[n] is not -1, it is the one candidate of hypothesis n, even if it is banned. Banned tokens keep their share
    of the softmax. With `normalized` the logits are log-probabilities already: no softmax is computed.
    """
    arguments = logits, log_probs, rows, count, banned_tokens, only, banned_counts, normalized
    if not is_host(logits.device) or library() is None:
        return ranked(*arguments)
    numbers = [each.contiguous().numpy() if isinstance(each, Tensor) else each for each in arguments]
    values, flat = rank(*numbers)  # type: ignore[arg-type]
    return torch.from_numpy(values), torch.from_numpy(flat)


def ranked(
    logits: Tensor,
    log_probs: Tensor,
    rows: Tensor,
    count: int,
    banned_tokens: Sequence[int],
    only: Tensor | None,
    banned_counts: Tensor | None = None,
    normalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the same as `top_candidates`, in plain torch. Shorter vocabularies than `count` give fewer candidates."""
    total = logits.new_zeros(len(logits)) if normalized else log_sum_exp(logits)  # (N,)
    if only is not None:
        restricted = (only >= 0).nonzero().flatten()
        kept = logits[restricted, only[restricted]]
    ban(logits, banned_tokens, banned_counts)
    if only is not None:
        logits[restricted] = float("-inf")
        logits[restricted, only[restricted]] = kept
    return largest_log_probs(logits, total, log_probs, rows, count)


def ban(logits: Tensor, banned_tokens: Sequence[int], banned_counts: Tensor | None) -> None:
    """Set banned tokens in logits (N, V) to -inf; see `top_candidates`."""
    for index, token in enumerate(banned_tokens):
        if banned_counts is None:
            logits[:, token] = float("-inf")
        else:
            logits[:, token].masked_fill_(banned_counts > index, float("-inf"))


def log_softmax_(logits: Tensor) -> Tensor:
    """Return the log-softmax of logits (N, V), which may be overwritten: the one that `top_candidates` computes."""
    if not is_host(logits.device) or library() is None:
        return normalized_(logits)
    return torch.from_numpy(log_softmax(logits.contiguous().numpy()))


def normalized_(logits: Tensor) -> Tensor:
    """Return the same as `log_softmax_`, in plain torch."""
    return logits.sub_(log_sum_exp(logits)[:, None])


def log_sum_exp(logits: Tensor) -> Tensor:
    """Return `logits.logsumexp(1)`, (N, V) -> (N,), computed a few rows at a time, so that they stay in the cache of a CPU."""
    sums = []
    at_once = LOGITS_IN_CACHE // logits.size(1) + 2 if is_host(logits.device) else len(logits)
    for block in torch.split(logits, at_once):
        block_rows = (
            block if len(block) > 1 else block.expand(2, -1)
        )  # torch may split the sum of a single row among threads
        largest = block_rows.amax(1, keepdim=True)
        sums.append((largest[:, 0] + (block_rows - largest).exp_().sum(1).log_())[: len(block)])
    return torch.cat(sums)


def best_tokens(log_probs: Tensor) -> Tensor:
    """Return `log_probs.argmax(1)`, (N, V) -> (N,), from `amax`, because `argmax` of torch is slow on a CPU."""
    size = log_probs.size(1)
    whole = size // CHUNK * CHUNK
    maxima = [log_probs[:, :whole].view(len(log_probs), -1, CHUNK).amax(-1)] if whole else []
    maxima += [log_probs[:, whole:].amax(-1, keepdim=True)] if whole < size else []
    first = torch.cat(maxima, dim=1).argmax(1, keepdim=True) * CHUNK
    tokens = (first + torch.arange(CHUNK, device=log_probs.device)).clamp_max(size - 1)
    return tokens.gather(1, log_probs.gather(1, tokens).argmax(1, keepdim=True))[:, 0]


def largest_log_probs(
    logits: Tensor, total: Tensor, log_probs: Tensor, rows: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of log_probs + (logits - total) over (W, V), largest first: values and flat indices, (B, C).

    log_probs (B, W); logits (N, V) and total (N,) of the hypotheses `rows` (N,): the others have no logits. Rounding
    keeps the order, so the largest values are in the chunks of the vocabulary with the largest maxima: only these are searched.
    Equal values are ordered by index.
    """
    (batch, width), size = log_probs.shape, logits.size(1)
    whole = size // CHUNK * CHUNK
    maxima = [logits[:, :whole].view(len(logits), -1, CHUNK).amax(-1)] if whole else []
    maxima += [logits[:, whole:].amax(-1, keepdim=True)] if whole < size else []
    of_rows = log_probs.flatten()[rows]
    of_chunks = of_rows[:, None] + (torch.cat(maxima, dim=1) - total[:, None])  # (N, chunks)
    chunks = of_chunks.size(1)
    chunk_max = of_chunks.new_full((batch * width, chunks), float("-inf")).index_copy_(0, rows, of_chunks)
    best = _largest(chunk_max.view(batch, -1), count)[1].sort(dim=1).values  # (B, chunks to search)

    hypothesis, first = best // chunks, best % chunks * CHUNK
    token = first[:, :, None] + torch.arange(CHUNK, device=logits.device)  # (B, chunks to search, CHUNK)
    row_of = torch.zeros(batch * width, dtype=torch.long, device=rows.device).index_copy_(
        0, rows, torch.arange(len(rows), device=rows.device)
    )
    row = row_of[hypothesis + torch.arange(batch, device=rows.device)[:, None] * width]  # (B, chunks to search) of N
    closed = log_probs.gather(1, hypothesis).isneginf()
    picked = logits.flatten()[row[:, :, None] * size + token.clamp_max(size - 1)]
    values = of_rows[row][:, :, None] + (picked - total[row][:, :, None])
    values = values.masked_fill((token >= size) | closed[:, :, None], float("-inf"))
    values, positions = _largest(values.flatten(1), count)
    flat = hypothesis[:, :, None] * size + token.clamp_max(size - 1)
    return values, flat.flatten(1).gather(1, positions)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row of x (B, n) fp32, largest first: values and indices, (B, min(count, n)).

    Equal values are ordered by index. `topk` leaves the order of equal values open, and a stable sort takes five times
    as long. So `topk` gets integers with the value in the upper bits and the index in the lower ones: no two are equal.
    """
    size = x.size(1)
    bits = (x + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the values
    sort_keys = (ordered.long() << 32) | torch.arange(size - 1, -1, -1, device=x.device)
    positions = sort_keys.topk(min(count, size), dim=1).indices
    return x.gather(1, positions), positions
