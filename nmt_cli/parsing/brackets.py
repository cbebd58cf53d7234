r"""Constituency trees, and their format in treebanks: brackets.

    (TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))
        leaves   DT The · NN dog · VBZ barks · . .
        spans    S 0–4 · NP 0–2 · VP 2–3

A `Tree` is its words, each with a part-of-speech tag, and its constituents as spans of words. So no function recurses,
whatever the depth, and the spans are what evaluation counts. The root (TOP, ROOT, S1 or no label: `( (S …))`) is not a
constituent: the reader removes it and the writer adds it, and it may have several constituents. A tree may span several
lines, and a line may have several trees. Words contain no spaces and no brackets: treebanks write -LRB- for ( and -RRB-
for ), and `plain` and `escaped` convert between the two.

Why not nltk.Tree: it splits words at no-break spaces and U+2028, accepts trees without (TAG WORD) or with empty
brackets, reports no line numbers, needs one string per tree instead of a stream, and fails on trees deeper than 500.

Source of the format: Marcus et al. (1993), the Penn Treebank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeVar

from ..errors import DataError, shown

ROOT = "TOP"
"""The label of the root in the output. EVALB's settings do not count it."""
ROOTS = frozenset({"", "TOP", "ROOT", "S1"})
"""Labels of an outermost bracket that is the root."""
TRACE = "-NONE-"
"""The tag of traces and other empty elements, which have no word in the sentence."""
UNTAGGED = "XX"
"""The tag of a word whose part of speech is not known, and the symbol of a word in a linearised tree."""
TOKEN = re.compile(r"[()]|[^() \t\r\n\f\v]+")
ONE_WORD = "expected (TAG WORD): each word has its own bracket"
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", r"\/": "/", r"\*": "*"}
_ESCAPE = re.compile("|".join(map(re.escape, ESCAPES)))

T = TypeVar("T")


class Leaf(NamedTuple):
    """A word and its part of speech."""

    tag: str
    word: str


class Span(NamedTuple):
    """A constituent: its label, and its words from `start` up to, but not including, `end`. It is never empty."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A tree without its root. `spans` are in pre-order: by start, the longer first; of equal spans the outer first."""

    leaves: tuple[Leaf, ...]
    spans: tuple[Span, ...]

    @property
    def words(self) -> list[str]:
        return [leaf.word for leaf in self.leaves]

    @property
    def tags(self) -> list[str]:
        return [leaf.tag for leaf in self.leaves]

    def without_functions(self) -> Tree:
        """Return the tree with plain labels: NP-SBJ and NP=2 become NP. See `bare`."""
        return Tree(self.leaves, tuple(Span(bare(label), start, end) for label, start, end in self.spans))

    def without_traces(self) -> Tree:
        """Return the tree without empty elements, and without constituents that contain nothing else.

        The result may have no words.
        """
        before = [0, *accumulate(int(tag != TRACE) for tag in self.tags)]  # leaves kept before each position
        spans = (Span(label, before[start], before[end]) for label, start, end in self.spans)
        leaves = (leaf for leaf in self.leaves if leaf.tag != TRACE)
        return Tree(tuple(leaves), tuple(span for span in spans if span.start < span.end))

    def walk(self, opening: Callable[[str], T], leaf: Callable[[Leaf], T], closing: Callable[[str], T]) -> Iterator[T]:
        """Yield the results of the three functions, for each bracket and word from left to right."""
        spans, open_spans = iter(self.spans), list[Span]()
        following = next(spans, None)
        for position, word in enumerate(self.leaves):
            while following and following.start == position:
                open_spans.append(following)
                yield opening(following.label)
                following = next(spans, None)
            yield leaf(word)
            while open_spans and open_spans[-1].end == position + 1:
                yield closing(open_spans.pop().label)

    def __str__(self) -> str:
        """Return the tree in brackets with its root, on one line. Brackets in words are escaped."""
        parts = self.walk(
            lambda label: f" ({label}", lambda leaf: f" ({leaf.tag} {escaped(leaf.word)})", lambda label: ")"
        )
        return f"({ROOT}{''.join(parts)})"


