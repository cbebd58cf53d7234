"""The arrays of searches over a decoder of torch, on any device; see `arrays`.

    B sentences   W beam   N open hypotheses   V vocabulary   C candidates per sentence

Ranking is the reference for the engine's, in plain torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..device.torch_device import is_host, widest_float
from ..engine.model import Bans
from .arrays import NONE, OTHERS, Arrays, ban

LOGITS_IN_CACHE = 1 << 18
"""Number of logits that a CPU processes at once, so that they stay in a core's cache: 1 MiB."""
CHUNK = 64
"""Size of the chunks of the vocabulary: the search for the best candidates first compares the maxima of the chunks."""


@dataclass(frozen=True)
class TorchArrays(Arrays):
    """Tensors on a device."""

    device: torch.device
    int32, int64, float32, boolean = torch.int32, torch.int64, torch.float32, torch.bool
    minimum, maximum = staticmethod(torch.minimum), staticmethod(torch.maximum)
    exp, log = staticmethod(torch.exp), staticmethod(torch.log)
    copy, where, searchsorted = staticmethod(torch.clone), staticmethod(torch.where), staticmethod(torch.searchsorted)
    concat, repeat = staticmethod(torch.cat), staticmethod(torch.repeat_interleave)
    astype, amax = staticmethod(lambda x, dtype: x.to(dtype)), staticmethod(torch.amax)
    sums = staticmethod(lambda x: x.sum(-1))
    running_max = staticmethod(lambda x: x.cummax(1).values)
    nonzero = staticmethod(lambda x: x.nonzero(as_tuple=True))
    unique = staticmethod(lambda x: torch.unique(x, return_inverse=True))
    sort = staticmethod(lambda x: x.sort(1).values)
    argsort = staticmethod(lambda x: x.sort(dim=1, descending=True, stable=True).indices)

    @property
    def widest(self) -> torch.dtype:
        return widest_float(self.device)

    def array(self, values: Any, dtype: torch.dtype | None = None) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(self.device, non_blocking=True)

    def host(self, x: Tensor) -> np.ndarray:
        return x.cpu().numpy()

    def zeros(self, shape: Any, dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def full(self, shape: Any, value: float, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def arange(self, *bounds: int) -> Tensor:
        return torch.arange(*bounds, device=self.device)

    def take(self, x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])  # faster than `x[index]`

    def gather(self, values: Tensor, index: Tensor) -> Tensor:
        if values.dim() == index.dim():
            return values.gather(1, index)
        return cast(Tensor, super().gather(values, index))  # a row of memory at once

    def log_softmax(self, logits: Tensor) -> Tensor:
        """See `Arrays`. A GPU has one operation for it."""
        if is_host(self.device):
            return logits.sub_(log_sum_exp(logits)[:, None])
        return logits.log_softmax(1)

    def top_candidates(
        self,
        logits: Tensor,
        log_probs: Tensor,
        rows: Tensor,
        count: int,
        bans: Bans,
        only: Tensor | None,
        normalized: bool,
    ) -> tuple[Tensor, Tensor]:
        """See `Arrays`. Shorter vocabularies than `count` give fewer candidates."""
        if not (normalized or is_host(self.device)):
            logits, normalized = self.log_softmax(logits), True
        total = logits.new_zeros(len(logits)) if normalized else log_sum_exp(logits)  # (N,)
        if only is None:
            ban(logits, bans)
        else:
            restricted = (only >= 0).nonzero().flatten()
            kept = logits[restricted, only[restricted]]
            ban(logits, bans)
            logits[restricted] = NONE
            logits[restricted, only[restricted]] = kept
        return largest_log_probs(logits, total, log_probs, rows, count)


OTHERS[Tensor] = lambda x: TorchArrays(x.device)


def log_sum_exp(logits: Tensor) -> Tensor:
    """Return `logits.logsumexp(1)`, (N, V) -> (N,), a few rows at a time, which stay in the cache of a CPU."""
    sums = []
    at_once = LOGITS_IN_CACHE // logits.size(1) + 2 if is_host(logits.device) else len(logits)
    for block in torch.split(logits, at_once):
        # torch may split the sum of a single row among threads
        block_rows = block if len(block) > 1 else block.expand(2, -1)
        largest = block_rows.amax(1, keepdim=True)
        sums.append((largest[:, 0] + (block_rows - largest).exp_().sum(1).log_())[: len(block)])
    return torch.cat(sums)


def largest_log_probs(
    logits: Tensor, total: Tensor, log_probs: Tensor, rows: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of log_probs + (logits - total) over (W, V), largest first: values and flat indices,
    (B, C).

    log_probs (B, W); logits (N, V) and total (N,) of the hypotheses `rows` (N,): the others have no logits. Rounding
    keeps the order, so the largest values are in the chunks of the vocabulary with the largest maxima: only these are
    searched. Equal values are ordered by index.
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
