"""Lexical constraints: words and phrases that an output must contain (Hokamp and Liu 2017; Post and Vilar 2018).

    B sentences   W hypotheses   C candidates   M nodes   K tokens of the terms   G terms

    terms of a line ──▶ encode: token ids of every alternative ──▶ start: one automaton per sentence (Aho and Corasick 1975)
    token ──▶ goto: the node that the output has reached ──▶ which terms end here, how far the others have come

The automaton finds the terms in an output as it grows, no matter whether the model or a proposal wrote them. So a term is
never demanded twice, terms may overlap, and any alternative of a term meets the demand. A term counts once the word ends after
its last token; until then it is pending. A term that the input contains twice must occur twice.

Beam search asks for the `progress` of its candidates and keeps some candidates of each degree of progress (`allocation`). An output ends when no
term is missing.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...console import warn_once
from ...data.tokenizer import BYTE, EOS, UNK, Tokenizer
from ...errors import shown
from ..candidates import best_tokens
from ..constraint import Constraint, Step
from ..search_state import FREE, OfHypotheses, Rows
from ..sentence import Sentence
from .phrases import in_word

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

    node: Tensor  # (B, W) node of the automaton
    have: Tensor  # (B, W, G) number of occurrences of each term, pending ones not counted; at most `need`


@dataclass
class Automata(Rows):
    """One automaton per sentence, and the nodes of its hypotheses. Node 0 is the beginning."""

    tokens: Tensor  # (B, K) the tokens of the terms; padded with -1
    goto: Tensor  # (B, M, 1 + K) index 0: the node after any other token; then the node after each of `tokens`
    ends: Tensor  # (B, M, G) whether a term ends at the node if the word ends there too
    open_ends: Tensor  # (B, M, G) whether a term ends at the node, however the word goes on
    depth: Tensor  # (B, M, G) number of tokens at the end of the output that begin the term
    need: Tensor  # (B, G) how often a term must occur
    weight: Tensor  # (B, G) number of tokens of the longest alternative of a term
    reached: Reached


class Terms(Constraint):
    """The input of a sentence is a list of terms. A term is one text, or several texts separated by "|"; see `alternatives`."""

    name = "terms"
    edits = True
    progresses = True

    def __init__(self, value: Any, tokenizer: Tokenizer) -> None:
        self.ends_word = torch.tensor(
            [_ends_word(number, piece) for number, piece in enumerate(tokenizer.table)]
        )  # (V,)
        self.end_symbol = torch.arange(len(self.ends_word)) == EOS  # (V,)

    def encode(self, values: Sequence[Sequence[str]], tokenizer: Tokenizer, longest: int) -> list[list[Term]]:
        """Return the terms of lines as token ids. Terms that the vocabulary cannot write are left out, with a warning."""
        cached = cache(partial(_encoded, tokenizer=tokenizer))
        return [[term for text in texts if (term := cached(text))] for texts in values]

    def added_length(self, value: Sequence[Term]) -> int:
        """See `Constraint`: terms may make an output longer."""
        return sum(_weight(term) for term in value)

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> Automata:
        """See `Constraint`."""
        self.ends_word, self.end_symbol = self.ends_word.to(device), self.end_symbol.to(device)
        automata = _padded([_automaton(sentence.inputs.get(self.name, ())) for sentence in sentences])
        batch, terms = len(sentences), automata["need"].size(1)
        reached = Reached(
            torch.zeros(batch, width, dtype=torch.long, device=device),
            torch.zeros(batch, width, terms, dtype=torch.long, device=device),
        )
        return Automata(**{name: values.to(device) for name, values in automata.items()}, reached=reached)

    def edit(self, state: Automata, step: Step, log_probs: Tensor) -> None:
        """See `Constraint`: an output that lacks a term does not end.

        Where the end symbol is the most probable token, only tokens that a missing term needs may follow. The model would
        invent any other text.
        """
        lacking = step.of_rows(self.missing(state)) > 0
        late = (lacking & (log_probs[:, EOS] == log_probs.amax(1))).nonzero().flatten()
        if len(late):
            proposals = step.of_rows(self._needed(state)).index_select(0, late)
            values = log_probs[late].gather(1, proposals.clamp_min(0)).masked_fill(proposals < 0, float("-inf"))
            log_probs.index_fill_(0, late, float("-inf"))
            log_probs[late[:, None], proposals.clamp_min(0)] = values  # the clamped ones are PAD
        log_probs[:, EOS].masked_fill_(lacking, float("-inf"))

    def advance(self, state: Automata, tokens: Tensor) -> Automata:
        """See `Constraint`."""
        parents = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        state.reached = self._after(state, parents, tokens, _local(state, tokens))
        return state

    def proposals(self, state: Automata, step: Step, log_probs: Tensor) -> Tensor:
        """See `Constraint`: the tokens that a missing term needs, and the best token that ends the word of a pending term: (B, W, K + 1)."""
        pending = (_at(state.ends, state.reached.node) & (state.reached.have < state.need[:, None])).any(2)  # (B, W)
        rows = step.of_rows(pending).nonzero().flatten()
        ends = torch.full_like(state.reached.node, FREE)
        if len(rows):
            going_on = torch.zeros_like(log_probs[0]).masked_fill_(~self.ends_word | self.end_symbol, float("-inf"))
            ends.view(-1)[step.rows[rows]] = best_tokens(log_probs[rows] + going_on)
        return torch.cat([self._needed(state), ends[:, :, None]], dim=2)

    def _needed(self, state: Automata) -> Tensor:
        """Return the tokens with which a missing term begins or continues, (B, W, K), or FREE."""
        batch, width = state.reached.node.shape
        count = state.tokens.size(1)
        tokens = state.tokens[:, None].expand(batch, width, count)
        local = torch.arange(1, count + 1, device=tokens.device).expand(batch, width, count).masked_fill(tokens < 0, 0)
        parents = torch.arange(width, device=tokens.device)[None, :, None].expand(batch, width, count)
        after = _progress(state, self._after(state, parents.flatten(1), tokens.flatten(1), local.flatten(1))).view(
            batch, width, count
        )
        return tokens.masked_fill(after <= _progress(state, state.reached)[:, :, None], FREE)

    def progress(self, state: Automata, parents: Tensor, tokens: Tensor) -> Tensor:
        """See `Constraint`: the number of tokens of met terms and of the unfinished term."""
        return _progress(state, self._after(state, parents, tokens, _local(state, tokens)))

    def demands(self, state: Automata) -> Tensor:
        """See `Constraint`: whether the line has terms."""
        return (state.need > 0).any(1)

    def missing(self, state: Automata) -> Tensor:
        """See `Constraint`: the number of tokens of missing terms."""
        need = state.need.clamp_min(0)[:, None]
        return ((need - _met(state, state.reached)) * state.weight.clamp_min(0)[:, None]).sum(-1)

    def _after(self, state: Automata, parents: Tensor, tokens: Tensor, local: Tensor) -> Reached:
        """Return the progress of the hypotheses `parents` (B, C) after `tokens` (B, C); `local` are the indices of the tokens in `goto`."""
        nodes = state.reached.node.gather(1, parents)
        terms = state.need.size(1)
        have = state.reached.have.clamp_min(0).gather(1, parents[:, :, None].expand(-1, -1, terms))
        have = have + (_at(state.ends, nodes) & self.ends_word[tokens.clamp_min(0)][:, :, None])
        nodes = state.goto.flatten(1).gather(1, nodes * state.goto.size(2) + local)
        return Reached(nodes, torch.minimum(have + _at(state.open_ends, nodes), state.need.clamp_min(0)[:, None]))


def _at(table: Tensor, nodes: Tensor) -> Tensor:
    """Return the entries of a table at the nodes (B, C): (B, M, G) -> (B, C, G)."""
    return table.gather(1, nodes[:, :, None].expand(-1, -1, table.size(2)))


def _local(state: Automata, tokens: Tensor) -> Tensor:
    """Return the index of `tokens` (B, C) in `goto`: 0 for tokens that no term has."""
    same = (
        tokens.masked_fill(tokens < 0, EOS)[:, :, None] == state.tokens[:, None]
    )  # (B, C, K); no term contains an end symbol
    return torch.where(same.any(2), same.byte().argmax(2) + 1, 0) if same.size(2) else torch.zeros_like(tokens)


def _met(state: Automata, reached: Reached) -> Tensor:
    """Return how often each term is met, pending ones included, (B, C, G)."""
    return torch.minimum(reached.have.clamp_min(0) + _at(state.ends, reached.node), state.need.clamp_min(0)[:, None])


def _progress(state: Automata, reached: Reached) -> Tensor:
    """Return the number of tokens of met terms, plus those of the missing term with the most progress, (B, C)."""
    met, weight = _met(state, reached), state.weight.clamp_min(0)[:, None]
    under_way = torch.minimum(_at(state.depth, reached.node), weight - 1).masked_fill(
        met >= state.need.clamp_min(0)[:, None], 0
    )
    farthest = under_way.clamp_min(0).amax(2) if under_way.size(2) else torch.zeros_like(reached.node)
    return (met * weight).sum(2) + farthest


def alternatives(text: str) -> list[tuple[str, bool]]:
    """Return the alternatives of a term and whether the word must end after each.

    Alternatives are separated by "|"; "\\|" is the character itself. "*" at the end allows more letters, as in inflected forms.
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
    """Return whether the word before this token has ended. It has if the token begins a word, does not begin with a word character, or is EOS."""
    byte = BYTE.fullmatch(piece)
    first = chr(int(byte[1], 16)) if byte else piece[0]
    if byte and not first.isascii():  # it may be part of a letter
        return False
    return number == EOS or not in_word(first)


