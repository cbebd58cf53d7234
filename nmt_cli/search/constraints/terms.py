"""Lexical constraints: words and phrases that an output must contain (Hokamp and Liu 2017; Post and Vilar 2018).

    B sentences   W hypotheses   C candidates   M nodes   K tokens of the terms   G terms

    terms of a line ──▶ encode: token ids of every alternative
        ──▶ start: one automaton per sentence (Aho and Corasick 1975)
    token ──▶ goto: the node that the output has reached ──▶ which terms end here, how far the others have come

The automaton finds the terms in an output as it grows, no matter whether the model or a proposal wrote them. So a term
is never demanded twice, terms may overlap, and any alternative of a term meets the demand. A term counts once the word
ends after its last token; until then it is pending. A term that the input contains twice must occur twice.

Beam search asks for the `progress` of its candidates and keeps some candidates of each degree of progress
(`allocation`). An output ends when no term is missing.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ...console import warn_once
from ...data.tokenizer import BYTE, EOS, UNK, Tokenizer
from ...errors import shown
from ..arrays import NONE, Array, Arrays, arrays_of, merged
from ..constraint import Constraint, OnDevices, Step
from ..search_state import FREE, OfHypotheses, Rows
from ..sentence import Sentence
from .phrases import in_word
from .tries import Children, insert

ALTERNATIVES = re.compile(r"(?<!\\)\|")
"""The separator between the alternatives of a term."""
OPEN_END = "*"
"""At the end of an alternative: more letters of the word may follow."""
MOST_ENDINGS = 64
"""Largest number of longer subwords that are tried in one position for a word that may go on."""


class Alternative(NamedTuple):
    """A way to write a term."""

    tokens: tuple[int, ...]
    whole: bool
    """Whether the word must end after the tokens."""


Term = tuple[Alternative, ...]


@dataclass
class Reached(OfHypotheses):
    """The progress of each hypothesis."""

    node: Array  # (B, W) node of the automaton
    have: Array  # (B, W, G) number of occurrences of each term, pending ones not counted; at most `need`


@dataclass
class Automata(Rows):
    """One automaton per sentence, and the nodes of its hypotheses. Node 0 is the beginning."""

    tokens: Array  # (B, K) the tokens of the terms; padded with -1
    goto: Array  # (B, M, 1 + K) index 0: the node after any other token; then the node after each of `tokens`
    ends: Array  # (B, M, G) whether a term ends at the node if the word ends there too
    open_ends: Array  # (B, M, G) whether a term ends at the node, however the word goes on
    depth: Array  # (B, M, G) number of tokens at the end of the output that begin the term
    need: Array  # (B, G) how often a term must occur
    weight: Array  # (B, G) number of tokens of the longest alternative of a term
    reached: Reached


@dataclass(frozen=True)
class Words:
    """Where the words of the vocabulary end."""

    ended: Array  # (V,) see `_ends_word`
    inside: Array  # the other tokens, and the end symbol


class Terms(Constraint):
    """The input of a sentence is a list of terms.

    A term is one text, or several texts separated by "|"; see `alternatives`.
    """

    name = "terms"
    edits = True
    progresses = True

    def __init__(self, value: Any, tokenizer: Tokenizer) -> None:
        ends_word = np.array([_ends_word(number, piece) for number, piece in enumerate(tokenizer.table)])
        self.words = OnDevices(Words(ends_word, (~ends_word | (np.arange(len(ends_word)) == EOS)).nonzero()[0]))

    def encode(self, values: Sequence[Sequence[str]], tokenizer: Tokenizer, longest: int) -> list[list[Term]]:
        """Return the terms of lines as token ids.

        Terms that the vocabulary cannot write are left out, with a warning.
        """
        cached = cache(partial(_encoded, tokenizer=tokenizer))
        return [[term for text in texts if (term := cached(text))] for texts in values]

    def added_length(self, value: Sequence[Term]) -> int:
        """See `Constraint`: terms may make an output longer."""
        return sum(_weight(term) for term in value)

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Automata:
        first, *others = (_automaton(sentence.inputs.get(self.name, ()), width) for sentence in sentences)
        return first.concat(*others).each(arrays.array)

    def edit(self, state: Automata, step: Step, log_probs: Array) -> None:
        """See `Constraint`: an output that lacks a term does not end.

        Where the end symbol is the most probable token, only tokens that a missing term needs may follow. The model
        would invent any other text.
        """
        arrays, lacking = arrays_of(log_probs), step.of_rows(self.missing(state)) > 0
        late = arrays.nonzero(lacking & (log_probs[:, EOS] == arrays.amax(log_probs, 1)))[0]
        if len(late):
            needed = step.of_rows(self._needed(state))[late]
            row, position = arrays.nonzero(needed >= 0)
            row, tokens = late[row], needed[row, position]
            values = log_probs[row, tokens]
            log_probs[late] = NONE
            log_probs[row, tokens] = values
        log_probs[:, EOS] = arrays.where(lacking, NONE, log_probs[:, EOS])

    def advance(self, state: Automata, tokens: Array) -> Automata:
        hypotheses = tokens * 0 + arrays_of(tokens).arange(tokens.shape[1])
        state.reached = self._after(state, hypotheses, tokens, _local(state, tokens))
        return state

    def proposals(self, state: Automata, step: Step, log_probs: Array) -> Array:
        """See `Constraint`: what missing terms need, and the best end of a pending term's word: (B, W, K + 1)."""
        arrays, reached = arrays_of(log_probs), state.reached
        pending = (arrays.gather(state.ends, reached.node) & (reached.have < state.need[:, None])).any(2)  # (B, W)
        rows = arrays.nonzero(step.of_rows(pending))[0]
        ends = reached.node * 0 + FREE
        if len(rows):
            of_rows = log_probs[rows]
            of_rows[:, self.words.on(arrays).inside] = NONE
            merged(ends)[step.rows[rows]] = of_rows.argmax(1)
        return arrays.concat([self._needed(state), ends[:, :, None]], 2)

    def _needed(self, state: Automata) -> Array:
        """Return the tokens with which a missing term begins or continues, (B, W, K), or FREE."""
        arrays, (batch, width), count = arrays_of(state.tokens), state.reached.node.shape, state.tokens.shape[1]
        shape = batch, width, count
        tokens = arrays.zeros(shape, arrays.int64) + state.tokens[:, None]
        local = arrays.where(tokens < 0, 0, arrays.arange(1, count + 1))
        parents = tokens * 0 + arrays.arange(width)[:, None]
        flat = (each.reshape((batch, width * count)) for each in (parents, tokens, local))
        after = _progress(state, self._after(state, *flat)).reshape(shape)
        return arrays.where(after <= _progress(state, state.reached)[:, :, None], FREE, tokens)

    def progress(self, state: Automata, parents: Array, tokens: Array) -> Array:
        """See `Constraint`: the number of tokens of met terms and of the unfinished term."""
        return _progress(state, self._after(state, parents, tokens, _local(state, tokens)))

    def demands(self, state: Automata) -> Array:
        """See `Constraint`: whether the line has terms."""
        return (state.need > 0).any(1)

    def missing(self, state: Automata) -> Array:
        """See `Constraint`: the number of tokens of missing terms."""
        lacking = state.need.clip(0)[:, None] - _met(state, state.reached)
        return (lacking * state.weight.clip(0)[:, None]).sum(2)

    def _after(self, state: Automata, parents: Array, tokens: Array, local: Array) -> Reached:
        """Return the progress of `parents` (B, C) after `tokens` (B, C); `local` are the tokens' indices in `goto`."""
        arrays = arrays_of(tokens)
        nodes, have = arrays.gather(state.reached.node, parents), arrays.gather(state.reached.have.clip(0), parents)
        have = have + (arrays.gather(state.ends, nodes) & self.words.on(arrays).ended[tokens.clip(0)][:, :, None])
        nodes = state.goto[arrays.arange(len(nodes))[:, None], nodes, local]
        have = arrays.minimum(have + arrays.gather(state.open_ends, nodes), state.need.clip(0)[:, None])
        return Reached(nodes, have)


