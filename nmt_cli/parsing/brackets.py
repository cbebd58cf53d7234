r"""Constituency trees, and the brackets that treebanks write them in.

    (TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))
        leaves   DT The · NN dog · VBZ barks · . .
        spans    S 0–4 · NP 0–2 · VP 2–3

A `Tree` is its words, each with a part-of-speech tag, and its constituents as spans of words. So nothing recurses, and
what evaluation counts stands there at once. The root (TOP, ROOT, S1 or no label: `( (S …))`) is no constituent: it is
taken off in reading and put on in writing, and several constituents may stand side by side below it. Trees may go over
several lines and several may stand on one. Words hold no spaces and no brackets: treebanks write -LRB- for ( and -RRB-
for ), and `plain` and `escaped` turn one into the other.

Source of the format: Marcus et al. (1993), the Penn Treebank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from ..errors import DataError

ROOT = "TOP"
"""What the root is called in writing; EVALB's settings leave this label out of the count."""
ROOTS = frozenset({"", "TOP", "ROOT", "S1"})
"""What the outermost bracket may be called to count as the root."""
TRACE = "-NONE-"
"""The tag of what is not there to read: traces and other empty elements."""
UNTAGGED = "XX"
"""The tag of a word whose part of speech is not known; also what stands for a word in a linearised tree."""
TOKEN = re.compile(r"[()]|[^() \t\r\n\f\v]+")
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", r"\/": "/", r"\*": "*"}
_ESCAPE = re.compile("|".join(map(re.escape, ESCAPES)))

T = TypeVar("T")


class Leaf(NamedTuple):
    """A word and its part of speech."""

    tag: str
    word: str


class Span(NamedTuple):
    """A constituent: its label, and its words from `start` to before `end`; never empty."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A tree without its root. `spans` are in pre-order: by start, the longer first; of equal ones the outer first."""

    leaves: tuple[Leaf, ...]
    spans: tuple[Span, ...]

    @property
    def words(self) -> list[str]:
        return [leaf.word for leaf in self.leaves]

    @property
    def tags(self) -> list[str]:
        return [leaf.tag for leaf in self.leaves]

    def without_functions(self) -> Tree:
        """Labels alone: NP-SBJ and NP=2 become NP. See `bare`."""
        return Tree(self.leaves, tuple(Span(bare(label), start, end) for label, start, end in self.spans))

    def without_traces(self) -> Tree:
        """Without empty elements, and without constituents that hold nothing else. There may be nothing left."""
        return self.keeping([tag != TRACE for tag in self.tags])

    def keeping(self, kept: Sequence[bool]) -> Tree:
        """Without the leaves whose mark is False, and without constituents that lose all of theirs."""
        before = [0]  # leaves kept before each place
        for keep in kept:
            before.append(before[-1] + keep)
        spans = (Span(label, before[start], before[end]) for label, start, end in self.spans)
        leaves = (leaf for leaf, keep in zip(self.leaves, kept, strict=True) if keep)
        return Tree(tuple(leaves), tuple(span for span in spans if span.start < span.end))

    def walk(self, opened: Callable[[str], T], leaf: Callable[[Leaf], T], closed: Callable[[str], T]) -> Iterator[T]:
        """What the three functions make of each bracket and word, from left to right."""
        spans, open_spans = iter(self.spans), list[Span]()
        following = next(spans, None)
        for place, word in enumerate(self.leaves):
            while following and following.start == place:
                open_spans.append(following)
                yield opened(following.label)
                following = next(spans, None)
            yield leaf(word)
            while open_spans and open_spans[-1].end == place + 1:
                yield closed(open_spans.pop().label)

    def __str__(self) -> str:
        """The tree in brackets, root put on, on one line; brackets in words are escaped."""
        parts = self.walk(lambda label: f" ({label}", lambda leaf: f" ({leaf.tag} {escaped(leaf.word)})", lambda label: ")")
        return f"({ROOT}{''.join(parts)})"


@lru_cache(maxsize=4096)
def bare(label: str) -> str:
    """A label without function tags and indices: what stands before its first - or =; one that begins with them stays."""
    return re.split("[-=]", label, maxsplit=1)[0] or label


