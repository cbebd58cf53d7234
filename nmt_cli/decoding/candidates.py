"""The best continuations of hypotheses, from logits: what a search asks in each step, apart from the model.

    B sentences   W beam   N open hypotheses   V vocabulary   C continuations asked for

`best_continuations` is the plain one, on any device; `kernels.best_continuations` is the same in one pass on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

LOGITS_IN_CACHE = 1 << 18
"""Numbers, 1 MiB of them, that a CPU's core is taken to keep at hand."""
CHUNK = 64
"""Vocabulary entries looked at as one when the best continuations are sought."""


class Best(Protocol):
    """What finds the best continuations: `best_continuations`, or as good."""

    def __call__(
        self, logits: Tensor, so_far: Tensor, rows: Tensor, count: int, never: Sequence[int], only: Tensor | None, banned: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The `count` largest of so_far (B, W) + log-softmax(logits) over (W, V), largest first, equals ranked by index:
        values and flat indices w * V + v, (B, C); beyond what there is: -inf, and an index that means nothing.

        logits (N, V) of the hypotheses `rows` (N,), which may be written to. The ids `never` are no continuations: of
        hypothesis n the first banned[n] of them, or all where `banned` (N,) is None. Where only (N,) is no -1 nothing
        else is a continuation, and that one always.
        """
        ...


def best_continuations(
    logits: Tensor, so_far: Tensor, rows: Tensor, count: int, never: Sequence[int], only: Tensor | None, banned: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See `Best`."""
    total = log_sum_exp(logits)  # (N,)
    if only is not None:
        bound = (only >= 0).nonzero().flatten()
        kept = logits[bound, only[bound]]
    ban(logits, never, banned)
    if only is not None:
        logits[bound] = float("-inf")
        logits[bound, only[bound]] = kept
    return top_continuations(logits, total, so_far, rows, count)


def ban(logits: Tensor, never: Sequence[int], banned: Tensor | None) -> None:
    """Set what cannot follow in logits (N, V) to -inf, as in `Best`."""
    for place, one in enumerate(never):
        if banned is None:
            logits[:, one] = float("-inf")
        else:
            logits[:, one].masked_fill_(banned > place, float("-inf"))


def log_sum_exp(logits: Tensor) -> Tensor:
    """`logits.logsumexp(1)`, (N, V) -> (N,), a few rows at a time: on a CPU they then stay in its cache."""
    found = []
    at_once = LOGITS_IN_CACHE // logits.size(1) + 2 if logits.device.type == "cpu" else len(logits)
    for block in torch.split(logits, at_once):
        several = block if len(block) > 1 else block.expand(2, -1)  # the sum of one row alone may be shared among threads
        largest = several.amax(1, keepdim=True)
        found.append((largest[:, 0] + (several - largest).exp_().sum(1).log_())[: len(block)])
    return torch.cat(found)


def top_continuations(logits: Tensor, total: Tensor, so_far: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of so_far + (logits - total) over (W, V), largest first: values and flat indices, (B, C).

    so_far (B, W); logits (N, V) and total (N,) of the hypotheses `rows` (N,): the others have none. Rounding keeps
    order, so the largest lie in those chunks of the vocabulary whose own maxima are largest: only these are looked
    into. Equals are ranked by index.
    """
    (batch, width), size = so_far.shape, logits.size(1)
    whole = size // CHUNK * CHUNK
    maxima = [logits[:, :whole].view(len(logits), -1, CHUNK).amax(-1)] if whole else []
    maxima += [logits[:, whole:].amax(-1, keepdim=True)] if whole < size else []
    of_rows = so_far.flatten()[rows]
    of_chunks = of_rows[:, None] + (torch.cat(maxima, dim=1) - total[:, None])  # (N, chunks)
    chunks = of_chunks.size(1)
    chunk_max = of_chunks.new_full((batch * width, chunks), float("-inf")).index_copy_(0, rows, of_chunks)
    best = _largest(chunk_max.view(batch, -1), count)[1].sort(dim=1).values  # (B, chunks looked into)

    hypothesis, first = best // chunks, best % chunks * CHUNK
    token = first[:, :, None] + torch.arange(CHUNK, device=logits.device)  # (B, chunks looked into, CHUNK)
    place = torch.zeros(batch * width, dtype=torch.long, device=rows.device).index_copy_(0, rows, torch.arange(len(rows), device=rows.device))
    own = place[hypothesis + torch.arange(batch, device=rows.device)[:, None] * width]  # (B, chunks looked into) of N
    nothing = so_far.gather(1, hypothesis).isneginf()
    picked = logits.flatten()[own[:, :, None] * size + token.clamp_max(size - 1)]
    values = of_rows[own][:, :, None] + (picked - total[own][:, :, None])
    values = values.masked_fill((token >= size) | nothing[:, :, None], float("-inf"))
    values, places = _largest(values.flatten(1), count)
    flat = hypothesis[:, :, None] * size + token.clamp_max(size - 1)
    return values, flat.flatten(1).gather(1, places)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of x (B, n) fp32, largest first, equals in the order of their index: values and
    indices, (B, min(count, n)). `topk` leaves open which of equals it takes, and a stable sort takes five times as long:
    the keys here are whole numbers that hold the value above and the index below, and none are equal."""
    size = x.size(1)
    bits = (x + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # whole numbers in the order of the values
    keys = (ordered.long() << 32) | torch.arange(size - 1, -1, -1, device=x.device)
    places = keys.topk(min(count, size), dim=1).indices
    return x.gather(1, places), places
