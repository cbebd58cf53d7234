"""Length penalties: log P(Y) is divided by the penalty, so that long outputs are not at a disadvantage.

The score of an output Y is (log P(Y) - word_penalty |Y|) / lp(Y), as in Marian.

Each penalty is a function (|Y|, alpha) → lp(Y) > 0 that never falls when |Y| grows. |Y| counts the end symbol.
`nmt_cli.registry.LENGTH_PENALTIES` lists them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt


def gnmt(length: int, alpha: float) -> float:
    """Return ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14), as in the Transformer paper (section 6.1).

    It is computed with decimal numbers: the last bit of a power in floating point depends on the processor.
    """
    return float(((5 + Decimal(length)) / 6) ** Decimal(alpha))


def average(length: int, alpha: float) -> float:
    """Return |Y|: the score is the mean log-probability of a token. It does not use alpha."""
    return float(length)


def power(length: int, alpha: float) -> float:
    """Return |Y| ** alpha, as in Marian (`--normalize`), CTranslate2 and transformers. Decimal numbers: see `gnmt`."""
    return float(Decimal(length) ** Decimal(alpha)) if length else 1.0


def none(length: int, alpha: float) -> float:
    """Return 1: the score is log P. It does not use alpha."""
    return 1.0


@lru_cache(16)
def penalties_of(
    length_penalty: Callable[[int, float], float], alpha: float, word_penalty: float, longest: int
) -> npt.NDArray[np.float32]:
    """Return lp and word_penalty |Y| for |Y| = 0, 1, …, up to some more than `longest` + 2: two rows, fp32."""
    lengths = range(1 << (longest + 2).bit_length())
    return np.array([[length_penalty(n, alpha) for n in lengths], [word_penalty * n for n in lengths]], np.float32)
