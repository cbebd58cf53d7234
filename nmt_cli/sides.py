"""Compares the two sides of a parallel text on a sample, and warns if they are shifted, swapped, or not parallel.

read_parallel ──▶ PairSample.over ──▶ the same pairs, for the reader
                      └─ blocks of consecutive pairs ──▶ warn_about
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .lines import read_parallel

BLOCK = 64
"""Number of consecutive pairs in a block of the sample."""
MOST_BLOCKS = 64
"""Most blocks that are kept; an even number."""

Pair = tuple[str, str]


class PairSample:
    """Blocks of consecutive pairs, at even distances over the whole text."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[Pair]] = {}
        """Index of the first pair → the pairs of a block."""
        self._step = BLOCK

    def over(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, and keep some of them. If there are too many blocks, every second one is dropped."""
        for number, pair in enumerate(pairs):
            at = number % self._step
            if at < BLOCK:
                if at == 0:
                    if len(self.blocks) == MOST_BLOCKS:
                        self._step *= 2
                        self.blocks = {first: block for first, block in self.blocks.items() if first % self._step == 0}
                    block = self.blocks[number] = []
                block.append(pair)
            yield pair


def sample_files(source: Sequence[Path], target: Sequence[Path]) -> PairSample:
    """Read files and return a sample of their pairs. Raises DataError as `read_parallel` does."""
    sample = PairSample()
    for _ in sample.over(read_parallel(source, target)):
        pass
    return sample


def warn_about(sample: PairSample, files: Sequence[Sequence[Path]], languages: Sequence[str]) -> None:
    """Warn of sides that are shifted against each other. `files` and `languages`: of source and target."""
