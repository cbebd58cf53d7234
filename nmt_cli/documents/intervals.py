"""Intervals of target words: what is free beside them, and how they get the words that they need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from .words import Range


class Spoken:
    """The words with a letter or a digit, without punctuation. `flags` holds whether each word is one."""

    def __init__(self, flags: Sequence[bool]) -> None:
        self.flags = flags
        self.before = [0, *accumulate(map(int, flags))]
        """Number of spoken words before each word, and before the end."""
        self._at = [word for word, flag in enumerate(flags) if flag]

    def count(self, start: int, end: int) -> int:
        return self.before[end] - self.before[start]

    def spread(self, boundaries: Sequence[int], needed: Sequence[int]) -> list[int]:
        """Return the boundaries, moved where fewer spoken words than needed are behind one and before the next.

        The first and the last stay. `needed` has no more than the words between these two; see `granted`.
        """
        counts = [self.before[boundary] for boundary in boundaries]
        moved = list(counts)
        for index in range(1, len(moved) - 1):
            moved[index] = max(moved[index], moved[index - 1] + needed[index - 1])
        for index in range(len(moved) - 2, 0, -1):
            moved[index] = min(moved[index], moved[index + 1] - needed[index])
        result = [boundaries[0]]
        for index in range(1, len(moved) - 1):
            boundary, count = boundaries[index], moved[index]
            if count != counts[index]:
                boundary = self._at[count] if needed[index] else self._at[count - 1] + 1 if count else boundaries[0]
            result.append(max(result[-1], boundary))
        return [*result, boundaries[-1]]


def granted(needed: Sequence[int], words: int) -> list[int]:
    """Return what each gets of so many words: the first ones what they need, the others what is left."""
    ends = [0, *(min(end, words) for end in accumulate(needed))]
    return [end - start for start, end in pairwise(ends)]


def covering(elements: Sequence[Range], filled: Sequence[bool]) -> list[int]:
    """Return for each gap between pieces of markup 1 if it must have a word so that no element is empty, else 0.

    `filled` holds whether each gap has words in the source. An element has the gaps of its range. The elements are
    ordered by their ends, so that the least number of gaps must have a word.
    """
    last_filled = list(accumulate((gap if flag else -1 for gap, flag in enumerate(filled)), max))
    needed, latest = [0] * len(filled), -1
    for first, end in elements:
        gap = last_filled[end - 1]
        if latest < first <= gap:
            needed[gap], latest = 1, gap
    return needed


def without(free: Sequence[Range], interval: Range) -> list[Range]:
    """Return the free ranges without `interval`, which is inside one of them."""
    result = []
    for start, end in free:
        if start <= interval[0] and interval[1] <= end:
            result += [part for part in ((start, interval[0]), (interval[1], end)) if part[0] < part[1]]
        else:
            result.append((start, end))
    return result


def outside(boundary: int, intervals: Sequence[Range]) -> int:
    """Return the boundary. If it is inside an interval, return the nearest end of that interval."""
    for start, end in intervals:
        if start < boundary < end:
            return start if boundary - start < end - boundary else end
    return boundary
