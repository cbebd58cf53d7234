"""The number of rows in the matrix products of a decoding step."""

from __future__ import annotations

OCTAVE = 3
"""The number of rows takes 2 ** OCTAVE different values from one power of two to the next."""


def padded_rows(count: int, min_rows: int) -> int:
    """Return the number of rows for `count` hypotheses, at least `min_rows`.

    It takes few different values, because matrix products are prepared for each number of rows.
    """
    step = 1 << max(0, count.bit_length() - 1 - OCTAVE)
    return max(min_rows, -(-count // step) * step)
