"""Linearisation: trees as sequences of symbols, for a model that turns sentences into parses (section 6.3), and back.

    The dog barks .   ◀──▶   (S (NP XX XX )NP (VP XX )VP XX )S

The format is that of Vinyals et al. (2015, "Grammar as a Foreign Language", section 2): depth first, a closing bracket has
its label, and a word is XX whatever its part of speech. The root is not written. Each symbol is one token of the target
vocabulary, which has about twice as many symbols as labels.

The output of a model may not be a tree. `delinearise` repairs it, and always returns a tree of exactly the sentence's words:

- text that is not a symbol is dropped;
- a closing bracket closes the innermost open bracket of its label, and all brackets that were opened after it; without
  such a bracket it is dropped;
- brackets that are open at the end are closed there;
- XX beyond the sentence's words are dropped;
- words beyond the XX are added at the end, to the outermost constituent if it spans all the words before, else beside
  the constituents;
- constituents without words are dropped;
- several outermost constituents are siblings below the root.

A line is well formed if linearising its tree gives it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from .brackets import UNTAGGED, Leaf, Span, Tree, between_spaces

SYMBOL = re.compile(r"(?P<bracket>[()])(?P<label>[^()]+)")


def linearise(tree: Tree) -> str:
    """Return the symbols of a tree, separated by spaces."""
    return " ".join(tree.walk(lambda label: f"({label}", lambda leaf: UNTAGGED, lambda label: f"){label}"))


def delinearise(line: str, words: Sequence[str], tags: Sequence[str] = ()) -> Tree:
    """Return the tree of `words` that a line of symbols describes, repaired as above. `tags`: one part of speech per word, else XX."""
    open_spans: list[tuple[str, int, int]] = []  # label, start, index in `spans`
    open_labels = Counter[str]()  # the labels of `open_spans`, so that a deep tree takes time linear in its depth
    spans: list[Span | None] = []
    count = 0

    def close() -> None:
        label, start, index = open_spans.pop()
        open_labels[label] -= 1
        spans[index] = Span(label, start, count) if start < count else None

    for symbol in between_spaces(line):
        match = SYMBOL.fullmatch(symbol)
        if symbol == UNTAGGED:
            count = min(count + 1, len(words))
        elif match and match["bracket"] == "(":
            open_spans.append((match["label"], count, len(spans)))
            open_labels[match["label"]] += 1
            spans.append(None)
        elif match and open_labels[match["label"]] > 0:
            while open_spans[-1][0] != match["label"]:
                close()
            close()
    while open_spans:
        close()
    kept = [span for span in spans if span]
    if kept and kept[0].start == 0 and kept[0].end == count:
        kept[0] = kept[0]._replace(end=len(words))
    leaves = (Leaf(tag, word) for tag, word in zip(tags or [UNTAGGED] * len(words), words, strict=True))
    return Tree(tuple(leaves), tuple(kept))


def repaired(line: str, tree: Tree) -> bool:
    """Return whether `tree`, of `delinearise`, is a repair of the line."""
    return linearise(tree) != " ".join(between_spaces(line))