def _weight(term: Term) -> int:
    return max(len(alternative.tokens) for alternative in term)


class _Automaton(NamedTuple):
    """The tables of a sentence's automaton as lists; see `Automata`."""

    tokens: list[int]
    goto: list[list[int]]
    ends: list[list[bool]]
    open_ends: list[list[bool]]
    depth: list[list[int]]
    need: list[int]
    weight: list[int]


def _automaton(terms: Sequence[Term]) -> _Automaton:
    """Build the automaton of all alternatives of all terms."""
    counts = Counter(terms)
    groups = list(counts)
    tokens = sorted({token for term in groups for alternative in term for token in alternative.tokens})
    local = {token: index for index, token in enumerate(tokens, 1)}
    children: list[dict[int, int]] = [{}]
    ends, open_ends, depth = [[False] * len(groups)], [[False] * len(groups)], [[0] * len(groups)]
    for group, term in enumerate(groups):
        for alternative in term:
            node = 0
            for length, token in enumerate(alternative.tokens, 1):
                if token not in children[node]:
                    children[node][token] = len(children)
                    children.append({})
                    ends.append([False] * len(groups))
                    open_ends.append([False] * len(groups))
                    depth.append([0] * len(groups))
                node = children[node][token]
                depth[node][group] = length
            (ends if alternative.whole else open_ends)[node][group] = True
    goto = [[0] * (1 + len(tokens)) for _ in children]
    waiting, suffix = deque([0]), [0] * len(children)
    while waiting:  # breadth first: the suffix of a node is completed before the node
        node = waiting.popleft()
        if node:
            goto[node] = list(goto[suffix[node]])
            for table in (ends, open_ends):
                table[node] = [a or b for a, b in zip(table[node], table[suffix[node]], strict=True)]
            depth[node] = [max(a, b) for a, b in zip(depth[node], depth[suffix[node]], strict=True)]
        for token, child in children[node].items():
            suffix[child] = goto[suffix[node]][local[token]] if node else 0
            goto[node][local[token]] = child
            waiting.append(child)
    return _Automaton(
        tokens, goto, ends, open_ends, depth, [counts[term] for term in groups], [_weight(term) for term in groups]
    )


def _padded(automata: Sequence[_Automaton]) -> dict[str, Tensor]:
    """Return the tables of all sentences as tensors of one shape, padded with -1 or False."""
    nodes, tokens, terms = (
        max(len(table) for table in tables)
        for tables in zip(*((a.goto, a.tokens, a.need) for a in automata), strict=True)
    )
    shapes = {
        "tokens": (tokens,),
        "goto": (nodes, 1 + tokens),
        "ends": (nodes, terms),
        "open_ends": (nodes, terms),
        "depth": (nodes, terms),
        "need": (terms,),
        "weight": (terms,),
    }
    padded = {}
    for name, shape in shapes.items():
        dtype = torch.bool if "ends" in name else torch.long
        padded[name] = values = torch.full((len(automata), *shape), -1 if dtype == torch.long else 0, dtype=dtype)
        for row, automaton in zip(values, automata, strict=True):
            own = torch.tensor(getattr(automaton, name), dtype=dtype)
            row[tuple(slice(size) for size in own.shape)] = own
    return padded
