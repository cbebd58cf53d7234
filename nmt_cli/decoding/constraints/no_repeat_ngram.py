"""No repeated n-grams: no n tokens in a row occur twice in an output (Paulus et al. 2018, section 2.5).

    N open hypotheses   L longest of them, in tokens   V vocabulary

The last n-1 tokens of a hypothesis are its context. A token that has followed the same context before is forbidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...data.tokenizer import Tokenizer
from ...errors import UsageError, shown
from ..constraint import Constraint, Step


class NoRepeatNgram(Constraint):
    """The value is n, in tokens; 0 means no rule."""

    name = "no_repeat_ngram"

    def __init__(self, value: Any, tokenizer: Tokenizer | None = None) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(
                f"no_repeat_ngram {shown(value)}: expected the number of tokens of an n-gram, 1 or more, or 0 for no rule. Try 3."
            )
        self.n, self.edits = value, value > 0

    def edit(self, state: Any, step: Step, log_probs: Tensor) -> None:
        """See `Constraint`: forbids the tokens that would complete an n-gram that the hypothesis already has."""
        lengths = step.lengths[step.sentences]  # (N,)
        longest = int(lengths.max()) if len(lengths) else 0
        if longest < self.n:
            return
        tokens = step.of_rows(step.tokens[:, :, :longest])  # (N, L)
        before = self.n - 1  # tokens of the context
        starts = longest - before  # n-grams of the longest output
        repeats = (
            torch.arange(before, longest, device=tokens.device) < lengths[:, None]
        )  # (N, starts) whether the n-gram at this position is complete
        for index in range(before):
            newest = (lengths - before + index).clamp_min(0)[:, None]
            repeats &= tokens[:, index : index + starts] == tokens.gather(1, newest)
        rows, positions = repeats.nonzero(as_tuple=True)
        log_probs[rows, tokens[rows, positions + before]] = float("-inf")
