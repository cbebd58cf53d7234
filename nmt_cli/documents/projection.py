"""Puts the markup of a line around the words of its translation (tag projection).

    markup ──▶ trees of elements, each with its source words
        ──▶ for each element an interval of target words ──▶ text with tags

The translation has the same trees as the line: an element keeps its parent, and only the order of siblings may change.
So the result is as well-formed as the line. Parents are placed before their children, siblings with fewer words before
those with more. The score of a target word is the share of the element's own source words (see `words.links`), minus
FOREIGN times the share of other source words. An element gets the interval with the largest sum of scores. So one wrong
alignment far away does not stretch the interval.

A tag whose partner is in another sentence divides the line: the words before `</b>` are inside the element. If the
elements of a line are not nested (`<b><i></b></i>`), or if it has very many, every tag divides the line. Then all
markup keeps its order.
"""

from __future__ import annotations

from collections.abc import Sequence

from .items import Kind
from .segment import Escape, Segment, Translated
from .target import Target, target_of
from .tree import Forest, Glue, Node, Piece, forests_of, pieces_of
from .words import words_of

FOREIGN = 0.5
"""Weight of words that are aligned to words outside the element."""
UNALIGNED = 0.01
"""Score that is subtracted for a word without alignment."""
MOST_WORK = 200_000
"""Limit for the number of pieces of markup times the number of words of a line and its translation.

Above the limit all markup keeps its order, which takes linear time."""

Range = tuple[int, int]
"""Index of the first word, and the index after the last word."""


def project(segment: Segment, translation: Translated, escape: Escape) -> str:
    """Return the translation in the format of the document, with the markup and the untranslatable parts of its
    segment.
    """
    if not segment.aligned:
        return escape(translation.text.strip())
    edges = [edge for stay in segment.stays for edge in (stay.start, stay.end)]
    source_words = words_of(segment.line, [*(placed.offset for placed in segment.markup), *edges])
    target = target_of(segment, source_words, translation, escape)
    pieces = pieces_of(segment, source_words, target.missing)
    writer = _Writer(target)
    if len(pieces) * (len(source_words) + len(target.words)) > MOST_WORK:
        writer.write_in_order(pieces, _nearest(target, pieces))
    elif (forests := forests_of(pieces)) is None:
        writer.write_in_order(pieces, _boundaries(target, pieces))
    else:
        _write_forests(writer, target, forests, len(source_words))
    return writer.text()


