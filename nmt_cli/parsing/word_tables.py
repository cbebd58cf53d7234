"""Which tokens begin and end the words of a parser's sentences and trees: the tables of `model.monotonic`.

vocabulary, kind of terminals
    ──▶ source: tokens that begin a word          target: tokens after which a word is complete
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.normalization import META_SPACE
from ..data.tokenizer import UNK, Tokenizer, Vocabulary
from .linearization import has_bracket, is_tag


def word_tables(vocabulary: Vocabulary, terminals: str) -> tuple[Tensor, Tensor]:
    """Return (begins, ends), bool (V,): the source tokens that begin a word, and the target tokens that end one.

    A source word begins with the token that contains the space before the word. A target word ends with its terminal;
    if `terminals` is "both", it ends with its tag. `terminals` is one of `linearization.TERMINALS`.
    """
    source, target = vocabulary.source, vocabulary.target
    begins = [
        number not in source.not_text and piece.startswith(META_SPACE) for number, piece in enumerate(source.table)
    ]
    ends = [
        _ends_a_word(target, number, piece.removeprefix(META_SPACE), terminals)
        for number, piece in enumerate(target.table)
    ]
    return torch.tensor(begins), torch.tensor(ends)


def _ends_a_word(tokenizer: Tokenizer, number: int, text: str, terminals: str) -> bool:
    if number in tokenizer.not_text:
        return number == UNK and terminals == "words"
    return not has_bracket(text) and (terminals != "both" or is_tag(text))
