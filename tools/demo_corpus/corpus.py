"""Draws sentences until every split is full. Also decides which combinations are held out of training."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from demo_corpus.draws import Draw
from demo_corpus.sentences import CONSTRUCTIONS

HELD_OUT_ONE_IN: dict[str, int] = {
    "verb+object": 16,
    "adjective+noun": 16,
    "subject+verb": 16,
    "compound": 7,
    "profession": 8,
    "number": 7,
    "clock": 7,
    "date": 8,
    "year": 8,
    "price": 8,
    "name": 9,
}
"""Kind of combination -> n. On average, one in n combinations of that kind is held out of training."""

MAX_WORDS = 22
"""Maximum number of words of an English sentence. Longer sentences are dropped."""

SPLITS = ("train", "valid", "test")


class Example(NamedTuple):
    """A sentence pair and the combinations it contains."""

    en: str
    de: str
    combinations: tuple[str, ...]


def held_out(combination: str) -> bool:
    """Return whether a combination is reserved for validation and test. Its CRC-32 decides."""
    kind = combination.partition(":")[0]
    return zlib.crc32(combination.encode()) % HELD_OUT_ONE_IN[kind] == 0


def examples(seed: int, train: int, valid: int, test: int) -> dict[str, list[Example]]:
    """Draw the splits.

    A sentence without held-out combinations goes to train. Every other sentence goes to valid or test, whichever is
    filled to a smaller share.
    """
    draw = Draw(seed)
    sizes = {"train": train, "valid": valid, "test": test}
    splits: dict[str, list[Example]] = {name: [] for name in SPLITS}
    translation: dict[str, str] = {}
    german: set[str] = set()
    while any(len(splits[name]) < sizes[name] for name in SPLITS):
        example = draw_example(draw)
        if translation.setdefault(example.en, example.de) != example.de:
            raise AssertionError(f"two translations of {example.en!r}: {translation[example.en]!r}, {example.de!r}")
        if example.de in german or len(example.en.split()) > MAX_WORDS:
            continue
        name = _split(example, splits, sizes)
        if name:
            german.add(example.de)
            splits[name].append(example)
    return splits


def draw_example(draw: Draw) -> Example:
    """Draw a construction by its weight, and return one sentence of it."""
    draw.start()
    text = draw.pick(CONSTRUCTIONS)(draw)
    return Example(text.en, text.de, tuple(dict.fromkeys(draw.combinations)))


def _split(example: Example, splits: dict[str, list[Example]], sizes: dict[str, int]) -> str:
    """Return the split that the example goes to, or "" if that split is full."""
    if not any(held_out(combination) for combination in example.combinations):
        return "train" if len(splits["train"]) < sizes["train"] else ""
    open_splits = [name for name in ("valid", "test") if len(splits[name]) < sizes[name]]
    return min(open_splits, key=lambda name: len(splits[name]) / sizes[name], default="")
