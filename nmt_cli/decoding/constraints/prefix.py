"""Forced prefixes: an output begins with given tokens (prefix-constrained decoding).

B sentences   N open hypotheses   P length of the longest prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...data.tokenizer import Tokenizer
from ..constraint import Constraint, Step
from ..search_state import FREE, Rows
from ..sentence import Sentence


@dataclass
class Prefixes(Rows):
    """The prefix of each sentence."""

    tokens: Tensor  # (B, P); FREE beyond the prefix


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
        """See `Constraint`."""
        return len(value)

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> Prefixes:
        """See `Constraint`."""
        prefixes = [list(sentence.inputs.get(self.name, ())) for sentence in sentences]
        longest = max(map(len, prefixes))
        padded = [[*prefix, *[FREE] * (longest - len(prefix))] for prefix in prefixes]
        return Prefixes(torch.tensor(padded, dtype=torch.long, device=device).view(len(prefixes), longest))

    def rests(self, state: Prefixes) -> bool:
        """See `Constraint`: true if no sentence has a prefix."""
        return not state.tokens.size(1)

    def required(self, state: Prefixes, step: Step) -> Tensor | None:
        """See `Constraint`: the next token of the prefix."""
        size = state.tokens.size(1)
        if not size:
            return None
        tokens = state.tokens.gather(1, step.lengths.clamp_max(size - 1)[:, None])[:, 0]  # (B,)
        return tokens.masked_fill(step.lengths >= size, FREE).index_select(0, step.sentences)
