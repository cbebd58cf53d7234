"""The sentences that an export is proven on.

    --text FILE ──────────────▶ its first lines
    the teaching corpus ──────▶ sentences of the source language (English where it has none)
    the source vocabulary ────▶ pieces drawn at random, 1 to 60 a line and one line as long as training's longest

The last reach every part of the embedding and of the table of positions, in any language. Blank lines and those that
are longer than training's longest are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from ..data.tokenizer import EOS, Tokenizer
from ..demo_corpus import generate
from ..errors import DataError
from ..lines import decode_line, iter_lines, open_binary
from .target import Trained

MADE = 32
"""Sentences of the teaching corpus, and as many of the vocabulary."""
MOST = 1000
"""Lines that are taken of a file."""
LONGEST_MADE = 60


def sentences(trained: Trained, text: Path | None) -> list[str]:
    """The sentences to compare. Raises DataError for a file that cannot be read, or of which no line is left."""
    source, longest = trained.vocabulary.source, min(trained.recipe.data.max_length, trained.recipe.model.max_positions - 1)
    given = _fitting(_lines(text), source, longest) if text else []
    if text and not given:
        raise DataError(f"{str(text)!r} has no line to compare: they are blank, or longer than the {longest} tokens that the model was trained on.")
    side = 1 if trained.recipe.data.source_language == "de" else 0
    taught = [pair[side] for pair in generate(train=MADE, valid=0, test=0)["train"]]
    return [*given, *_fitting([*taught, *_drawn(source, longest)], source, longest)]


def _lines(path: Path) -> list[str]:
    with open_binary(path) as stream:
        return [decode_line(raw)[0] for _, raw in zip(range(MOST), iter_lines(stream), strict=False)]


def _fitting(lines: list[str], source: Tokenizer, longest: int) -> list[str]:
    return [line for line, ids in zip(lines, source.encode(lines), strict=True) if line.strip() and 0 < len(ids) <= longest]


def _drawn(source: Tokenizer, longest: int) -> list[str]:
    """Texts of random pieces; bytes and special symbols are left out."""
    random = Random(1)
    ids = [i for i, piece in enumerate(source.table) if i > EOS and not re.fullmatch(r"<0x[0-9A-F]{2}>", piece)]
    lengths = [1 + index * (min(LONGEST_MADE, longest) - 1) // (MADE - 2) for index in range(MADE - 1)]
    return [_of_length(source, [random.choice(ids) for _ in range(length)], length) for length in [*lengths, longest]]


def _of_length(source: Tokenizer, ids: list[int], length: int) -> str:
    """The text of `ids`, cut until it has `length` tokens at most: it may be cut into pieces otherwise than it was put together."""
    while len(source.encode(source.decode([ids]))[0]) > length:
        ids = ids[:-1]
    return source.decode([ids])[0]
