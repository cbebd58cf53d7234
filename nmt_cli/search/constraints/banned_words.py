"""Banned words: words and phrases that no output contains, however they are split into subwords.

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary

`phrases` defines an occurrence. A token that would complete an occurrence is forbidden. The end symbol may follow a
banned word only as the last resort, with a very low log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...data.tokenizer import EOS, UNK, Tokenizer
from ...errors import UsageError, shown
from ..arrays import NONE, Array, Arrays, arrays_of
from ..constraint import LAST_RESORT, Constraint, Step
from ..search_state import OfHypotheses
from ..sentence import Sentence
from .phrases import MOST_MISSING, PhraseMatcher, one_spaced


@dataclass
class Matches(OfHypotheses):
    """The parts of banned phrases that hypotheses have."""

    states: Array  # (B, W) states of the `PhraseMatcher`


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
        self.forbidden: dict[tuple[int, int, Arrays], Array] = {}

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Matches:
        return Matches(arrays.zeros((len(sentences), width), arrays.int64))

    def edit(self, state: Matches, step: Step, log_probs: Array) -> None:
        """See `Constraint`: forbids the tokens that complete a banned phrase."""
        arrays = arrays_of(log_probs)
        by_state: dict[tuple[int, int], list[int]] = {}
        left = (step.remaining - 1).clip(0, MOST_MISSING)[step.sentences]  # (N,) tokens that may follow the next one
        for row, key in enumerate(zip(step.of_rows(state.states).tolist(), left.tolist(), strict=True)):
            by_state.setdefault(key, []).append(row)
        for key, rows in by_state.items():
            tokens, index = self._forbidden(*key, arrays), arrays.array(rows, arrays.int64)
            if len(tokens):
                log_probs[index[:, None], tokens] = NONE
            if self.matcher.open(key[0]):
                log_probs[index, EOS] += LAST_RESORT

    def advance(self, state: Matches, tokens: Array) -> Matches:
        after = map(self.matcher.after, state.states.reshape(-1).tolist(), tokens.reshape(-1).tolist())
        arrays = arrays_of(tokens)
        return Matches(arrays.array(list(after), arrays.int64).reshape(tokens.shape))

    def _forbidden(self, number: int, left: int, arrays: Arrays) -> Array:
        """Return the tokens that may not follow a text of this state, if at most `left` tokens may follow them."""
        key = number, left, arrays
        if key not in self.forbidden:
            self.forbidden[key] = arrays.array(self.matcher.completing(number, left), arrays.int64)
        return self.forbidden[key]


def _normalized(entries: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return the entries, normalised by the tokenizer as outputs are.

    Raises UsageError for an entry that no output can contain.
    """
    encoded = tokenizer.encode(entries)
    for number, (entry, tokens) in enumerate(zip(entries, encoded, strict=True), 1):
        if not entry.strip() or not tokens:
            raise UsageError(
                f"banned word {number} is {shown(entry)}: expected a word or phrase. Delete the blank line."
            )
        if UNK in tokens:
            raise UsageError(
                f"banned word {number}, {shown(entry)}, has characters that the vocabulary of the model does "
                "not have: no output can contain it. Delete it."
            )
    return [one_spaced(text).strip() for text in tokenizer.decode(encoded)]


def _last_tokens(phrases: Sequence[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Return for each phrase the token of its last word, if the tokenizer writes this word as one token; else -1."""
    encoded = tokenizer.encode([phrase.rsplit(" ", 1)[-1] for phrase in phrases])
    return {phrase: tokens[0] if len(tokens) == 1 else -1 for phrase, tokens in zip(phrases, encoded, strict=True)}
