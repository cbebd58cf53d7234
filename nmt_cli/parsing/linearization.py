"""Trees as sequences of symbols, for a model that turns sentences into parses (section 6.3), and back.

    The dog barks .   ◀──▶   (S (NP XX XX )NP (VP XX )VP XX )S

As in Vinyals et al. (2015, "Grammar as a Foreign Language", section 2): depth first, a closing bracket carries its
label, a word is XX whatever its part of speech. The root is not written. Each symbol is one piece of the target
vocabulary; there are about twice as many symbols as labels.

What a model writes need not be a tree. `delinearise` repairs it, and always returns a tree of just the sentence's words:

- what is no symbol is dropped;
- a closing bracket closes the innermost open one of its label, and with it all that was opened since; if none is open
  it is dropped;
- brackets open at the end are closed there;
- XX beyond the sentence's words are dropped;
- words beyond the XX are added at the end, to the outermost constituent if one spans all the words before, else beside
  what there is;
- constituents without words are dropped;
- several outermost constituents stand side by side below the root.

A line is well formed if linearising its tree gives it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from .brackets import UNTAGGED, Leaf, Span, Tree, between_spaces

SYMBOL = re.compile(r"(?P<bracket>[()])(?P<label>[^()]+)")


def linearise(tree: Tree) -> str:
    """The symbols of a tree, separated by spaces."""
    return " ".join(tree.walk(lambda label: f"({label}", lambda leaf: UNTAGGED, lambda label: f"){label}"))


def delinearise(line: str, words: Sequence[str], tags: Sequence[str] = ()) -> Tree:
    """The tree of `words` that a line of symbols tells of, repaired as above. `tags`: a part of speech a word, else XX."""
    open_spans: list[tuple[str, int, int]] = []  # label, start, place in `spans`
    open_labels = Counter[str]()  # the labels of `open_spans`, so that a deep tree takes time linear in its depth
    spans: list[Span | None] = []
    count = 0

    def close() -> None:
        label, start, place = open_spans.pop()
        open_labels[label] -= 1
        spans[place] = Span(label, start, count) if start < count else None

    for symbol in between_spaces(line):
        found = SYMBOL.fullmatch(symbol)
        if symbol == UNTAGGED:
            count = min(count + 1, len(words))
        elif found and found["bracket"] == "(":
            open_spans.append((found["label"], count, len(spans)))
            open_labels[found["label"]] += 1
            spans.append(None)
        elif found and open_labels[found["label"]] > 0:
            while open_spans[-1][0] != found["label"]:
                close()
            close()
    while open_spans:
        close()
    built = [span for span in spans if span]
    if built and built[0].start == 0 and built[0].end == count:
        built[0] = built[0]._replace(end=len(words))
    leaves = (Leaf(tag, word) for tag, word in zip(tags or [UNTAGGED] * len(words), words, strict=True))
    return Tree(tuple(leaves), tuple(built))


def repaired(line: str, tree: Tree) -> bool:
    """Whether a line had to be repaired to become its tree."""
    return linearise(tree) != " ".join(between_spaces(line))
