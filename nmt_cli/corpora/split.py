r"""Splits Tatoeba's pairs into train, valid and test, so that no held-out sentence occurs in training.

    lines "English \t other [\t attribution]"  ──▶ tidy, each pair once ──▶ cut

Tidying means NFC, and one space for every run of white space. A pair can be held out if neither side occurs in another
pair, compared without case and punctuation. This matters because Tatoeba has many sentences with several translations.
The held-out pairs are drawn, and the rest is shuffled, with `random.Random(SEED)`, so the same export gives the same
files. All pairs are held in memory: a few hundred thousand short pairs.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterable

from ..errors import DataError

SEED = 2017
HELD_OUT = 2000
"""Number of pairs in valid, and also in test."""

Pair = tuple[str, str]


def tidy(text: str) -> str:
    """Return `text` in NFC, with one space for every run of white space and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class _Plain(dict[int, int]):
    """A table for `str.translate`: punctuation, symbols and white space become a space.

    Each character is looked up once.
    """

    def __missing__(self, code: int) -> int:
        self[code] = ord(" ") if unicodedata.category(chr(code))[0] in "PSZ" else code
        return self[code]


PLAIN = _Plain()


def key(text: str) -> str:
    """Return a sentence without case, punctuation and symbols. Sentences with the same key count as the same."""
    return " ".join(text.casefold().translate(PLAIN).split())


def read_pairs(lines: Iterable[str], name: str) -> list[Pair]:
    """Return the tidied pairs of tab-separated lines, each once, in order, without pairs that have an empty side.

    `name` is the name of the file. Raises DataError for a line without a tab.
    """
    pairs: dict[Pair, None] = {}
    for number, line in enumerate(lines, 1):
        columns = line.split("\t")
        if len(columns) < 2:
            if not line.strip():
                continue
            raise DataError(
                f"{name!r}, line {number:,}: {line[:60]!r} has no tab; expected English, a tab and its translation."
            )
        pair = tidy(columns[0]), tidy(columns[1])
        if all(pair):
            pairs[pair] = None
    return list(pairs)


def cut(pairs: list[Pair], held_out: int = HELD_OUT, seed: int = SEED) -> dict[str, list[Pair]]:
    """Return `train`, `valid` and `test`. The last two have `held_out` pairs each, whose sides occur in no other pair.

    Raises DataError if there are too few such pairs, or if no pair would be left to train on.
    """
    keys = [(key(source), key(target)) for source, target in pairs]
    sources, targets = (Counter(side) for side in zip(*keys, strict=True)) if keys else (Counter(), Counter())
    alone = [
        number
        for number, (source, target) in enumerate(keys)
        if sources[source] == 1 == targets[target] and source and target
    ]
    if len(alone) < 2 * held_out or len(pairs) <= 2 * held_out:
        raise DataError(
            f"{len(pairs):,} pairs, of which {len(alone):,} have both sides in no other pair: too few to hold out "
            f"{held_out:,} each for validation and test. Is it the whole export?"
        )
    generator = random.Random(seed)
    drawn = generator.sample(alone, 2 * held_out)
    removed = set(drawn)
    rest = [pair for number, pair in enumerate(pairs) if number not in removed]
    generator.shuffle(rest)
    return {
        "train": rest,
        "valid": [pairs[number] for number in drawn[:held_out]],
        "test": [pairs[number] for number in drawn[held_out:]],
    }
