"""The arrays with which searches and constraints compute: NumPy's over the engine, torch's over a decoder of torch.

    decoder.arrays, arrays_of(array) ──▶ Arrays: functions for arrays of one kind, on one device

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

from ..engine.model import log_softmax, rank

Array = Any
"""An array of NumPy, or a tensor of torch."""
NONE = float("-inf")
"""The log-probability or score of what does not exist, or may not follow."""

quiet = np.errstate(all="ignore")
"""Decorates functions that compute with infinite numbers: NumPy does not warn of them."""


class Arrays:
    """Functions for arrays of one kind. Shapes are tuples."""

    int32: Any
    int64: Any
    float32: Any
    boolean: Any
    widest: Any
    """The widest floating-point numbers of the device."""
    array: Callable[..., Array]
    """(values: a list or an array of NumPy, dtype; None: that of the values) → an array."""
    host: Callable[[Array], np.ndarray]
    """The numbers as an array of NumPy. On a device, the function waits for them."""
    zeros: Callable[..., Array]
    """(shape, dtype) → zeros."""
    full: Callable[..., Array]
    """(shape, value, dtype) → an array of one value."""
    arange: Callable[..., Array]
    """(stop), or (start, stop, step) → integers."""
    where: Callable[..., Array]
    """(condition, a, b) → a where the condition is true, else b; a or b may be numbers."""
    concat: Callable[..., Array]
    """(arrays, axis) → one array."""
    minimum: Callable[..., Array]
    maximum: Callable[..., Array]
    exp: Callable[..., Array]
    log: Callable[..., Array]
    copy: Callable[..., Array]
    take: Callable[..., Array]
    """(x, index) → x[index], along the first axis."""
    repeat: Callable[..., Array]
    """(x (n,), counts (n,)) → each number as often as its count says."""
    searchsorted: Callable[..., Array]
    """(ordered (n,), values) → the number of entries below each value."""

    astype: Callable[..., Array]
    """(x, dtype) → the numbers in another dtype."""
    amax: Callable[..., Array]
    """(x, axis) → the largest numbers along an axis."""
    sums: Callable[..., Array]
    """(x) → sums over the last axis. The bits of a sum do not depend on the other sums."""
    running_max: Callable[..., Array]
    """(x (B, C)) → the largest of the numbers up to each one along axis 1."""
    nonzero: Callable[..., tuple[Array, ...]]
    """(x) → the indices of the true entries, one array for each axis."""
    unique: Callable[..., tuple[Array, Array]]
    """(x (n,)) → the distinct numbers, ascending, and the index of each number among them, (n,)."""
    least: Callable[..., Array]
    """(values (n,), groups (n,), which are numbers from 0 on) → the least value of each group."""
    sort: Callable[..., Array]
    """(x (B, C)) → x, sorted along axis 1."""
    argsort: Callable[..., Array]
    """(x (B, C)) → the indices that sort x along axis 1, largest first; NaN is the largest. Equals keep their order."""
    log_softmax: Callable[..., Array]
    """(logits (N, V), which may be overwritten) → their log-softmax: the one that `top_candidates` computes."""

    def top_candidates(
        self,
        logits: Array,
        log_probs: Array,
        rows: Array,
        count: int,
        banned_tokens: Sequence[int],
        only: Array | None,
        banned_counts: Array | None,
        normalized: bool,
    ) -> tuple[Array, Array]:
        """Return the `count` largest of log_probs (B, W) + log-softmax(logits) over (W, V), largest first.

        The result is values and flat indices w * V + v, both (B, C); equal values are ordered by index. Where a
        sentence has fewer candidates, the rest are -inf with an index that means nothing.

        `logits` (N, V) are those of the open hypotheses `rows` (N,); they may be written to. For hypothesis n, the
        first banned_counts[n] of `banned_tokens` are no candidates, or all of them if `banned_counts` (N,) is None.
        Where only[n] is not -1, it is the one candidate of hypothesis n, even if it is banned. Banned tokens keep their
        share of the softmax. With `normalized` the logits are log-probabilities already: no softmax is computed.
        """
        raise NotImplementedError

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


def _least(values: Array, groups: Array) -> Array:
    least = np.full(groups.max(initial=-1) + 1, np.iinfo(values.dtype).max)
    np.minimum.at(least, groups, values)
    return least


class NumPyArrays(Arrays):
    """NumPy's arrays. Ranking and softmax are the engine's."""

    int32, int64, float32, boolean, widest = np.int32, np.int64, np.float32, np.bool_, np.float64
    array = host = staticmethod(np.asarray)
    zeros, full, arange = staticmethod(np.zeros), staticmethod(np.full), staticmethod(np.arange)
    where, concat, copy = staticmethod(np.where), staticmethod(np.concatenate), staticmethod(np.copy)
    minimum, maximum = staticmethod(np.minimum), staticmethod(np.maximum)
    exp, log = staticmethod(np.exp), staticmethod(np.log)
    repeat, searchsorted = staticmethod(np.repeat), staticmethod(np.searchsorted)
    take, least = staticmethod(lambda x, index: x.take(index, 0)), staticmethod(_least)
    astype, amax = staticmethod(lambda x, dtype: x.astype(dtype)), staticmethod(lambda x, axis: x.max(axis))
    sums = staticmethod(lambda x: np.einsum("...i->...", x))  # several times as fast as `sum` of short rows
    running_max = staticmethod(lambda x: np.maximum.accumulate(x, 1))
    nonzero, unique = staticmethod(np.nonzero), staticmethod(lambda x: np.unique(x, return_inverse=True))
    sort = staticmethod(lambda x: np.sort(x, 1))
    argsort = staticmethod(lambda x: x.shape[1] - 1 - x[:, ::-1].argsort(1, kind="stable")[:, ::-1])
    log_softmax, top_candidates = staticmethod(log_softmax), staticmethod(rank)  # type: ignore[assignment]


NUMPY = NumPyArrays()
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


def ban(logits: Array, banned_tokens: Sequence[int], banned_counts: Array | None) -> None:
    """Set banned tokens in logits (N, V) to -inf; see `Arrays.top_candidates`."""
    if banned_counts is None:
        for token in banned_tokens:
            logits[:, token] = NONE
    else:
        arrays = arrays_of(logits)
        tokens = arrays.array(banned_tokens, arrays.int64)
        banned = banned_counts[:, None] > arrays.arange(len(tokens))
        logits[:, tokens] = arrays.where(banned, NONE, logits[:, tokens])