def _local(state: Automata, tokens: Array) -> Array:
    """Return the index of `tokens` (B, C) in `goto`: 0 for tokens that no term has."""
    arrays = arrays_of(tokens)
    same = arrays.where(tokens < 0, EOS, tokens)[:, :, None] == state.tokens[:, None]  # no term contains an end symbol
    return (same * arrays.arange(1, same.shape[2] + 1)).sum(2)  # a term has each of its tokens once


def _met(state: Automata, reached: Reached) -> Array:
    """Return how often each term is met, pending ones included, (B, C, G)."""
    arrays = arrays_of(reached.node)
    return arrays.minimum(reached.have.clip(0) + arrays.gather(state.ends, reached.node), state.need.clip(0)[:, None])


def _progress(state: Automata, reached: Reached) -> Array:
    """Return the number of tokens of met terms, plus those of the missing term with the most progress, (B, C)."""
    arrays, met, weight = arrays_of(reached.node), _met(state, reached), state.weight.clip(0)[:, None]
    under_way = arrays.minimum(arrays.gather(state.depth, reached.node), weight - 1)
    under_way = arrays.where(met >= state.need.clip(0)[:, None], 0, under_way).clip(0)
    farthest = arrays.amax(under_way, 2) if under_way.shape[2] else 0
    return (met * weight).sum(2) + farthest


