"""Puts the markup of a line around the words of its translation (tag projection).

    markup ──▶ trees of elements, each with its source words
        ──▶ for each element an interval of target words ──▶ text with tags

The translation has the same trees as the line: an element keeps its parent, and only the order of siblings may change.
So the result is as well-formed as the line. Parents are placed before their children, siblings with fewer words before
those with more. The score of a target word is the share of the element's own source words (see `words.links`), minus
FOREIGN times the share of other source words. An element gets the interval with the largest sum of scores. So one wrong
alignment far away does not stretch the interval.

No element that has words in the line is empty in the translation if that has at least as many words as there are such
elements. An element without aligned words gets the nearest word that no other one has: nearest to the translation of
the words beside it. Where all words have an element, an interval gives one away (`intervals.Spoken.spread`).

A tag whose partner is in another sentence divides the line: the words before `</b>` are inside the element. If the
elements of a line are not nested (`<b><i></b></i>`), or if it has very many, every tag divides the line. Then all
markup keeps its order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from .intervals import Range, Spoken, covering, granted, outside, without
from .items import Kind, matched
from .segment import Escape, Segment, Translated
from .target import Target, parts_of_words, target_of
from .tree import Glue, Node, Piece, divided, forests_of, pieces_of
from .words import words_of

FOREIGN = 0.5
"""Weight of words that are aligned to words outside the element."""
UNALIGNED = 0.01
"""Score that is subtracted for a word without alignment."""
MOST_WORK = 200_000
"""Limit for the number of pieces of markup times the number of words of a line and its translation.

