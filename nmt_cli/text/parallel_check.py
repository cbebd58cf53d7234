"""Compares the two sides of a parallel text on a sample: are they parallel, and in the right languages?

    read_parallel ──▶ PairSample.over ──▶ the same pairs, for the reader
                          └─ blocks of consecutive pairs ──▶ remarks
                               ├─ lengths of lines, with one side shifted by up to SHIFT lines
                               └─ the languages of both sides (`detection`)

`nmt init` and `nmt preprocess` call it after the first reading of a text. It takes less than a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import shown
from .detection import language_of, plain, recognised
from .lines import read_parallel

BLOCK = 64
"""Number of consecutive pairs in a block of the sample."""
MOST_BLOCKS = 64
"""Most blocks that are kept; an even number."""
REGION = 8
"""Number of blocks that are examined together, so that a text whose first half is right is recognised, too."""
FEWEST = 100
"""Smallest number of pairs in a region about which something is said."""
SHIFT = 10
"""Largest number of lines that one side may have too many."""
GAIN, NONE = 0.1, 0.1
"""Sides are shifted if the correlation with a shift is GAIN better, and not parallel if it is below NONE."""
VARIED = 0.1
"""Smallest standard deviation of log(1 + length) with which lengths say that sides are not parallel."""
LANGUAGE_PAIRS = 500
"""Number of pairs by which languages are examined."""
_MARK = re.compile(r"[^\w\s]|\d")

Pair = tuple[str, str]


class PairSample:
    """Blocks of consecutive pairs, at even distances over the whole text."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[Pair]] = {}
        """Index of the first pair → the pairs of a block."""
        self._step = BLOCK

    def over(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, and keep some of them. If there are too many blocks, every second one is dropped."""
        block: list[Pair] = []
        for number, pair in enumerate(pairs):
            at = number % self._step
            if at == 0:
                if len(self.blocks) == MOST_BLOCKS:
                    self._step *= 2
                    self.blocks = {first: kept for first, kept in self.blocks.items() if first % self._step == 0}
                block = self.blocks[number] = []
            if at < BLOCK:
                block.append(pair)
            yield pair


def sample_files(source: Sequence[Path], target: Sequence[Path]) -> PairSample:
    """Read files and return a sample of their pairs. Raises DataError as `read_parallel` does."""
    sample = PairSample()
    for _ in sample.over(read_parallel(source, target)):
        pass
    return sample


def remarks(sample: PairSample, files: Sequence[Sequence[Path]], languages: Sequence[str]) -> Iterator[str]:
    """Yield what to warn of: sides that are shifted, not parallel, swapped, or in a wrong language.

    `files` and `languages` are those of source and target; two equal languages are not examined.
    """
    if not sample.blocks:
        return
    source, target = (repr(str(side[0])) + ", …" * (len(side) > 1) for side in files)
    yield from filter(None, (_shifted(sample, source, target), _languages(sample, source, target, languages)))


def _shifted(sample: PairSample, source: str, target: str) -> str:
    """Return a remark about the first region whose sides are shifted or not parallel, or ""."""
    starts = list(sample.blocks)
    for region in (starts[at : at + REGION] for at in range(0, len(starts), REGION)):
        blocks = [sample.blocks[start] for start in region]
        pairs = sum(len(block) for block in blocks)
        if pairs < FEWEST:
            continue
        features = [_features(block) for block in blocks]
        correlations = {shift: _correlation(features, shift) for shift in range(-SHIFT, SHIFT + 1)}
        best, unshifted = max(correlations, key=lambda shift: correlations[shift]), correlations[0]
        where = f" from about line {region[0] + 1:,} on" if region[0] else ""
        if correlations[best] > max(unshifted + GAIN, 0.2, 4 / pairs**0.5):
            block = next(start for start in reversed(region) if len(sample.blocks[start]) > SHIFT)  # surely shifted
            lines = max(0, -best), max(0, best)
            texts = [sample.blocks[block][line][side] for side, line in enumerate(lines)]
            numbers = [f"{block + line + 1:,}" for line in lines]
            return (
                f"{source} and {target} are shifted against each other{where}: line {numbers[0]} of {source} "
                f"belongs to line {numbers[1]} of {target}, such as {shown(texts[0], 60)} to {shown(texts[1], 60)}. "
                "A model learns nothing from shifted text: correct the files."
            )
        if unshifted < NONE and pairs >= REGION * BLOCK // 2 and _varied(features):
            texts = list(sample.blocks[region[0]][0])
            return (
                f"{source} and {target} do not look parallel{where}: the lengths of their lines are unrelated. "
                f"Line {region[0] + 1:,} reads {shown(texts[0], 60)} and {shown(texts[1], 60)}. "
                "Is one of them sorted, or another text?"
            )
    return ""


def _features(block: Sequence[Pair]) -> NDArray[Any]:
    """Return log(1 + length) and log(1 + number of digits and punctuation marks) of both sides.  # (2, pairs, 2)"""
    counts = [[(len(text), len(_MARK.findall(text))) for text in side] for side in zip(*block, strict=True)]
    return np.log1p(np.array(counts, dtype=np.float64))


def _correlation(features: Sequence[NDArray[Any]], shift: int) -> float:
    """Return the correlation of source line i and target line i + shift, averaged over features; 1 if none varies."""
    ahead, behind = max(0, shift), max(0, -shift)
    source, target = (
        np.concatenate([block[side][first : max(0, len(block[side]) - last)] for block in features])
        for side, first, last in ((0, behind, ahead), (1, ahead, behind))
    )
    source, target = source - source.mean(axis=0), target - target.mean(axis=0)
    scale = np.sqrt((source**2).sum(axis=0) * (target**2).sum(axis=0))
    varied = scale > 1e-9
    return float(((source * target).sum(axis=0)[varied] / scale[varied]).mean()) if varied.any() else 1.0


def _varied(features: Sequence[NDArray[Any]]) -> bool:
    """Return whether the lengths of both sides vary: in a text that is sorted by length they say nothing."""
    return all(np.concatenate([block[side][:, 0] for block in features]).std() >= VARIED for side in (0, 1))


def _languages(sample: PairSample, source: str, target: str, languages: Sequence[str]) -> str:
    """Return a remark about sides that are swapped, in the same language or in another one, or ""."""
    pairs = [pair for block in sample.blocks.values() for pair in block]
    pairs = pairs[:: max(1, len(pairs) // LANGUAGE_PAIRS)]
    wanted = [plain(language) for language in languages]
    known = [side for side in (0, 1) if recognised(languages[side])]
    if len(pairs) < FEWEST or wanted[0] == wanted[1] or not known:
        return ""
    found = [language_of(text) for text in zip(*pairs, strict=True)]
    if all(found[1 - side] == wanted[side] != found[side] for side in known):
        named = [f"{languages[side]!r} is in {(target, source)[side]}" for side in known]
        return f"the sides look swapped: {' and '.join(named)}. Exchange the files, or the language codes."
    if found[0] and found[0] == found[1] and len(known) == 2:
        differing = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
        example = " and ".join(shown(text, 60) for text in differing)
        return f"{source} and {target} look like the same language, {found[0]!r}, such as {example}. Check the files."
    for side in known:
        if found[side] not in ("", wanted[side]):
            return (
                f"{(source, target)[side]} reads like {found[side]!r}, not {languages[side]!r}. Check the file, or "
                "correct the language code."
            )
    return ""
