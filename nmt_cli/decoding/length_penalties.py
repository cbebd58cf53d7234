"""Length penalties: log P(Y) is divided by the penalty, so that long outputs are not at a disadvantage.

Each penalty is a function (|Y|, alpha) → lp(Y) > 0 that never falls when |Y| grows. |Y| counts the end symbol.
`nmt_cli.registry.LENGTH_PENALTIES` lists them by name.
"""

from __future__ import annotations

import math


def gnmt(length: int, alpha: float) -> float:
    """Return ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14), as in the Transformer paper (section 6.1)."""
    return math.pow((5.0 + length) / 6.0, alpha)


def average(length: int, alpha: float) -> float:
    """Return |Y|: the score is the mean log-probability of a token. It does not use alpha."""
    return float(length)


def none(length: int, alpha: float) -> float:
    """Return 1: the score is log P. It does not use alpha."""
    return 1.0
