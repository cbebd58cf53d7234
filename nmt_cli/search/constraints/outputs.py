"""A closed list of outputs: each output is one of the given lines (constrained by a trie, as in De Cao et al. 2021).

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   M nodes   E edges

The trie holds the tokens of each entry, as the tokenizer splits it. Node 0 is the root. The edges of a node are its
children, in the order of their tokens: edges first[node] to first[node + 1]. Each hypothesis is at a node, or at
NOWHERE after a prefix with which no entry begins. A child is allowed if an entry below it fits in the longest output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ...data.tokenizer import EOS, UNK, Tokenizer
from ...errors import UsageError, shown
from ..arrays import NONE, Array, Arrays, arrays_of
from ..constraint import Constraint, OnDevices, Step
from ..search_state import OfHypotheses
from ..sentence import Sentence
from .tries import Children, insert

NOWHERE = -1
"""The node of a hypothesis with which no entry begins."""
FAR = 1 << 40
"""The number of tokens up to the end of an entry, if no entry ends below a node."""


@dataclass(frozen=True)
class Trie:
    """A trie of token sequences."""

    first: Array  # (M + 1,) the first edge of each node
    tokens: Array  # (E,)
    children: Array  # (E,)
    keys: Array  # (E,) node * V + token, ascending
    ends: Array  # (M,) whether an entry ends at the node
    shortest: Array  # (M,) tokens from the node to the nearest end of an entry
    size: int  # V

    @classmethod
    def build(cls, entries: Sequence[Sequence[int]], size: int) -> Self:
        """Return the trie of token sequences, for a vocabulary of `size`."""
        nodes: Children = [{}]
        paths = [insert(nodes, entry) for entry in entries]
        ends = np.zeros(len(nodes), np.bool_)
        ends[[path[-1] for path in paths]] = True
        shortest = np.where(ends, 0, FAR)
        for node in reversed(range(len(nodes))):  # children have larger numbers
            for child in nodes[node].values():
                shortest[node] = min(shortest[node], shortest[child] + 1)
        edges = [
            (node, token, child) for node, children in enumerate(nodes) for token, child in sorted(children.items())
        ]
        parents, tokens, children = np.array(edges, np.int64).reshape(-1, 3).T.copy()
        return cls(
            first=np.searchsorted(parents, np.arange(len(nodes) + 1)),
            tokens=tokens,
            children=children,
            keys=parents * size + tokens,
            ends=ends,
            shortest=shortest,
            size=size,
        )

    def edges(self, nodes: Array, remaining: Array) -> tuple[Array, Array]:
        """Return the edges that hypotheses at `nodes` (N,) may take with `remaining` (N,) tokens: for each edge, the
        hypothesis and the index of the edge.
        """
        arrays, known = arrays_of(nodes), nodes.clip(0)
        counts = (self.first[known + 1] - self.first[known]) * (nodes >= 0)
        rows = arrays.repeat(arrays.arange(len(nodes)), counts)
        edges = arrays.arange(len(rows)) - (counts.cumsum(0) - counts - self.first[known])[rows]
        fits = self.shortest[self.children[edges]] < remaining[rows]
        return rows[fits], edges[fits]

    def after(self, nodes: Array, tokens: Array) -> Array:
        """Return the nodes to which `tokens` lead from `nodes`; both have the same shape."""
        arrays, keys = arrays_of(nodes), nodes * self.size + tokens
        edges = arrays.searchsorted(self.keys, keys).clip(None, len(self.keys) - 1)
        return arrays.where((self.keys[edges] == keys) & (nodes >= 0), self.children[edges], NOWHERE)


@dataclass
class Nodes(OfHypotheses):
    """The node of each hypothesis in the trie."""

    nodes: Array  # (B, W)


class Outputs(Constraint):
    """The value is the list of outputs.

    If no entry fits, or no entry begins with the prefix, the output ends at once.
    """

    name = "outputs"
    edits = True
    adjusts = True

    def __init__(self, value: Any, tokenizer: Tokenizer) -> None:
        if not value or isinstance(value, str):
            raise UsageError(
                f"outputs {shown(value)}: expected a list of one or more allowed outputs. Give one per line."
            )
        self.entries = dict(zip(value, tokenizer.encode(list(value)), strict=True))
        for number, entry in enumerate(value, 1):
            tokens = self.entries[entry]
            if not entry.strip() or not tokens:
                raise UsageError(
                    f"allowed output {number} is {shown(entry)}: expected text in each of them. Delete the blank line."
                )
            if UNK in tokens:
                raise UsageError(
                    f"allowed output {number}, {shown(entry)}, has characters that the vocabulary of the model does "
                    "not have, so the model cannot write it. Delete it, or write it with other characters."
                )
        self.trie = OnDevices(Trie.build(list(self.entries.values()), tokenizer.vocab_size))

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer, longest: int) -> list[Any]:
        """See `Constraint`. Raises UsageError for an entry that is longer than the longest output."""
        for entry, tokens in self.entries.items():
            if len(tokens) > longest:
                raise UsageError(
                    f"the allowed output {shown(entry)} has {len(tokens):,} tokens: the model can write "
                    f"{longest:,} at most. Shorten it or delete it."
                )
        return list(values)

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Nodes:
        return Nodes(arrays.zeros((len(sentences), width), arrays.int64))

    def edit(self, state: Nodes, step: Step, log_probs: Array) -> None:
        """See `Constraint`: forbids all but the children, and the end symbol where an entry ends."""
        arrays, nodes = arrays_of(log_probs), step.of_rows(state.nodes)
        trie = self.trie.on(arrays)
        rows, edges = trie.edges(nodes, step.remaining[step.sentences])
        tokens, ends = trie.tokens[edges], arrays.nonzero(trie.ends[nodes.clip(0)] & (nodes >= 0))[0]
        allowed, end = log_probs[rows, tokens], log_probs[ends, EOS]
        log_probs[:] = NONE
        log_probs[rows, tokens] = allowed
        log_probs[ends, EOS] = end

    def advance(self, state: Nodes, tokens: Array) -> Nodes:
        return Nodes(self.trie.on(arrays_of(tokens)).after(state.nodes, tokens))
