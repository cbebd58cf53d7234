"""Parses: each output is a linearised tree of exactly the words of its source line (`parsing.linearization`).

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   T tokens of terminals   D open brackets

    line ──▶ encode: the tokens of its terminals, or ANY_TAG
        ──▶ start: terminals (B, T), and a state for each hypothesis
    each step ──▶ edit: log-probabilities (N, V) of the brackets, the next terminal and the end symbol that may follow

What may follow a hypothesis:

- an opening bracket, while terminals remain to be written and the remaining length suffices for all of them and for the
  closing brackets; at most MOST_OPENED between two terminals, and at most MOST_OPEN brackets are open at once;
- the closing bracket of the innermost open one, once a word is inside it;
- the next terminal. If it is a word (or XX), its token gets the probability of all tokens that begin a word together,
  UNK included. The next word is known, and the model chooses only whether it comes now. The other subwords of the word
  follow at once, with probability 1. With a vocabulary of whole words, an unknown word is UNK. If it is a tag, any tag
  may follow, with its own probability. With the kind `both` a tag follows each word at once;
- the end symbol, once all terminals are written and no bracket is open.

So every output is a tree, possibly of several outermost constituents, if the longest output has at least T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.normalization import META_SPACE
from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..errors import UsageError, shown
from ..search.arrays import NONE, Array, Arrays, arrays_of
from ..search.constraint import Constraint, OnDevices, Step
from ..search.search_state import OfHypotheses, Rows
from ..search.sentence import Sentence
from .brackets import UNTAGGED, between_spaces, escaped
from .linearization import SYMBOL, TERMINALS, has_bracket, is_tag

ANY_TAG = -1
"""In the tokens of terminals: any tag."""
MOST_OPENED = 12
"""Largest number of brackets opened between two terminals, so that no chain is endless. The largest number in the
10,224 trees of GUM's training data is 6."""
MOST_OPEN = 256
"""Largest number of brackets open at once, which limits the memory of the state. The largest number in the same trees
is 32."""


@dataclass(frozen=True)
class Symbols:
    """The tokens of the vocabulary by their kinds."""

    opening: Array  # (O,) opening brackets whose label also has a closing bracket
    tags: Array  # (G,)
    others: Array  # tokens that begin no word
    closing: Array  # (V,) the closing bracket of an opening bracket; -1 for other tokens
    closes: Array  # (V,) whether a token is a closing bracket
    terminal: Array  # (V,) whether a token is part of a word, or a tag


@dataclass
class PartialTree(OfHypotheses):
    """The partial tree of each hypothesis."""

    written: Array  # (B, W) number of written tokens of terminals
    depth: Array  # (B, W) number of open brackets
    opened: Array  # (B, W) number of brackets opened since the last terminal or closing bracket
    stack: Array  # (B, W, D) the closing brackets of the open brackets; the innermost is at depth - 1


@dataclass
class TreeState(Rows):
    """The terminals of each sentence, and its hypotheses."""

    terminals: Array  # (B, T) the tokens of the terminals, or ANY_TAG
    inside: Array  # (B, T) whether the token must directly follow the token before
    counts: Array  # (B,) number of these tokens
    partial: PartialTree


