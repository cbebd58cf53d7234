r"""Describes a parallel text before training, and draws pairs that are held out of training.

    files per side ── survey ──▶ Survey: pairs, lengths, scripts, duplicates, copies, lines to look at
                                    └─ draw ──▶ pairs of the held-out sets ── write_parts ──▶ a file per set and side

The text is read twice and never held in memory. A pair takes 24 bytes (two hashes, two lengths), so ten million pairs
take 240 MB. A pair can be held out if neither side occurs in another pair, compared without case and punctuation. So
training contains no held-out sentence. If there are too few such pairs, as in a text with several translations of each
sentence, all pairs that share a sentence are held out together. The held-out pairs are drawn with
`random.Random(SEED)`.
"""

from __future__ import annotations

import random
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .. import console
from ..errors import DataError
from ..text.lines import Changed, read_parallel
from ..text.other_formats import check_replaced
from ..text.parallel_check import PairSample
from ..text.scripts import IN_SCRIPT
from .split import SEED, key

SAMPLED = 50
"""One of SAMPLED lines is used to count the scripts; each of the first ALL_SAMPLED lines is used."""
ALL_SAMPLED = 20_000
LETTERS = 2
"""Number of letters of a script without spaces that count as one word."""
ODD_RATIO = 4.0
"""A pair is counted as odd if one side has at least ODD_RATIO times the words of the other, and at least ODD_WORDS
words."""
ODD_WORDS = 8
MOST_TOGETHER = 10
"""Most pairs that share sentences and are held out together."""

Paths = Sequence[Path]


@dataclass
class SurveyedSide:
    """One side of the text."""

    words: float = 0.0
    """Average number of words per line, over the pairs without an empty side."""
    longest: int = 0
    """Number of words of the longest line."""
    letters: Counter[str] = field(default_factory=Counter)
    """Number of letters by script in some of the lines. Names of scripts are those of Unicode (LATIN, CYRILLIC, …)."""
    changed: Changed = field(default_factory=Changed)
    characters: Counter[str] = field(default_factory=Counter)
    """How often each character occurs. A space stands for every beginning of a word, as SentencePiece counts."""

    @property
    def scripts(self) -> dict[str, float]:
        """The share of letters by script, most frequent first."""
        return {name: count / self.letters.total() for name, count in self.letters.most_common()}


@dataclass(frozen=True)
class Survey:
    """The properties of a parallel text."""

    pairs: int
    empty: int
    """Number of pairs with an empty side."""
    copies: int
    """Number of pairs whose two sides are equal, that is, not translated."""
    repeated: int
    """Number of pairs that occurred before, compared without case and punctuation."""
    odd: int
    """Number of pairs whose sides have very different lengths (see ODD_RATIO)."""
    source: SurveyedSide
    target: SurveyedSide
    lengths: NDArray[Any]
    """Number of words of both sides of each pair, (pairs, 2)."""
    alone: NDArray[Any]
    """Indices of the pairs that may be held out, each by itself."""
    keys: NDArray[Any]
    """Hashes of both sides of each pair, without case and punctuation, (pairs, 2)."""
    usable: NDArray[Any]
    """Whether a pair may be held out, if no other pair shares a side with it in training.  # (pairs,)"""
    replaced: dict[str, int] = field(default_factory=dict)
    """Number of lines with invalid UTF-8, by file."""
    sample: PairSample = field(default_factory=PairSample)

    @property
    def useful(self) -> int:
        """Number of pairs to learn from: pairs that are not empty, copied or repeated."""
        return self.pairs - self.empty - self.copies - self.repeated


def survey(source: Paths, target: Paths, normalized: Callable[[str], str]) -> Survey:
    """Read the text once and return its properties. `normalized` returns a line as a vocabulary will spell it.

    Raises DataError if files are missing, damaged, not parallel or not UTF-8, and if the text has no pairs.
    """
    keys, counts, copies = array("q"), array("I"), array("b")
    sides, sample, replaced = (SurveyedSide(), SurveyedSide()), PairSample(), Counter[str]()
    with console.progress(None, "reading", " pairs") as bar:
        for number, pair in enumerate(sample.over(read_parallel(source, target, replaced))):
            keys.extend(hash(key(text)) for text in pair)
            copies.append(pair[0].strip() == pair[1].strip())
            for side, text in zip(sides, pair, strict=True):
                side.changed.add(text, spelled := normalized(text))
                side.characters.update(f" {spelled}")
                if number < ALL_SAMPLED or number % SAMPLED == 0:
                    side.letters.update(_script(letter) for letter in text if letter.isalpha())
                counts.append(words(text))
            bar.update(1)
    check_replaced(replaced)
    if not copies:
        raise DataError(f"{str(source[0])!r} and {str(target[0])!r} have no lines: there is nothing to learn from.")
    lengths = np.frombuffer(counts, dtype=np.uint32).reshape(-1, 2).astype(np.int64)
    whole = (lengths > 0).all(axis=1)
    for side, words_of_side in zip(sides, lengths.T, strict=True):
        side.words = float(words_of_side[whole].mean()) if whole.any() else 0.0
        side.longest = int(words_of_side.max())
    copied = np.frombuffer(copies, dtype=np.int8) > 0
    hashes = np.frombuffer(keys, dtype=np.int64).reshape(-1, 2)
    more, fewer = lengths.max(axis=1), lengths.min(axis=1)
    odd = whole & (more >= ODD_WORDS) & (more >= ODD_RATIO * fewer)
    usable = whole & ~copied & ~odd
    return Survey(
        len(hashes),
        int((~whole).sum()),
        int((copied & whole).sum()),
        int((_repeated(hashes) & whole & ~copied).sum()),
        int(odd.sum()),
        *sides,
        lengths,
        np.flatnonzero(_unique(hashes) & usable),
        hashes,
        usable,
        replaced,
        sample,
    )