def between_spaces(line: str) -> list[str]:
    """The words or symbols of a line; a no-break space or U+2028 is a character of a word."""
    return re.findall(r"[^ \t\r\n\f\v]+", line)


def plain(word: str) -> str:
    r"""A treebank's word as people type it: -LRB- becomes (, \/ becomes /. Quotes, `` and '', stay as they are."""
    return _ESCAPE.sub(lambda found: ESCAPES[found[0]], word)


def escaped(word: str) -> str:
    """A word as it may stand in brackets: ( and ) become -LRB- and -RRB-."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def read_trees(lines: Iterable[str], where: str, first: int = 1) -> Iterator[Tree]:
    """The trees of a text in brackets, in order. Raises DataError at the first fault; it names `where` and the line,
    counted from `first`."""
    reader = _Reader(where)
    for number, line in enumerate(lines, first):
        for token in TOKEN.findall(line):
            tree = reader.take(token, number)
            if tree is not None:
                yield tree
    reader.end()


@dataclass
class _Open:
    """A bracket that is not closed yet."""

    line: int
    start: int
    """Leaves before it."""
    place: int
    """Where its span goes."""
    label: str = ""
    word: str = ""
    named: bool = False
    """Something has followed the bracket: what comes next is no label."""


@dataclass
class _Reader:
    """Takes brackets, labels and words one by one; gives a tree when its last bracket closes."""

    where: str
    open: list[_Open] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    spans: list[Span | None] = field(default_factory=list)

    def take(self, token: str, line: int) -> Tree | None:
        if token == "(":
            self._begin(line)
        elif token == ")":
            return self._close(line)
        elif not self.open:
            raise self._fault(line, f"{short(token)} stands outside of any tree", "remove it: comments and headings are no trees")
        else:
            self._name(token, line)
        return None

    def end(self) -> None:
        if self.open:
            first = self.open[0].line
            raise self._fault(first, f"the tree that begins here lacks {len(self.open)} closing bracket(s) at the end of the text", "close it, or restore the file if it was cut")

    def _begin(self, line: int) -> None:
        if self.open:
            above = self.open[-1]
            if above.word:
                raise self._fault(line, f"a bracket opens behind the word {short(above.word)}", "expected (TAG WORD): a word stands in a bracket of its own")
            if not above.named and len(self.open) > 1:
                raise self._fault(line, "a bracket inside a tree has no label", "expected (LABEL …); only the outermost bracket may do without")
            above.named = True
        self.open.append(_Open(line, len(self.leaves), len(self.spans)))
        self.spans.append(None)

    def _name(self, token: str, line: int) -> None:
        """A label, or behind one a word."""
        top = self.open[-1]
        if not top.named:
            top.label, top.named = token, True
        elif top.word or len(self.spans) > top.place + 1:
            raise self._fault(line, f"{short(token)} stands in a bracket that holds something already", "expected (TAG WORD): a word stands in a bracket of its own")
        else:
            top.word = token

    def _close(self, line: int) -> Tree | None:
        if not self.open:
            raise self._fault(line, "a bracket closes that was never opened", "remove it, or open the tree")
        top = self.open.pop()
        if top.word:
            self.leaves.append(Leaf(top.label, top.word))
        elif top.start == len(self.leaves):
            raise self._fault(line, f"the bracket ({top.label} ) holds no word", "expected (TAG WORD), or (LABEL …) around such; empty elements are (-NONE- *)")
        elif self.open or top.label not in ROOTS:
            self.spans[top.place] = Span(top.label, top.start, len(self.leaves))
        if self.open:
            return None
        tree = Tree(tuple(self.leaves), tuple(span for span in self.spans if span))
        self.leaves, self.spans = [], []
        return tree

    def _fault(self, line: int, what: str, way_out: str) -> DataError:
        return DataError(f"{self.where}, line {line:,}: {what}; {way_out}.")


def short(token: str) -> str:
    """Return a token as messages quote it: its first 40 characters."""
    return repr(token[:40] + "…" * (len(token) > 40))
