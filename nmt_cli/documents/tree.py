"""The markup of a line as trees.

markup by offset, missing untranslatable parts ──▶ pieces
    ──▶ forests: trees of elements and points, divided by tags without partner
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from .items import Kind, Markup, matched
from .segment import Placed, Segment
from .words import Span


class Glue(Enum):
    """The position of a piece of markup between two words."""

    LEFT = "left"
    """Directly after the previous word."""
    RIGHT = "right"
    """Directly before the next word."""
    SPACED = "spaced"
    """Between two spaces."""
    WORD = "word"
    """After a space, like a word."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of markup at a boundary between source words. `at` is the index of the word after it."""

    markup: Markup
    at: int
    glue: Glue


@dataclass(slots=True)
class Node:
    """An element with the source words from `first` to before `last`; or a point, which has no words."""

    piece: Piece
    last: int
    closing: str = ""
    children: list[Node] = field(default_factory=list)
    needed: int = 0
    """Number of target words without which it or an element in it would be empty."""

    @property
    def first(self) -> int:
        return self.piece.at

    def raw(self) -> str:
        """Return the markup of the whole tree."""
        return self.piece.markup.raw + "".join(child.raw() for child in self.children) + self.closing


@dataclass(slots=True)
class Forest:
    """Trees, and the tag without partner that follows them."""

    nodes: list[Node] = field(default_factory=list)
    behind: Piece | None = None


def pieces_of(segment: Segment, source_words: Sequence[Span], missing: Sequence[int]) -> list[Piece]:
    """Return the pieces of a segment: its markup, and the untranslatable parts that the translation lacks
    (`missing`).
    """
    starts = [start for start, _ in source_words]
    line = segment.line
    pieces = [(placed.offset, placed.markup, _glue(line, placed)) for placed in segment.markup]
    for stay in (segment.stays[index] for index in missing):
        first = Glue.SPACED if line[stay.end :].startswith(" ") else Glue.RIGHT
        glue = Glue.WORD if line[: stay.start].endswith(" ") else first if stay.start == 0 else Glue.LEFT
        pieces.append((stay.start, Markup(stay.raw, Kind.POINT), glue))
    pieces.sort(key=lambda piece: piece[0])
    return [Piece(markup, bisect_left(starts, offset), glue) for offset, markup, glue in pieces]


def _glue(line: str, placed: Placed) -> Glue:
    if placed.markup.kind is not Kind.POINT:
        return Glue.RIGHT if placed.markup.kind is Kind.OPEN else Glue.LEFT
    if placed.spaced:
        return Glue.SPACED
    return Glue.RIGHT if placed.offset == 0 or line[placed.offset - 1] == " " else Glue.LEFT


DEEPEST = 100
"""Maximum depth of nested elements in a sentence. If it is exceeded, all markup keeps its order."""


def divided(pieces: Sequence[Piece]) -> list[Forest]:
    """Return forests without trees: every piece divides the line, so that all markup keeps its order."""
    return [*(Forest(behind=piece) for piece in pieces), Forest()]


def forests_of(pieces: Sequence[Piece]) -> list[Forest] | None:
    """Return the trees, divided by the tags whose partner is in another sentence.

    Return None if tags are not nested, or nested too deeply.

    In well-formed markup, tags without partner are outside elements, and the closing ones come before the opening ones.
    """
    partners = matched([piece.markup for piece in pieces])
    forests = [Forest()]
    parents: list[Node] = []
    divided = False
    for piece, partner in zip(pieces, partners, strict=True):
        kind = piece.markup.kind
        siblings = parents[-1].children if parents else forests[-1].nodes
        if kind is Kind.POINT:
            siblings.append(Node(piece, piece.at))
        elif partner is None:
            if parents or (divided and kind is Kind.CLOSE):
                return None
            divided = divided or kind is Kind.OPEN
            forests[-1].behind = piece
            forests.append(Forest())
        elif kind is Kind.OPEN:
            node = Node(piece, piece.at)
            siblings.append(node)
            parents.append(node)
            if len(parents) > DEEPEST:
                return None
        else:
            node = parents.pop()
            node.last, node.closing = piece.at, piece.markup.raw
    return forests
