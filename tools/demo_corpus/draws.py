"""The only source of random choices. It also records combinations, and draws numbers and names.

`Draw` records every combination of content words that a sentence uses, as a string such as "adjective+noun: red car".
From these strings `corpus.py` decides which split the sentence may go to.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from demo_corpus import numbers, semantics
from demo_corpus.numbers import Text

T = TypeVar("T")


class Draw:
    """A stream of choices from one seed, and the combinations recorded since the last `start`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self.combinations: list[str] = []

    def start(self) -> None:
        """Forget the combinations of the previous sentence."""
        self.combinations = []

    def note(self, kind: str, *parts: str) -> None:
        """Record that the sentence uses a combination."""
        self.combinations.append(f"{kind}: {' '.join(parts)}")

    def below(self, bound: int) -> int:
        """Return a random integer from 0 to `bound` - 1."""
        return int(self._random() * bound)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items, all equally likely."""
        return items[self.below(len(items))]


def number(draw: Draw, value: int) -> Text:
    """Return a number in words. Records the number and its last two digits, each if above 20 and no multiple of ten."""
    for part in dict.fromkeys((value, value % 100)):
        if part > 20 and part % 10:
            draw.note("number", str(part))
    return numbers.cardinal(value)


def some_number(draw: Draw) -> int:
    """Draw a number of things: small, two-digit, or three-digit."""
    kind = draw.below(10)
    if kind < 5:
        return 2 + draw.below(19)
    return 21 + draw.below(79) if kind < 8 else 100 + draw.below(400)


def first_name(draw: Draw, female: bool) -> str:
    """Draw a first name from the list, or build one from syllables (recorded)."""
    if not draw.chance(0.2):
        return draw.pick(semantics.FEMALE_NAMES if female else semantics.MALE_NAMES)
    ends = semantics.FEMALE_ENDS if female else semantics.MALE_ENDS
    name = draw.pick(semantics.NAME_STARTS) + draw.pick(semantics.NAME_MIDDLES) + draw.pick(ends)
    draw.note("name", name)
    return name


def surname(draw: Draw) -> str:
    """Draw a surname from the list, or build one from two parts (recorded)."""
    if not draw.chance(0.35):
        return draw.pick(semantics.SURNAMES)
    name = draw.pick(semantics.SURNAME_STARTS) + draw.pick(semantics.SURNAME_ENDS)
    draw.note("name", name)
    return name


def town(draw: Draw) -> str:
    """Draw a town from the list, or build one from two parts (recorded)."""
    if not draw.chance(0.3):
        return draw.pick(semantics.TOWNS)
    name = draw.pick(semantics.TOWN_STARTS) + draw.pick(semantics.TOWN_ENDS)
    draw.note("name", name)
    return name