class _Writer:
    """Writes words, the gaps between them, and markup, from left to right."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._out: list[str] = []
        self._word = 0
        """Index of the next word to write."""
        self._in_gap = False
        """Whether the gap before the next word has been written."""

    def words(self, end: int) -> None:
        """Write the words before `end`."""
        while self._word < end:
            self._gap()
            self._out.append(self._target.words[self._word])
            self._word += 1
            self._in_gap = False

    def _gap(self) -> None:
        if not self._in_gap:
            self._out.append(self._target.gaps[self._word])
            self._in_gap = True

    def markup(self, raw: str, glue: Glue) -> None:
        """Write markup before the next word."""
        if glue is Glue.LEFT:
            self._out.append(raw)
        elif glue is Glue.WORD and self._word and not self._in_gap:
            self._out.append(" " + raw)
        elif glue is Glue.RIGHT:
            self._gap()
            self._out.append(raw)
        else:
            inner = 0 < self._word < len(self._target.words)
            self._gap()
            before = "" if inner or not self._word else " "
            after = self._target.gaps[self._word] if inner else " " if not self._word else ""
            self._out.append(before + raw + after)

    def write_in_order(self, pieces: Sequence[Piece], boundaries: Sequence[int]) -> None:
        for piece, boundary in zip(pieces, boundaries, strict=True):
            self.words(boundary)
            self.markup(piece.markup.raw, piece.glue)

    def text(self) -> str:
        """Write the remaining words, and return the whole text."""
        self.words(len(self._target.words))
        self._gap()
        return "".join(self._out)


def _write_forests(writer: _Writer, target: Target, forests: Sequence[Forest], source_words: int) -> None:
    """Write all trees, the tags between them, and their words."""
    cuts = [forest.behind for forest in forests if forest.behind is not None]
    boundaries = [0, *_boundaries(target, cuts), len(target.words)]
    at = [0, *(cut.at for cut in cuts), source_words]
    trees = _Trees(target, writer)
    for index, forest in enumerate(forests):
        trees.write(forest.nodes, (boundaries[index], boundaries[index + 1]), (at[index], at[index + 1]))
        writer.words(boundaries[index + 1])
        if forest.behind:
            writer.markup(forest.behind.markup.raw, forest.behind.glue)


def _boundaries(target: Target, pieces: Sequence[Piece]) -> list[int]:
    """Return for each piece the target boundary that best separates the words before the piece from the words after it.

    The boundaries do not decrease.
    """
    boundaries: list[int] = []
    for piece in pieces:
        best = start = boundaries[-1] if boundaries else 0
        sum_, largest = 0.0, 0.0
        for word in range(start, len(target.words)):
            sum_ += sum(share if source < piece.at else -share for source, share in target.links[word].items())
            if sum_ > largest or (sum_ == largest and piece.markup.kind is Kind.OPEN):
                best, largest = word + 1, sum_
        boundaries.append(best)
    return boundaries


def _nearest(target: Target, pieces: Sequence[Piece]) -> list[int]:
    """Return for each piece the target boundary after the words that are aligned before it, in linear time.

    The boundaries do not decrease.
    """
    behind: dict[int, int] = {}
    for word, shares in enumerate(target.links):
        if shares:
            behind[max(shares, key=shares.__getitem__)] = word + 1
    boundaries: list[int] = []
    source, last = 0, 0
    for piece in pieces:
        while source < piece.at:
            last = max(last, behind.get(source, 0))
            source += 1
        boundaries.append(last)
    return boundaries


class _Trees:
    """Places trees of elements on target words and writes them."""

    def __init__(self, target: Target, writer: _Writer) -> None:
        self._links, self._writer = target.links, writer
        self._aligned: dict[int, list[int]] = {}
        """Source word → the target words in which it has the largest share."""
        for word, shares in enumerate(target.links):
            if shares:
                self._aligned.setdefault(max(shares, key=shares.__getitem__), []).append(word)

    def write(self, nodes: Sequence[Node], inside: Range, source: Range) -> None:
        """Write siblings with the words around them; `inside` are the parent's target words, `source` the parent's
        source words.
        """
        free = [inside]
        placed: list[tuple[int, int, int, Node]] = []
        order = {id(node): index for index, node in enumerate(nodes)}
        for node in sorted(nodes, key=lambda node: node.last - node.first):
            interval = self._interval(node, free) if node.last > node.first else None
            if interval:
                free = _without(free, interval)
                placed.append((*interval, order[id(node)], node))
        intervals = [(start, end) for start, end, _, _ in placed]
        chosen = {id(node) for *_, node in placed}
        for node in nodes:
            if id(node) not in chosen:
                at = _outside(self._anchor(node, inside, source), intervals)
                placed.append((at, at, order[id(node)], node))
        for start, end, _, node in sorted(placed, key=lambda item: item[:3]):
            self._writer.words(start)
            if start == end:
                self._writer.markup(node.raw(), node.piece.glue)
                continue
            self._writer.markup(node.piece.markup.raw, Glue.RIGHT)
            self.write(node.children, (start, end), (node.first, node.last))
            self._writer.words(end)
            self._writer.markup(node.closing, Glue.LEFT)

    def _interval(self, node: Node, free: Sequence[Range]) -> Range | None:
        """Return the target words of an element; None if none of its words is in the free ranges."""
        best: tuple[float, Range] | None = None
        single: tuple[float, Range] | None = None
        for start, end in free:
            sum_, first = 0.0, start
            for word in range(start, end):
                own = sum(share for source, share in self._links[word].items() if node.first <= source < node.last)
                foreign = sum(self._links[word].values()) - own
                if sum_ <= 0:
                    sum_, first = 0.0, word
                sum_ += own - FOREIGN * foreign if self._links[word] else -UNALIGNED
                if own and (best is None or sum_ > best[0]):
                    best = sum_, (first, word + 1)
                if own and (single is None or own > single[0]):
                    single = own, (word, word + 1)
        return best[1] if best and best[0] > 0 else single[1] if single else None

    def _anchor(self, node: Node, inside: Range, source: Range) -> int:
        """Return the target boundary for an element without target words or for a point.

        It is beside the translation of the nearest source word that is aligned.
        """
        if node.first <= source[0]:
            return inside[0]
        if node.first >= source[1]:
            return inside[1]
        left_first = node.piece.glue in (Glue.LEFT, Glue.WORD)
        for distance in range(source[1] - source[0]):
            before, behind = node.first - 1 - distance, node.last + distance
            for word, boundary in [(before, 1), (behind, 0)] if left_first else [(behind, 0), (before, 1)]:
                targets = (
                    [target for target in self._aligned.get(word, ()) if inside[0] <= target < inside[1]]
                    if source[0] <= word < source[1]
                    else []
                )
                if targets:
                    return targets[-1] + 1 if boundary else targets[0]
        return inside[0]


def _without(free: Sequence[Range], interval: Range) -> list[Range]:
    """Return the free ranges without `interval`, which is inside one of them."""
    result = []
    for start, end in free:
        if start <= interval[0] and interval[1] <= end:
            result += [part for part in ((start, interval[0]), (interval[1], end)) if part[0] < part[1]]
        else:
            result.append((start, end))
    return result


def _outside(boundary: int, intervals: Sequence[Range]) -> int:
    """Return the boundary. If it is inside an interval, return the nearest end of that interval."""
    for start, end in intervals:
        if start < boundary < end:
            return start if boundary - start < end - boundary else end
    return boundary
