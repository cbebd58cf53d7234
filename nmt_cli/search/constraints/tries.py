"""Tries of token sequences: node n has the children children[n], by token; node 0 is the root."""

from __future__ import annotations

from collections.abc import Sequence

Children = list[dict[int, int]]


def insert(children: Children, tokens: Sequence[int]) -> list[int]:
    """Add a sequence to a trie, which is at first [{}]. Return the nodes on its way, the root first.

    A child has a larger number than its parent.
    """
    path = [0]
    for token in tokens:
        node = children[path[-1]].setdefault(token, len(children))
        if node == len(children):
            children.append({})
        path.append(node)
    return path
