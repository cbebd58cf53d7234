"""The sentences with which an export is verified.

    --text FILE ──────────────▶ its first lines
    the demo corpus ──────────▶ sentences of the source language (English if it has none)
    the source vocabulary ────▶ random pieces, 1 to 60 per line and one line as long as training's longest

The random pieces reach every part of the embedding and of the table of positions, in any language. Blank lines and
lines longer than training's longest are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from ..data.demo_corpus import pairs
from ..data.normalization import UNSEEN
from ..data.tokenizer import EOS, Tokenizer
from ..errors import DataError
from ..text.languages import base
from ..text.lines import decode_line, iter_lines, open_binary
from .exporter import SourceModel

GENERATED = 32
"""Number of sentences of the demo corpus, and of sentences of random pieces."""
MAX_LINES = 1000
"""Maximum number of lines that are read from a file."""
LONGEST_RANDOM = 60
"""Maximum length of a random sentence in tokens, except the last one."""


def sentences(source_model: SourceModel, text: Path | None) -> list[str]:
    """Return the sentences to compare. Raises DataError for a file that cannot be read, or that has no usable line."""
    source, recipe = source_model.vocabulary.source, source_model.recipe
    longest = min(recipe.data.max_length, recipe.model.max_positions - 1)
    lines = _usable(_lines(text), source, longest) if text else []
    if text and not lines:
        raise DataError(
            f"{str(text)!r} has no line to compare: its lines are blank, or longer than the {longest} tokens "
            "that the model was trained on."
        )
    side = 1 if base(recipe.data.source_language) == "de" else 0
    demo = [pair[side] for pair in pairs(GENERATED, 0, 0)["train"]]
    return [*lines, *_usable([*demo, *_random(source, longest)], source, longest)]


def _lines(path: Path) -> list[str]:
    with open_binary(path) as stream:
        return [decode_line(raw)[0] for _, raw in zip(range(MAX_LINES), iter_lines(stream), strict=False)]


def _usable(lines: list[str], source: Tokenizer, longest: int) -> list[str]:
    return [
        line for line, ids in zip(lines, source.encode(lines), strict=True) if line.strip() and 0 < len(ids) <= longest
    ]


def _random(source: Tokenizer, longest: int) -> list[str]:
    """Return texts of random pieces, without bytes, special symbols and what no reader sees."""
    random, left_out = Random(1), re.compile(rf"<0x[0-9A-F]{{2}}>$|.*{UNSEEN.pattern}", re.DOTALL)
    ids = [i for i, piece in enumerate(source.table) if i > EOS and not left_out.match(piece)]
    if not ids:
        return []
    lengths = [1 + index * (min(LONGEST_RANDOM, longest) - 1) // (GENERATED - 2) for index in range(GENERATED - 1)]
    return [_of_length(source, [random.choice(ids) for _ in range(length)], length) for length in [*lengths, longest]]


def _of_length(source: Tokenizer, ids: list[int], length: int) -> str:
    """Return the text of `ids`, shortened until it has at most `length` tokens: the tokenizer may split the text into
    more pieces than `ids`.
    """
    while len(source.encode(source.decode([ids]))[0]) > length:
        ids = ids[:-1]
    return source.decode([ids])[0]
