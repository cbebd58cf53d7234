"""Arrays of NumPy and of torch: the same functions give the same numbers."""

from __future__ import annotations

import math

import numpy as np
from both_arrays import TORCH, over_both_arrays

from nmt_cli.engine.model import Bans
from nmt_cli.search.arrays import NUMPY, Arrays, arrays_of, ban, merged


@over_both_arrays
def test_arrays_know_their_kind_and_padded_fills_each_axis(arrays: Arrays) -> None:
    x = arrays.array([[1, 2]], arrays.int64)
    assert arrays_of(x) == arrays
    assert isinstance(arrays.host(x), np.ndarray)
    x = arrays.array([[1, 2], [3, 4]], arrays.int64)
    assert arrays.padded(x, (2, 3), -1).tolist() == [[1, 2, -1], [3, 4, -1]]
    assert arrays.padded(x, (2, 2), -1) is x


@over_both_arrays
def test_the_largest_come_first_and_whole_entries_are_gathered(arrays: Arrays) -> None:
    x = arrays.array([[1.0, 3.0, 1.0, -math.inf, 3.0], [-math.inf, 0.0, math.nan, 2.0, -0.0]], arrays.float32)
    assert arrays.argsort(x).tolist() == [[1, 4, 0, 2, 3], [2, 3, 1, 4, 0]]
    values = [number * 7 % 5 for number in range(200)]
    expected = sorted(range(200), key=lambda index: -values[index])
    assert arrays.argsort(arrays.array([values], arrays.int64)).tolist() == [expected]
    numbers = np.arange(24).reshape(2, 3, 4)
    index = arrays.array([[2, 2, 0, 1], [1, 0, 0, 2]], arrays.int64)
    for entries in (numbers, numbers[:, :, 0], numbers[:, :, :0]):
        gathered = [[entries[b, c].tolist() for c in row] for b, row in enumerate(index.tolist())]
        assert arrays.gather(arrays.array(entries), index).tolist() == gathered


@over_both_arrays
def test_groups_of_numbers_and_bans(arrays: Arrays) -> None:
    x = arrays.array([7, 3, 7, 9, 3], arrays.int64)
    numbers, index = arrays.unique(x)
    assert (numbers.tolist(), index.tolist()) == ([3, 7, 9], [1, 0, 1, 2, 0])
    assert arrays.repeat(x, arrays.array([0, 2, 1, 0, 1], arrays.int64)).tolist() == [3, 3, 7, 3]
    logits = arrays.zeros((3, 4), arrays.float32)
    ban(logits, Bans((1, 3), arrays.array([0, 1, 2], arrays.int64)))
    assert (logits == -math.inf).tolist() == [[False] * 4, [False, True, False, False], [False, True, False, True]]
    ban(logits, Bans((0,)))
    assert (logits[:, 0] == -math.inf).all()


def test_functions_of_numbers() -> None:
    """Sums of rows do not depend on other rows."""
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (40, 3, 64)).astype(np.float32)
    flat = np.ascontiguousarray(merged(x))
    for name, given in [("amax", (flat, 1)), ("running_max", (flat,)), ("sort", (flat,)), ("sums", (x,))]:
        theirs = getattr(TORCH, name)(TORCH.array(given[0]), *given[1:])
        assert getattr(NUMPY, name)(*given).tolist() == theirs.tolist()
    for ours, theirs in zip(NUMPY.nonzero(x > 3), TORCH.nonzero(TORCH.array(x) > 3), strict=True):
        assert ours.tolist() == theirs.tolist()
    odd = rng.standard_normal((40, 3, 64)).astype(np.float32)
    for rows in (1, 2, 7):
        assert NUMPY.sums(odd[:rows]).tolist() == NUMPY.sums(odd)[:rows].tolist()
