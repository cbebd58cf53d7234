"""The words of a parser's trees: that the text has the kind that the recipe says, and which tokens begin and end them.

    NAME.linear, kind of terminals ──▶ check_terminals: what `nmt data trees` recorded in NAME.trees.json
    vocabulary, kind of terminals ──▶ word_tables, for `model.monotonic`: tokens that begin a word of the source, tokens after
                                      which a word of the target is complete
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from ..errors import DataError
from ..parsing.linearization import TAG_PREFIX
from ..parsing.records import conversion_of
from .tokenizer import META_SPACE, UNK, Tokenizer, Vocabulary


def check_terminals(targets: Iterable[Path], terminals: str) -> None:
    """Raise DataError unless linearised trees were written with the kind `terminals`, "": any. Trees without a record pass."""
    for path in targets if terminals else ():
        conversion = conversion_of(path)
        if conversion is not None and path.name in conversion.files and conversion.terminals != terminals:
            raise DataError(
                f"the words of the trees in {str(path)!r} are written as {conversion.terminals}, the recipe has data.terminals = {terminals!r}. "
                f"Write the trees again, into another folder: nmt data trees … --terminals {terminals} --out DIR. Or give --set data.terminals={conversion.terminals}."
            )


def word_tables(vocabulary: Vocabulary, terminals: str) -> tuple[Tensor, Tensor]:
    """Return (begins, ends), bool (V,), of the source's and the target's tokens.

    A word of the source begins with the token that has its space. In the target it ends with its terminal, or with `both`
    with its tag. `terminals` is one of `linearization.TERMINALS`.
    """
    source, target = vocabulary.source, vocabulary.target
    begins = [number not in source.not_text and piece.startswith(META_SPACE) for number, piece in enumerate(source.table)]
    ends = [_ends_a_word(target, number, piece.removeprefix(META_SPACE), terminals) for number, piece in enumerate(target.table)]
    return torch.tensor(begins), torch.tensor(ends)


def _ends_a_word(tokenizer: Tokenizer, number: int, text: str, terminals: str) -> bool:
    if number in tokenizer.not_text:
        return number == UNK and terminals == "words"
    if "(" in text or ")" in text:
        return False
    return terminals != "both" or (text.startswith(TAG_PREFIX) and text != TAG_PREFIX)
