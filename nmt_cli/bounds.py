"""The numbers among the options of a translation that are not keys of a recipe, and the bounds of each.

`recipe` has the bounds of its own keys, and every other command declares those of its options where it declares the
option. Commands import this file at their start, so it loads nothing.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import NamedTuple

from .errors import UsageError, shown

MOST_BEAM = 1024
"""Most hypotheses per sentence. The time of a step grows with the square of their number."""


class Bounds(NamedTuple):
    """The lowest and the highest value of an option: a whole number if both of them are."""

    least: float
    most: float
    hint: str = ""
    """What to give instead of a value out of range."""

    def check(self, option: str, value: object) -> float:
        """Return `value` as an int or float. Raises UsageError unless it is a number within the bounds."""
        whole = isinstance(self.least, int)
        if (
            isinstance(value, bool)
            or not isinstance(value, Integral if whole else Real)
            or not self.least <= value <= self.most  # type: ignore[operator]  # false for NaN
        ):
            raise UsageError(
                f"{option} {shown(value)}: expected a {'whole ' * whole}number from {_shown(self.least)} to "
                f"{_shown(self.most)}.{self.hint}"
            )
        return int(value) if whole else float(value)  # type: ignore[call-overload]  # a number of NumPy too


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


NUMBERS = {
    "nbest": Bounds(1, MOST_BEAM),
    "top_k": Bounds(0, 10_000_000),
    "top_p": Bounds(1e-9, 1.0),
    "min_p": Bounds(0.0, 1.0),
    "temperature": Bounds(1e-30, 1e30, " For the most probable tokens alone: --top-k 1."),
    "seed": Bounds(0, 2**63 - 1),
    "mbr_samples": Bounds(1, MOST_BEAM),
}
"""Name of an option in Python → its bounds."""
