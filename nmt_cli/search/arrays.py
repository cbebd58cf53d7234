"""The arrays with which searches and constraints compute: NumPy's over the engine, torch's over a decoder of torch.

    decoder.arrays, arrays_of(array) ──▶ Arrays, or `TorchArrays`: functions for arrays of one kind, on one device

A search is written once for both. Both have the same operators, the same indexing and assignment by integers, slices
and arrays, `shape`, `len`, and these methods, whose arguments are given by position: `any`, `all`, `sum`, `argmax`,
`cumsum`, `clip`, `reshape`, `tolist`, and `view` of another dtype. All that differs between them is in `Arrays`. This
file does not load torch.

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   C candidates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.model import Bans, log_softmax, rank

Array = Any
"""An array of NumPy, or a tensor of torch."""
NONE = float("-inf")
"""The log-probability or score of what does not exist, or may not follow."""

quiet = np.errstate(all="ignore")
"""Decorates functions that compute with infinite numbers: NumPy does not warn of them."""


static: Any = staticmethod
"""The type of the functions below is Any: `TorchArrays` has others in their places."""


class Arrays:
    """Functions for arrays of one kind, here NumPy's, with the engine's ranking and softmax. Shapes are tuples."""

    int32: Any = np.int32
    int64: Any = np.int64
    float32: Any = np.float32
    boolean: Any = np.bool_
    widest: Any = np.float64
    """The widest floating-point numbers of the device."""
    array = static(np.asarray)
    """(values: a list or an array of NumPy, dtype; None: that of the values) → an array."""
    host = static(np.asarray)
    """The numbers as an array of NumPy. On a device, the function waits for them."""
    zeros = static(np.zeros)
    """(shape, dtype) → zeros."""
    full = static(np.full)
    """(shape, value, dtype) → an array of one value."""
    arange = static(np.arange)
    """(stop), or (start, stop, step) → integers."""
    where = static(np.where)
    """(condition, a, b) → a where the condition is true, else b; a or b may be numbers."""
    concat = static(np.concatenate)
    """(arrays, axis) → one array."""
    minimum = static(np.minimum)
    maximum = static(np.maximum)
    exp = static(np.exp)
    log = static(np.log)
    copy = static(np.copy)
    take = static(lambda x, index: x.take(index, 0))
    """(x, index) → x[index], along the first axis."""
    repeat = static(np.repeat)
    """(x (n,), counts (n,)) → each number as often as its count says."""
    searchsorted = static(np.searchsorted)
    """(ordered (n,), values) → the number of entries below each value."""
    astype = static(lambda x, dtype: x.astype(dtype))
    """(x, dtype) → the numbers in another dtype."""
    amax = static(lambda x, axis: x.max(axis))
    """(x, axis) → the largest numbers along an axis."""
    sums = static(lambda x: np.einsum("...i->...", x))  # several times as fast as `sum` of short rows
    """(x) → sums over the last axis. The bits of a sum do not depend on the other sums."""
    running_max = static(lambda x: np.maximum.accumulate(x, 1))
    """(x (B, C)) → the largest of the numbers up to each one along axis 1."""
    nonzero = static(np.nonzero)
    """(x) → the indices of the true entries, one array for each axis."""
    unique = static(lambda x: np.unique(x, return_inverse=True))
    """(x (n,)) → the distinct numbers, ascending, and the index of each number among them, (n,)."""
    sort = static(lambda x: np.sort(x, 1))
    """(x (B, C)) → x, sorted along axis 1."""
    argsort = static(lambda x: x.shape[1] - 1 - x[:, ::-1].argsort(1, kind="stable")[:, ::-1])
    """(x (B, C)) → the indices that sort x along axis 1, largest first; NaN is the largest. Equals keep their order."""
    log_softmax = static(log_softmax)
    """(logits (N, V), which may be overwritten) → their log-softmax: the one that `top_candidates` computes."""
    top_candidates = static(rank)
    """(logits, log_probs, rows, count, bans, only, normalized) → the `count` largest of log_probs (B, W) +
    log-softmax(logits) over (W, V), largest first.

    The result is values and flat indices w * V + v, both (B, C); equal values are ordered by index. Where a sentence
    has fewer candidates, the rest are -inf with an index that means nothing.

    `logits` (N, V) are those of the open hypotheses `rows` (N,); they may be written to. `bans` are no candidates.
    Where only[n] is not -1, it is the one candidate of hypothesis n, even if it is banned. Banned tokens keep their
    share of the softmax. With `normalized` the logits are log-probabilities already: no softmax is computed.
    """

    def gather(self, values: Array, index: Array) -> Array:
        """Return values[b, index[b, c]]: values (B, W, …), index (B, C) -> (B, C, …)."""
        first = self.arange(len(index))[:, None] * values.shape[1]
        return self.take(merged(values), index + first)

    def padded(self, x: Array, shape: Sequence[int], value: float) -> Array:
        """Return x with each axis filled up to `shape` with `value`."""
        if tuple(x.shape) == tuple(shape):
            return x
        larger = self.full(tuple(shape), value, x.dtype)
        larger[tuple(slice(size) for size in x.shape)] = x
        return larger


NUMPY = Arrays()
OTHERS: dict[type, Callable[[Array], Arrays]] = {}
"""Types of other arrays → a function that returns their `Arrays`. A file of others adds them when it is imported."""


def arrays_of(x: Array) -> Arrays:
    """Return the functions for arrays like x."""
    if isinstance(x, np.ndarray):
        return NUMPY
    return next(arrays(x) for kind, arrays in OTHERS.items() if isinstance(x, kind))


def merged(x: Array) -> Array:
    """Return x with its first two axes as one: (B, W, …) -> (B * W, …). Both share their memory if x is contiguous."""
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def ban(logits: Array, bans: Bans) -> None:
    """Set banned tokens in logits (N, V) to -inf."""
    if bans.counts is None:
        for token in bans.tokens:
            logits[:, token] = NONE
    else:
        arrays = arrays_of(logits)
        tokens = arrays.array(bans.tokens, arrays.int64)
        banned = bans.counts[:, None] > arrays.arange(len(tokens))
        logits[:, tokens] = arrays.where(banned, NONE, logits[:, tokens])