def alternatives(text: str) -> list[tuple[str, bool]]:
    """Return the alternatives of a term and whether the word must end after each.

    Alternatives are separated by "|"; "\\|" is the character itself. "*" at the end allows more letters, as in
    inflected forms.
    """
    parts = [part.replace("\\|", "|").strip() for part in ALTERNATIVES.split(text)]
    return [
        (part.removesuffix(OPEN_END), not part.endswith(OPEN_END))
        for part in parts
        if part.removesuffix(OPEN_END).strip()
    ]


def _encoded(text: str, tokenizer: Tokenizer) -> Term:
    """Return a term as token ids; () for a blank term, or a term that the vocabulary cannot write."""
    parts = alternatives(text)
    term = tuple(
        alternative
        for ids, (_, whole) in zip(tokenizer.encode([part for part, _ in parts]), parts, strict=True)
        if ids and UNK not in ids
        for alternative in ([Alternative(tuple(ids), True)] if whole else _going_on(tuple(ids), tokenizer))
    )
    if parts and not term:
        warn_once(f"the term {shown(text)} has characters that the model's vocabulary cannot write: it is left out.")
    return term


def _going_on(ids: tuple[int, ...], tokenizer: Tokenizer) -> list[Alternative]:
    """Return the ways to write words that begin with `ids`: one longer subword may replace the last subwords."""
    table, ways = tokenizer.table, {ids: None}
    for kept in range(len(ids)):
        rest = "".join(table[token] for token in ids[kept:])
        longer = sorted(
            (number for number, piece in enumerate(table) if piece.startswith(rest)),
            key=lambda number: len(table[number]),
        )
        ways.update(dict.fromkeys((*ids[:kept], number) for number in longer[:MOST_ENDINGS]))
    return [Alternative(way, False) for way in ways]


def _ends_word(number: int, piece: str) -> bool:
    """Return whether the word before this token has ended.

    It has if the token begins a word, does not begin with a word character, or is EOS.
    """
    byte = BYTE.fullmatch(piece)
    first = chr(int(byte[1], 16)) if byte else piece[0]
    if byte and not first.isascii():  # it may be part of a letter
        return False
    return number == EOS or not in_word(first)


def _weight(term: Term) -> int:
    return max(len(alternative.tokens) for alternative in term)


def _automaton(terms: Sequence[Term], width: int) -> Automata:
    """Return the automaton of all alternatives of all terms, for one sentence with W = `width` hypotheses."""
    counts = Counter(terms)
    children: Children = [{}]
    paths = [
        (group, alternative.whole, insert(children, alternative.tokens))
        for group, term in enumerate(counts)
        for alternative in term
    ]
    tokens = sorted({token for following in children for token in following})
    local = {token: index for index, token in enumerate(tokens, 1)}
    ends, open_ends = np.zeros((2, len(children), len(counts)), np.bool_)
    depth = np.zeros((len(children), len(counts)), np.int64)
    for group, whole, path in paths:
        depth[path, group] = range(len(path))
        (ends if whole else open_ends)[path[-1], group] = True
    goto = np.zeros((len(children), 1 + len(tokens)), np.int64)
    waiting, suffix = deque([0]), [0] * len(children)
    while waiting:  # breadth first: the suffix of a node is completed before the node
        node = waiting.popleft()
        if node:
            goto[node] = goto[suffix[node]]
            for table in (ends, open_ends, depth):
                np.maximum(table[node], table[suffix[node]], out=table[node])
        for token, child in children[node].items():
            suffix[child] = goto[suffix[node], local[token]] if node else 0
            goto[node, local[token]] = child
            waiting.append(child)
    need, weight = np.array([(count, _weight(term)) for term, count in counts.items()], np.int64).reshape(-1, 2).T
    reached = Reached(np.zeros(width, np.int64), np.zeros((width, len(counts)), np.int64))
    return Automata(np.array(tokens, np.int64), goto, ends, open_ends, depth, need, weight, reached).each(
        lambda table: table[None]
    )
