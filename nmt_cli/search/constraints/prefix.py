"""Forced prefixes: an output begins with given tokens (prefix-constrained decoding).

B sentences   N open hypotheses   P length of the longest prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...data.tokenizer import Tokenizer
from ...engine.library import integers
from ..arrays import Array, Arrays, arrays_of
from ..constraint import Constraint, Step
from ..search_state import FREE, Rows
from ..sentence import Sentence


@dataclass
class Prefixes(Rows):
    """The prefix of each sentence."""

    tokens: Array  # (B, P); FREE beyond the prefix


class Prefix(Constraint):
    """The input of a sentence is the list of token ids that its output begins with, no more than its `max_length`."""

    name = "prefix"

    def __init__(self, value: Any = None, tokenizer: Tokenizer | None = None) -> None:
        pass

    def encode(self, values: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[list[int]]:
        """Return the token ids of texts, cut to `longest`. White space alone is no prefix."""
        return [
            ids[:longest] if text.strip() else []
            for text, ids in zip(values, tokenizer.encode(list(values)), strict=True)
        ]

    def added_length(self, value: Sequence[int]) -> int:
        return len(value)

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Prefixes:
        first, *others = (Prefixes(integers([sentence.inputs.get(self.name, ())])) for sentence in sentences)
        return first.concat(*others).each(arrays.array)

    def required(self, state: Prefixes, step: Step) -> Array | None:
        """See `Constraint`: the next token of the prefix."""
        size = state.tokens.shape[1]
        if not size:
            return None
        arrays, lengths = arrays_of(state.tokens), step.lengths
        tokens = state.tokens[arrays.arange(len(lengths)), lengths.clip(None, size - 1)]  # (B,)
        return arrays.where(lengths >= size, FREE, tokens)[step.sentences]
