"""The markup of a line as trees.

markup by offset, missing untranslatable parts ──▶ pieces
    ──▶ forests: trees of elements and points, divided by tags without partner
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from .items import Kind, Markup, matched
from .source import Piece, Source


@dataclass(slots=True)
class Node:
    """An element with the source words from `first` to before `last`; or a point, which has no words."""

    piece: Piece
    first: int
    last: int
    closing: Piece | None = None
    children: list[Node] = field(default_factory=list)
    needed: int = 0
    """Number of target words without which it or an element in it would be empty."""

    def pieces(self) -> list[Piece]:
        """Return the markup of the whole tree."""
        inner = [piece for child in self.children for piece in child.pieces()]
        return [self.piece, *inner, *([self.closing] if self.closing else [])]


@dataclass(slots=True)
class Forest:
    """Trees, and the tag without partner that follows them."""

    nodes: list[Node] = field(default_factory=list)
    behind: Piece | None = None


def pieces_of(source: Source, missing: Set[int]) -> list[Piece]:
    """Return a line's pieces: its markup, and by their words the untranslatable parts that are `missing`."""
    pieces: list[Piece] = []
    for gap, markup in enumerate(source.markup):
        pieces += markup
        if gap in missing:
            before = gap == 0 or source.seen[gap] == " "
            behind = source.seen[gap + 1] == " " or (before and gap > 0)
            pieces.append(Piece(Markup(source.word(gap), Kind.POINT), gap, before, behind, stays=True))
    return pieces


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
            siblings.append(Node(piece, piece.at, piece.at))
        elif partner is None:
            if parents or (divided and kind is Kind.CLOSE):
                return None
            divided = divided or kind is Kind.OPEN
            forests[-1].behind = piece
            forests.append(Forest())
        elif kind is Kind.OPEN:
            node = Node(piece, piece.at, piece.at)
            siblings.append(node)
            parents.append(node)
            if len(parents) > DEEPEST:
                return None
        else:
            node = parents.pop()
            node.last, node.closing = piece.at, piece
    return forests