@lru_cache(maxsize=4096)
def bare(label: str) -> str:
    """Return a label without function tags and indices: the part before its first - or =.

    A label that begins with one stays.
    """
    return re.split("[-=]", label, maxsplit=1)[0] or label


def between_spaces(line: str) -> list[str]:
    """Return the words or symbols of a line. A no-break space or U+2028 is a character of a word."""
    return re.findall(r"[^ \t\r\n\f\v]+", line)


def plain(word: str) -> str:
    r"""Return a treebank's word in plain spelling: -LRB- becomes (, \/ becomes /.

    The quotes `` and '' do not change.
    """
    return _ESCAPE.sub(lambda match: ESCAPES[match[0]], word)


def escaped(word: str) -> str:
    """Return a word for brackets: ( and ) become -LRB- and -RRB-."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def read_trees(lines: Iterable[str], where: str, first: int = 1) -> Iterator[Tree]:
    """Yield the trees of a text in brackets, in order. The lines are a stream; only one tree is in memory.

    Raises DataError at the first error. The message names `where` and the line, counted from `first`.
    """
    reader = _Reader()
    for number, line in enumerate(lines, first):
        for token in TOKEN.findall(line):
            if error := reader.read(token, number):
                raise DataError(f"{where}, line {number:,}: {error}.")
            if not reader.open:
                yield Tree(tuple(reader.leaves), tuple(span for span in reader.spans if span))
                reader = _Reader()
    if reader.open:
        raise DataError(
            f"{where}, line {reader.open[0].line:,}: the tree that begins here lacks {len(reader.open)} closing "
            "bracket(s) at the end of the text; close it, or restore the file if it was cut."
        )


@dataclass
class _Open:
    """A bracket that is not closed yet."""

    line: int
    start: int
    """Number of leaves before the bracket."""
    index: int
    """Index of the span of the bracket."""
    label: str = ""
    word: str = ""
    named: bool = False
    """The bracket has its label or first child already: the next token is not a label."""


@dataclass
class _Reader:
    """Reads brackets, labels and words of one tree, which is complete when no bracket is open."""

    open: list[_Open] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    spans: list[Span | None] = field(default_factory=list)

    def read(self, token: str, line: int) -> str:
        """Read a token. Return what is wrong with it, and what to do; "" if nothing is."""
        top = self.open[-1] if self.open else None
        if token == "(":
            if top and top.word:
                return f"a bracket opens after the word {shown(top.word)}; {ONE_WORD}"
            if top and not top.named and len(self.open) > 1:
                return (
                    "a bracket inside a tree has no label; expected (LABEL …); only the outermost bracket may have none"
                )
            if top:
                top.named = True
            self.open.append(_Open(line, len(self.leaves), len(self.spans)))
            self.spans.append(None)
        elif top is None:
            if token == ")":
                return "a bracket closes that was never opened; remove it, or open the tree"
            return f"{shown(token)} is outside of any tree; remove it: comments and headings are no trees"
        elif token == ")":
            return self._close(self.open.pop())
        elif not top.named:
            top.label, top.named = token, True
        elif top.word or len(self.spans) > top.index + 1:
            return f"{shown(token)} is in a bracket that has content already; {ONE_WORD}"
        else:
            top.word = token
        return ""

    def _close(self, top: _Open) -> str:
        if top.word:
            self.leaves.append(Leaf(top.label, top.word))
        elif top.start == len(self.leaves):
            return (
                f"the bracket ({top.label} ) contains no word; expected (TAG WORD), or (LABEL …) around such; empty "
                "elements are (-NONE- *)"
            )
        elif self.open or top.label not in ROOTS:
            self.spans[top.index] = Span(top.label, top.start, len(self.leaves))
        return ""