class TreeConstraint(Constraint):
    """The value is one of TERMINALS; None and "" mean `xx`. The input of a sentence are the tokens of its terminals.

    Raises UsageError for another value, and for a kind whose symbols the vocabulary does not have.
    """

    name = "tree"
    edits = True
    adjusts = True
    reads_source = True

    def __init__(self, value: Any, tokenizer: Tokenizer) -> None:
        if value not in (None, "", *TERMINALS):
            raise UsageError(
                f"tree {shown(value)}: expected {', '.join(TERMINALS[:-1])} or {TERMINALS[-1]}, the kind of "
                "terminals that the model was trained with (data.terminals)."
            )
        self.kind = value or "xx"
        self.allows = (UNK,) if self.kind in ("words", "both") else ()
        pieces = {number: piece for number, piece in enumerate(tokenizer.table) if number not in tokenizer.not_text}
        words, tags = _terminals(pieces, self.kind)
        if (self.kind == "xx" and not words) or (self.kind in ("tags", "both") and not tags):
            missing = f"the symbol {UNTAGGED}" if self.kind == "xx" else "tags"
            raise UsageError(
                f"tree {shown(value)}: the vocabulary of the model does not have {missing}. Give the kind of "
                "terminals that the model was trained with (data.terminals)."
            )
        subwords = [*words, *tokenizer.not_text - {PAD, BOS, EOS}] if self.allows else words
        self.symbols = OnDevices(_symbols(pieces, subwords, tags, tokenizer.vocab_size))

    def encode(self, values: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[list[tuple[int, bool]]]:
        """Return the tokens of the terminals of each line, each with whether it must directly follow the token before.

        The list of a line is empty if it has more tokens than an output can have.
        """
        lines = (self._terminals(between_spaces(text), tokenizer) for text in values)
        return [tokens if len(tokens) <= longest else [] for tokens in lines]

    def _terminals(self, words: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, bool]]:
        if self.kind == "tags":
            return [(ANY_TAG, False)] * len(words)
        terminals = [UNTAGGED] * len(words) if self.kind == "xx" else [escaped(word) for word in words]
        tag = [ANY_TAG] if self.kind == "both" else []
        # normalisation may remove a whole word
        encoded = ([*(tokens or [UNK]), *tag] for tokens in tokenizer.encode(terminals))
        return [(token, position > 0) for tokens in encoded for position, token in enumerate(tokens)]

    def added_length(self, value: Sequence[tuple[int, bool]]) -> int:
        """See `Constraint`: an output can always have all terminals."""
        return len(value)

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> TreeState:
        """See `Constraint`. A sentence without input has no words: its outputs are empty."""
        terminals = [list(sentence.inputs.get(self.name, ())) for sentence in sentences]
        longest = max(1, *map(len, terminals))
        filled = [[*tokens, *[(ANY_TAG, False)] * (longest - len(tokens))] for tokens in terminals]
        padded = arrays.array(filled, arrays.int64)  # (B, T, 2)
        zeros = arrays.zeros((len(sentences), width), arrays.int64)
        deepest = min(MOST_OPEN, max(1, *(sentence.max_length for sentence in sentences)))
        stack = arrays.full((*zeros.shape, deepest), -1, arrays.int32)
        return TreeState(
            padded[:, :, 0],
            padded[:, :, 1] > 0,
            arrays.array([len(tokens) for tokens in terminals], arrays.int64),
            PartialTree(zeros, zeros, zeros, stack),
        )

    def edit(self, state: TreeState, step: Step, log_probs: Array) -> None:
        """See `Constraint`: forbids tokens that break the tree; the next word gets the probability of all words."""
        arrays, partial = arrays_of(log_probs), state.partial
        symbols = self.symbols.on(arrays)
        written, depth, opened = (step.of_rows(values) for values in (partial.written, partial.depth, partial.opened))
        left = state.counts[step.sentences] - written
        next_terminal = step.sentences, written.clip(None, state.terminals.shape[1] - 1)
        terminals, in_word = state.terminals[next_terminal], state.inside[next_terminal] & (left > 0)
        fits = left + depth + 2 <= step.remaining[step.sentences]
        may_open = (left > 0) & ~in_word & fits & (opened < MOST_OPENED) & (depth < MOST_OPEN)
        closing = arrays.nonzero((depth > 0) & (opened == 0) & ~in_word)[0]
        words = arrays.nonzero((left > 0) & (terminals != ANY_TAG))[0]
        may_end, may_tag = (left == 0) & (depth == 0), (left > 0) & (terminals == ANY_TAG)

        brackets = arrays.astype(step.of_rows(partial.stack)[closing, depth[closing] - 1], arrays.int64)
        of_words = log_probs[words]
        of_words[:, symbols.others] = NONE
        of_brackets, of_words = log_probs[closing, brackets], _total(of_words)
        of_opening = arrays.where(may_open[:, None], log_probs[:, symbols.opening], NONE)
        of_tags = arrays.where(may_tag[:, None], log_probs[:, symbols.tags], NONE)
        of_end = arrays.where(may_end, log_probs[:, EOS], NONE)
        log_probs[:] = NONE
        log_probs[:, symbols.opening] = of_opening
        log_probs[:, symbols.tags] = of_tags
        log_probs[:, EOS] = of_end
        log_probs[closing, brackets] = of_brackets
        log_probs[words, terminals[words]] = arrays.where(in_word[words], 0.0, of_words)

    def advance(self, state: TreeState, tokens: Array) -> TreeState:
        """See `Constraint`. Tokens of a prefix need not be part of a tree."""
        arrays, partial = arrays_of(tokens), state.partial
        symbols = self.symbols.on(arrays)
        brackets = symbols.closing[tokens]
        opens, closes, terminal = (
            arrays.astype(kind, arrays.int64)
            for kind in (brackets >= 0, symbols.closes[tokens], symbols.terminal[tokens])
        )
        sentence, hypothesis = arrays.nonzero(opens)
        stack = arrays.copy(partial.stack)
        top = partial.depth[sentence, hypothesis].clip(None, stack.shape[2] - 1)
        stack[sentence, hypothesis, top] = arrays.astype(brackets[sentence, hypothesis], arrays.int32)
        state.partial = PartialTree(
            written=arrays.minimum(partial.written + terminal, state.counts[:, None]),
            depth=(partial.depth + opens - closes).clip(0, stack.shape[2]),
            opened=(partial.opened + 1) * opens,
            stack=stack,
        )
        return state