Above the limit all markup keeps its order, which takes linear time."""


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
    source = _source(segment, source_words, target)
    cheap = len(pieces) * (len(source_words) + len(target.words)) <= MOST_WORK
    forests = (forests_of(pieces) if cheap else None) or divided(pieces)
    cuts = [forest.behind for forest in forests if forest.behind]
    writer = _Writer(target)
    trees = _Trees(target, writer, source)
    needed = [trees.measure(forest.nodes) for forest in forests]
    ends = _separating(target, cuts) if cheap else _in_proportion(target, cuts)
    boundaries = [0, *_covered(target, source, cuts, ends, needed), len(target.words)]
    at = [0, *(cut.at for cut in cuts), len(source.flags)]
    for index, forest in enumerate(forests):
        trees.write(forest.nodes, (boundaries[index], boundaries[index + 1]), (at[index], at[index + 1]))
        writer.words(boundaries[index + 1])
        if forest.behind:
            writer.markup(forest.behind.markup.raw, forest.behind.glue)
    return writer.text()


def _source(segment: Segment, source_words: Sequence[Range], target: Target) -> Spoken:
    """Return the words of the line, without the untranslatable parts that are inserted like tags."""
    parts = parts_of_words(segment, source_words)
    return Spoken(
        [
            parts.get(word) not in target.missing and any(map(str.isalnum, segment.line[start:end]))
            for word, (start, end) in enumerate(source_words)
        ]
    )


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

    def text(self) -> str:
        """Write the remaining words, and return the whole text."""
        self.words(len(self._target.words))
        self._gap()
        return "".join(self._out)


def _covered(
    target: Target, source: Spoken, cuts: Sequence[Piece], boundaries: Sequence[int], needed: Sequence[int]
) -> list[int]:
    """Return the target boundaries of tags that divide the line, moved so that no element is empty.

    `needed` are the words that the trees before each cut need, and those after the last.
    """
    gaps = list(pairwise([0, *(cut.at for cut in cuts), len(source.flags)]))
    pairs = list(enumerate(zip(cuts, matched([cut.markup for cut in cuts]), strict=True)))
    elements = [
        (0 if partner is None else partner + 1, index + 1)
        for index, (cut, partner) in pairs
        if cut.markup.kind is Kind.CLOSE
    ] + [(index + 1, len(gaps)) for index, (cut, partner) in pairs if cut.markup.kind is Kind.OPEN and partner is None]
    needed = list(map(max, needed, covering(elements, [source.count(*gap) > 0 for gap in gaps])))
    boundaries = [0, *boundaries, len(target.words)]
    return Spoken(target.spoken).spread(boundaries, granted(needed, sum(target.spoken)))[1:-1]


def _separating(target: Target, cuts: Sequence[Piece]) -> list[int]:
    """Return for each cut the target boundary that best separates the words before it from the words after it.

    The boundaries do not decrease.
    """
    boundaries: list[int] = []
    for cut in cuts:
        best = start = boundaries[-1] if boundaries else 0
        sum_, largest = 0.0, 0.0
        for word in range(start, len(target.words)):
            sum_ += sum(share if source < cut.at else -share for source, share in target.links[word].items())
            if sum_ > largest or (sum_ == largest and cut.markup.kind is Kind.OPEN):
                best, largest = word + 1, sum_
        boundaries.append(best)
    return boundaries


def _in_proportion(target: Target, cuts: Sequence[Piece]) -> list[int]:
    """Return for each cut the target boundary after as many words as are aligned before it, in linear time."""
    aligned, last = [], -1
    for shares in target.links:
        last = max(shares, key=shares.__getitem__) if shares else last
        aligned.append(last)
    aligned.sort()
    return [bisect_left(aligned, cut.at) for cut in cuts]


class _Trees:
    """Places trees of elements on target words and writes them."""

    def __init__(self, target: Target, writer: _Writer, source: Spoken) -> None:
        self._links, self._writer, self._source = target.links, writer, source
        self._spoken = Spoken(target.spoken)
        self._aligned: dict[int, list[int]] = {}
        """Source word → the target words in which it has the largest share."""
        for word, shares in enumerate(target.links):
            if shares:
                self._aligned.setdefault(max(shares, key=shares.__getitem__), []).append(word)

    def measure(self, nodes: Sequence[Node]) -> int:
        """Set the number of words that each node needs, and return their sum."""
        for node in nodes:
            node.needed = max(self.measure(node.children), int(self._source.count(node.first, node.last) > 0))
        return sum(node.needed for node in nodes)

    def write(self, nodes: Sequence[Node], inside: Range, source: Range) -> None:
        """Write siblings with the words around them; `inside` are the parent's target words, `source` the parent's
        source words.
        """
        intervals = self._intervals(nodes, inside, source)
        taken = list(intervals.values())
        placed = []
        for index, node in enumerate(nodes):
            at = intervals.get(index) or (outside(self._anchor(node, inside, source), taken),) * 2
            placed.append((*at, index, node))
        for start, end, _, node in sorted(placed, key=lambda item: item[:3]):
            self._writer.words(start)
            if start == end:
                self._writer.markup(node.raw(), node.piece.glue)
                continue
            self._writer.markup(node.piece.markup.raw, Glue.RIGHT)
            self.write(node.children, (start, end), (node.first, node.last))
            self._writer.words(end)
            self._writer.markup(node.closing, Glue.LEFT)

    def _intervals(self, nodes: Sequence[Node], inside: Range, source: Range) -> dict[int, Range]:
        """Return the target words of siblings by their indices, without points and elements that get no word."""
        free = [inside]
        intervals: dict[int, Range] = {}
        for index in sorted(range(len(nodes)), key=lambda index: nodes[index].last - nodes[index].first):
            interval = self._interval(nodes[index], free) if nodes[index].last > nodes[index].first else None
            if interval:
                free = without(free, interval)
                intervals[index] = interval
        lacking = [index for index in range(len(nodes)) if index not in intervals]
        order = [*intervals, *lacking]
        words = granted([nodes[index].needed for index in order], self._spoken.count(*inside))
        needed = dict(zip(order, words, strict=True))
        for index, interval in intervals.items():
            if self._spoken.count(*interval) < needed[index]:
                others = [other for other in intervals.values() if other != interval]
                start = max((end for _, end in others if end <= interval[0]), default=inside[0])
                end = min((start for start, _ in others if start >= interval[1]), default=inside[1])
                intervals[index] = self._spoken.grown(interval, (start, end), needed[index])
        free = [inside]
        for interval in intervals.values():
            free = without(free, interval)
        for index in sorted(lacking, key=lambda index: not nodes[index].needed):
            node = nodes[index]
            if node.needed or (node.last > node.first and not node.children):  # others have no text of their own
                at = self._anchor(node, inside, source)
                intervals[index] = self._nearest(node, free, at) or (outside(at, [*intervals.values()]),) * 2
                free = without(free, intervals[index])
        return self._with_enough(intervals, needed, inside)

    def _nearest(self, node: Node, free: Sequence[Range], at: int) -> Range | None:
        """Return the free word that is nearest to a boundary, for an element without aligned words.

        An element that had punctuation only gets punctuation, if there is any. Of two words as near, one without links
        comes first.
        """

        def order(word: int) -> tuple[bool, int, bool, bool]:
            away = word - at if word >= at else at - 1 - word
            return self._spoken.flags[word] != bool(node.needed), away, bool(self._links[word]), word < at

        word = min((word for start, end in free for word in range(start, end)), key=order, default=None)
        if word is None:
            return None
        around = next(range_ for range_ in free if range_[0] <= word < range_[1])
        return self._spoken.grown((word, word + 1), around, node.needed)

    def _with_enough(
        self, intervals: Mapping[int, Range], needed: Mapping[int, int], inside: Range
    ) -> dict[int, Range]:
        """Return the intervals of siblings, moved so that each has the words that it needs."""
        order = sorted(intervals, key=lambda index: (*intervals[index], index))
        moved = self._spoken.spread(
            [inside[0], *chain.from_iterable(intervals[index] for index in order), inside[1]],
            [0, *chain.from_iterable((needed[index], 0) for index in order)],
        )
        return dict(zip(order, zip(moved[1:-1:2], moved[2:-1:2], strict=True), strict=True))

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
