"""Banned words: words and phrases that no output contains, however they are split into subwords.

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary

`phrases` defines an occurrence. A token that would complete an occurrence is forbidden. The end symbol may follow a banned
word only as the last resort, with a very low log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...data.tokenizer import EOS, UNK, Tokenizer
from ...errors import UsageError, shown
from ..constraint import LAST_RESORT, Constraint, Step
from ..search_state import OfHypotheses
from ..sentence import Sentence
from .phrases import MOST_MISSING, PhraseMatcher, one_spaced


@dataclass
class Matches(OfHypotheses):
    """The parts of banned phrases that hypotheses have."""

    states: Tensor  # (B, W) states of the `PhraseMatcher`


class BannedWords(Constraint):
    """The value is the list of words and phrases, case-sensitive."""

    name = "banned_words"
    adjusts = True

    def __init__(self, value: Any, tokenizer: Tokenizer) -> None:
        if value is None or isinstance(value, str):
            raise UsageError(f"banned_words {shown(value)}: expected a list of words or phrases. Give one per line.")
        self.edits = bool(value)
        phrases = _normalized(list(value), tokenizer)
        self.matcher = PhraseMatcher(phrases, tokenizer, _last_tokens(phrases, tokenizer))
        self.forbidden: dict[tuple[int, int, torch.device], Tensor] = {}

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> Matches:
        """See `Constraint`."""
        return Matches(torch.zeros(len(sentences), width, dtype=torch.long, device=device))

    def edit(self, state: Matches, step: Step, log_probs: Tensor) -> None:
        """See `Constraint`: forbids the tokens that complete a banned phrase."""
        by_state: dict[tuple[int, int], list[int]] = {}
        left = (step.remaining - 1).clamp(0, MOST_MISSING)[step.sentences]  # (N,) tokens that may follow the next one
        for row, key in enumerate(zip(step.of_rows(state.states).tolist(), left.tolist(), strict=True)):
            by_state.setdefault(key, []).append(row)
        for key, rows in by_state.items():
            tokens = self._forbidden(*key, log_probs.device)
            if len(tokens):
                log_probs[torch.tensor(rows, device=log_probs.device)[:, None], tokens] = float("-inf")
            if self.matcher.open(key[0]):
                log_probs[rows, EOS] += LAST_RESORT

    def advance(self, state: Matches, tokens: Tensor) -> Matches:
        """See `Constraint`."""
        after = map(self.matcher.after, state.states.flatten().tolist(), tokens.flatten().tolist())
        return Matches(torch.tensor(list(after), dtype=torch.long, device=tokens.device).view(tokens.shape))

    def _forbidden(self, number: int, left: int, device: torch.device) -> Tensor:
        """Return the tokens that may not follow a text of this state, if at most `left` tokens may follow them."""
        key = number, left, device
        if key not in self.forbidden:
            self.forbidden[key] = torch.tensor(self.matcher.completing(number, left), dtype=torch.long, device=device)
        return self.forbidden[key]


def _normalized(entries: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return the entries, normalised by the tokenizer as outputs are. Raises UsageError for an entry that no output can contain."""
    encoded = tokenizer.encode(entries)
    for number, (entry, tokens) in enumerate(zip(entries, encoded, strict=True), 1):
        if not entry.strip() or not tokens:
            raise UsageError(
                f"banned word {number} is {shown(entry)}: expected a word or phrase. Delete the blank line."
            )
        if UNK in tokens:
            raise UsageError(
                f"banned word {number}, {shown(entry)}, has characters that the vocabulary of the model does not have: no output can contain it. Delete it."
            )
    return [one_spaced(text).strip() for text in tokenizer.decode(encoded)]


def _last_tokens(phrases: Sequence[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Return for each phrase the token of its last word, if the tokenizer writes this word as one token; else -1."""
    encoded = tokenizer.encode([phrase.rsplit(" ", 1)[-1] for phrase in phrases])
    return {phrase: tokens[0] if len(tokens) == 1 else -1 for phrase, tokens in zip(phrases, encoded, strict=True)}
