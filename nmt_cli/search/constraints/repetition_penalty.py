"""Repetition penalty: make tokens that an output already has less probable (CTRL, Keskar et al. 2019, section 4.1).

    N open hypotheses   L longest of them, in tokens   V vocabulary

CTRL divides the logits. Here the log-probabilities are multiplied by the penalty, as in Hugging Face's beam search.
They are negative, so a penalty above 1 makes a token less probable, and a penalty below 1 makes it more probable.
"""

from __future__ import annotations

import math
from typing import Any

from ...data.tokenizer import Tokenizer
from ...errors import UsageError, shown
from ..arrays import Array, arrays_of
from ..constraint import Constraint, Step


class RepetitionPenalty(Constraint):
    """The value is the penalty, a number above 0. 1 means no penalty."""

    name = "repetition_penalty"
    adjusts = True

    def __init__(self, value: Any, tokenizer: Tokenizer | None = None) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UsageError(
                f"repetition_penalty {shown(value)}: expected a number above 0; 1 changes nothing. Try 1.2."
            )
        self.penalty = float(value)
        self.edits = self.penalty != 1.0

    def edit(self, state: Any, step: Step, log_probs: Array) -> None:
        """See `Constraint`: multiplies the log-probabilities of the tokens of the hypothesis, each token once."""
        arrays, lengths = arrays_of(log_probs), step.lengths[step.sentences]  # (N,)
        longest = int(lengths.max()) if len(lengths) else 0
        tokens = step.of_rows(step.tokens[:, :, :longest])  # (N, L)
        rows, positions = arrays.nonzero(arrays.arange(longest) < lengths[:, None])
        repeated = tokens[rows, positions]
        log_probs[rows, repeated] = log_probs[rows, repeated] * self.penalty