def _repeated(keys: NDArray[Any]) -> NDArray[Any]:
    """Return for each pair whether an equal pair is before it.  # (pairs, 2) -> (pairs,)"""
    _, first, inverse = np.unique(keys[:, 0] * 31 + keys[:, 1], return_index=True, return_inverse=True)
    return first[inverse] != np.arange(len(keys))  # type: ignore[no-any-return]


def _unique(keys: NDArray[Any]) -> NDArray[Any]:
    """Return for each pair whether neither side is in another pair.  # (pairs, 2) -> (pairs,)"""
    sides = [np.unique(side, return_inverse=True, return_counts=True) for side in keys.T]
    return np.logical_and(*(counts[inverse] == 1 for _, inverse, counts in sides))  # type: ignore[no-any-return]


def words(text: str) -> int:
    """Return the number of words of a line, also in scripts without spaces; 0 for an empty line."""
    letters = 0 if text.isascii() else len(IN_SCRIPT.findall(text))
    return max(len(text.split()), letters // LETTERS)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "OTHER").split()[0].split("-")[0]


def draw(text: Survey, sets: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Return the pair indices of each held-out set, in text order. `sets` holds the number of pairs by name.

    Where pairs that share a side are held out together, a set may have up to MOST_TOGETHER - 1 pairs more. Raises
    DataError if there are too few pairs that may be held out.
    """
    if not sets:
        return {}
    total, generator = sum(sets.values()), random.Random(SEED)
    if text.useful <= 2 * total:
        raise _too_few(text, total)
    if len(text.alone) >= total:
        drawn = text.alone[generator.sample(range(len(text.alone)), total)]
        ends = np.cumsum(list(sets.values()))
        return {name: np.sort(part) for name, part in zip(sets, np.split(drawn, ends[:-1]), strict=True)}
    groups = _groups(text)
    generator.shuffle(groups)
    held_out = {}
    for name, count in sets.items():
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            if not groups:
                raise _too_few(text, total)
            drawn = np.append(drawn, groups.pop())
        held_out[name] = np.sort(drawn)
    return held_out


def _too_few(text: Survey, total: int) -> DataError:
    return DataError(
        f"{text.pairs:,} pairs, of which {len(text.alone):,} have both sides in no other pair: too few to hold out "
        f"{total:,} for validation and test. Give files for them, or more text."
    )


def _groups(text: Survey) -> list[NDArray[Any]]:
    """Return the groups of pairs that are connected by equal sides, and of which every pair may be held out."""
    labels = np.arange(text.pairs)
    sides = [np.unique(text.keys[:, side], return_inverse=True)[1] for side in range(2)]
    while True:
        before = labels
        for side in sides:
            lowest = np.full(text.pairs, text.pairs)
            np.minimum.at(lowest, side, labels)
            labels = lowest[side]
        if np.array_equal(before, labels):
            break
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return [group for group in groups if len(group) <= MOST_TOGETHER and text.usable[group].all()]


def write_parts(
    source: Paths, target: Paths, held_out: Mapping[str, NDArray[Any]], streams: Mapping[str, tuple[BinaryIO, BinaryIO]]
) -> dict[str, int]:
    r"""Write each held-out pair to the streams of its set, and every other pair to those of "train".

    Each set has a stream for source and one for target; each pair is one line in both. Return the number of pairs per
    set. Pairs with an empty side are left out. Lines end with "\n"; invalid UTF-8 is replaced.
    """
    counts = dict.fromkeys(streams, 0)
    sets = {int(number): name for name, numbers in held_out.items() for number in numbers}
    with console.progress(None, "writing", " pairs") as bar:
        for number, pair in enumerate(read_parallel(source, target)):
            bar.update(1)
            if all(text.strip() for text in pair):
                name = sets.get(number, "train")
                counts[name] += 1
                for stream, text in zip(streams[name], pair, strict=True):
                    stream.write(f"{text}\n".encode())
    return counts
