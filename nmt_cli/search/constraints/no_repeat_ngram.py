"""No repeated n-grams: no n tokens in a row occur twice in an output (Paulus et al. 2018, section 2.5).

    N open hypotheses   L longest of them, in tokens   V vocabulary

The last n-1 tokens of a hypothesis are its context. A token that has followed the same context before is forbidden.
"""

from __future__ import annotations

from typing import Any

from ...data.tokenizer import Tokenizer
from ...errors import UsageError, shown
from ..arrays import NONE, Array, arrays_of
from ..constraint import Constraint, Step


class NoRepeatNgram(Constraint):
    """The value is n, in tokens; 0 means no rule."""

    name = "no_repeat_ngram"

    def __init__(self, value: Any, tokenizer: Tokenizer | None = None) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(
                f"no_repeat_ngram {shown(value)}: expected the number of tokens of an n-gram, 1 or more, or 0 "
                "for no rule. Try 3."
            )
        self.n, self.edits = value, value > 0

    def edit(self, state: Any, step: Step, log_probs: Array) -> None:
        """See `Constraint`: forbids the tokens that would complete an n-gram that the hypothesis already has."""
        arrays, lengths = arrays_of(log_probs), step.lengths[step.sentences]  # (N,)
        longest = int(lengths.max()) if len(lengths) else 0
        if longest < self.n:
            return
        tokens = step.of_rows(step.tokens[:, :, :longest])  # (N, L)
        before = self.n - 1  # tokens of the context
        starts = longest - before  # n-grams of the longest output
        # (N, starts) whether the n-gram at this position is complete
        repeats = arrays.arange(before, longest) < lengths[:, None]
        numbers = arrays.arange(len(tokens))
        for index in range(before):
            newest = tokens[numbers, (lengths - before + index).clip(0)]
            repeats &= tokens[:, index : index + starts] == newest[:, None]
        rows, positions = arrays.nonzero(repeats)
        log_probs[rows, tokens[rows, positions + before]] = NONE
