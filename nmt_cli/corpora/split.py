r"""Tatoeba's pairs into train, valid and test, so that nothing held out is known from training.

    lines "English \t other [\t attribution]"  ──▶ tidy, each pair once ──▶ cut

Tidied: NFC, every run of white space (no-break spaces too) one space. Held out are pairs whose two sides both occur in
no other pair, compared without case and punctuation: Tatoeba has many paraphrases, one sentence with several
translations. They are drawn, and the rest shuffled, by `random.Random(SEED)`: the same export gives the same files.
The pairs are held in memory, some hundred thousand short ones.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterable

from ..errors import DataError

SEED = 2017
HELD_OUT = 2000
"""Pairs each of valid and test."""

Pair = tuple[str, str]


def tidy(text: str) -> str:
    """NFC, and white space of every kind and length as one space; none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def key(text: str) -> str:
    """What is left of a sentence without case, punctuation and symbols: two sentences with one key count as the same."""
    kept = (" " if unicodedata.category(character)[0] in "PSZ" else character for character in text.casefold())
    return " ".join("".join(kept).split())


def read_pairs(lines: Iterable[str], name: str) -> list[Pair]:
    """The tidied pairs of tab-separated lines, each once, in order; pairs with an empty side are left out.

    Raises DataError for a line without a tab; `name` is the file's.
    """
    pairs: dict[Pair, None] = {}
    for number, line in enumerate(lines, 1):
        columns = line.split("\t")
        if len(columns) < 2:
            if not line.strip():
                continue
            raise DataError(f"{name!r}, line {number:,}: {line[:60]!r} has no tab; expected English, a tab and its translation.")
        pair = tidy(columns[0]), tidy(columns[1])
        if all(pair):
            pairs[pair] = None
    return list(pairs)


def cut(pairs: list[Pair], held_out: int = HELD_OUT, seed: int = SEED) -> dict[str, list[Pair]]:
    """`train`, `valid` and `test`: held out are `held_out` pairs each, both of whose sides occur in no other pair.

    Raises DataError where too few such pairs exist to hold out so many and have something left to train on.
    """
    keys = [(key(source), key(target)) for source, target in pairs]
    sources, targets = (Counter(side) for side in zip(*keys, strict=True)) if keys else (Counter(), Counter())
    alone = [number for number, (source, target) in enumerate(keys) if sources[source] == 1 == targets[target] and source and target]
    if len(alone) < 2 * held_out or len(pairs) <= 2 * held_out:
        raise DataError(
            f"{len(pairs):,} pairs, of which {len(alone):,} have both sides in no other pair: too few to hold out {held_out:,} each for validation and test. "
            "Is it the whole export?"
        )
    generator = random.Random(seed)
    drawn = generator.sample(alone, 2 * held_out)
    taken = set(drawn)
    rest = [pair for number, pair in enumerate(pairs) if number not in taken]
    generator.shuffle(rest)
    return {"train": rest, "valid": [pairs[number] for number in drawn[:held_out]], "test": [pairs[number] for number in drawn[held_out:]]}
