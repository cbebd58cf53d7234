"""A closed list of outputs: each output is one of the given lines (constrained by a trie, as in De Cao et al. 2021).

    B sentences   W hypotheses per sentence   N open hypotheses   V vocabulary   M nodes   E edges

The trie holds the tokens of each entry, as the tokenizer splits it. Node 0 is the root. The edges of a node are its
children, in the order of their tokens: edges first[node] to first[node + 1]. Each hypothesis is at a node, or at NOWHERE
after a prefix with which no entry begins. A child is allowed if an entry below it fits in the longest output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ...data.tokenizer import EOS, UNK, Tokenizer
from ...errors import UsageError, shown
from ..constraint import Constraint, OnDevices, Step
from ..search_state import OfHypotheses
from ..sentence import Sentence

NOWHERE = -1
"""The node of a hypothesis with which no entry begins."""
FAR = 1 << 40
"""The number of tokens up to the end of an entry, if no entry ends below a node."""


@dataclass(frozen=True)
class Trie:
    """A trie of token sequences."""

    first: Tensor  # (M + 1,) the first edge of each node
    tokens: Tensor  # (E,)
    children: Tensor  # (E,)
    keys: Tensor  # (E,) node * V + token, ascending
    ends: Tensor  # (M,) whether an entry ends at the node
    shortest: Tensor  # (M,) tokens from the node to the nearest end of an entry
    size: int  # V

    @classmethod
    def build(cls, entries: Sequence[Sequence[int]], size: int) -> Self:
        """Return the trie of token sequences, for a vocabulary of `size`."""
        nodes: list[dict[int, int]] = [{}]
        ends = {0: False}
        for entry in entries:
            node = 0
            for token in entry:
                if token not in nodes[node]:
                    nodes[node][token] = len(nodes)
                    nodes.append({})
                node = nodes[node][token]
            ends[node] = True
        shortest = [0] * len(nodes)
        for node in reversed(range(len(nodes))):  # children have larger numbers
            below = (shortest[child] + 1 for child in nodes[node].values())
            shortest[node] = 0 if ends.get(node) else min(below, default=FAR)
        edges = [
            (node, token, child) for node, children in enumerate(nodes) for token, child in sorted(children.items())
        ]
        parents, tokens, children = torch.tensor(edges, dtype=torch.long).view(-1, 3).T.contiguous()
        return cls(
            first=torch.searchsorted(parents, torch.arange(len(nodes) + 1)),
            tokens=tokens,
            children=children,
            keys=parents * size + tokens,
            ends=torch.tensor([ends.get(node, False) for node in range(len(nodes))]),
            shortest=torch.tensor(shortest),
            size=size,
        )

    def to(self, device: torch.device) -> Trie:
        """Return the trie on a device."""
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def edges(self, nodes: Tensor, remaining: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges that hypotheses at `nodes` (N,) may take with `remaining` (N,) tokens: for each edge, the hypothesis and the index of the edge."""
        known = nodes.clamp_min(0)
        counts = (self.first[known + 1] - self.first[known]) * (nodes >= 0)
        rows = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        edges = torch.arange(len(rows), device=nodes.device) - (counts.cumsum(0) - counts - self.first[known])[rows]
        fits = self.shortest[self.children[edges]] < remaining[rows]
        return rows[fits], edges[fits]

    def after(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """Return the nodes to which `tokens` lead from `nodes`; both have the same shape."""
        if not len(self.keys):
            return torch.full_like(nodes, NOWHERE)
        keys = nodes * self.size + tokens
        edges = torch.searchsorted(self.keys, keys).clamp_max(len(self.keys) - 1)
        return torch.where((self.keys[edges] == keys) & (nodes >= 0), self.children[edges], NOWHERE)


@dataclass
class Nodes(OfHypotheses):
    """The node of each hypothesis in the trie."""

    nodes: Tensor  # (B, W)


class Outputs(Constraint):
    """The value is the list of outputs. If no entry fits, or no entry begins with the prefix, the output ends at once."""

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
                    f"allowed output {number}, {shown(entry)}, has characters that the vocabulary of the model does not have, so the model cannot write it. "
                    "Delete it, or write it with other characters."
                )
        self.trie = OnDevices(Trie.build(list(self.entries.values()), tokenizer.vocab_size))

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer, longest: int) -> list[Any]:
        """See `Constraint`. Raises UsageError for an entry that is longer than the longest output."""
        for entry, tokens in self.entries.items():
            if len(tokens) > longest:
                raise UsageError(
                    f"the allowed output {shown(entry)} has {len(tokens):,} tokens: the model can write {longest:,} at most. Shorten it or delete it."
                )
        return list(values)

    def start(self, sentences: Sequence[Sentence], width: int, device: torch.device) -> Nodes:
        """See `Constraint`."""
        return Nodes(torch.zeros(len(sentences), width, dtype=torch.long, device=device))

    def edit(self, state: Nodes, step: Step, log_probs: Tensor) -> None:
        """See `Constraint`: forbids all but the children, and the end symbol where an entry ends."""
        nodes, trie = step.of_rows(state.nodes), self.trie.on(state.nodes.device)
        rows, edges = trie.edges(nodes, step.remaining[step.sentences])
        tokens, ends = trie.tokens[edges], (trie.ends[nodes.clamp_min(0)] & (nodes >= 0)).nonzero()[:, 0]
        allowed, end = log_probs[rows, tokens], log_probs[ends, EOS]
        log_probs.fill_(float("-inf"))
        log_probs[rows, tokens] = allowed
        log_probs[ends, EOS] = end

    def advance(self, state: Nodes, tokens: Tensor) -> Nodes:
        """See `Constraint`."""
        return Nodes(self.trie.on(tokens.device).after(state.nodes, tokens))
