"""How many rows the matrix products of a decoding step have."""

from __future__ import annotations

OCTAVE = 3
"""Rows take 2 ** OCTAVE different numbers from one power of two to the next."""


def padded_rows(count: int, min_rows: int) -> int:
    """Return the rows for `count` hypotheses, at least `min_rows`: one of few numbers, because products are prepared for each."""
    step = 1 << max(0, count.bit_length() - 1 - OCTAVE)
    return max(min_rows, -(-count // step) * step)