def _total(log_probs: Array) -> Array:
    """Return the log of the sum of the probabilities of each row, (N, V) -> (N,); -inf where all of them are 0."""
    arrays = arrays_of(log_probs)
    if not len(log_probs):
        return log_probs[:, 0]
    largest = arrays.amax(log_probs, 1)
    total = largest + arrays.log(arrays.sums(arrays.exp(log_probs - largest[:, None])))
    return arrays.where(largest == NONE, NONE, total).clip(None, 0.0)  # rounding may make it positive


def _terminals(pieces: dict[int, str], kind: str) -> tuple[list[int], list[int]]:
    """Return the tokens of a vocabulary that are words or parts of words, and the tokens that are tags."""
    terminals = [number for number, piece in pieces.items() if not has_bracket(piece)]
    text = {number: pieces[number].removeprefix(META_SPACE) for number in terminals}
    if kind == "xx":
        return [number for number in terminals if text[number] == UNTAGGED], []
    if kind == "tags":
        return [], terminals
    tags = {number for number in terminals if kind == "both" and is_tag(text[number])}
    return [number for number in terminals if number not in tags], sorted(tags)


def _symbols(pieces: dict[int, str], words: Sequence[int], tags: Sequence[int], size: int) -> Symbols:

    brackets: dict[str, dict[str, int]] = {"(": {}, ")": {}}
    for number, piece in pieces.items():
        if match := SYMBOL.fullmatch(piece.removeprefix(META_SPACE)):
            brackets[match["bracket"]][match["label"]] = number
    begins = {number for number in words if pieces.get(number, META_SPACE * (number == UNK)).startswith(META_SPACE)}
    pairs = {opening: brackets[")"][label] for label, opening in brackets["("].items() if label in brackets[")"]}
    symbols = Symbols(
        opening=np.array(list(pairs), np.int64),
        tags=np.array(tags, np.int64),
        others=np.array(sorted(set(range(size)).difference(begins)), np.int64),
        closing=np.full(size, -1),
        closes=np.zeros(size, np.bool_),
        terminal=np.zeros(size, np.bool_),
    )
    symbols.closing[symbols.opening] = list(pairs.values())
    symbols.closes[list(brackets[")"].values())] = True
    symbols.terminal[[*words, *tags]] = True
    return symbols
