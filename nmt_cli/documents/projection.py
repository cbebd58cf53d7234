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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

from .intervals import Spoken, covering, granted, outside, without
from .items import Kind, matched
from .segment import Escape, Segment, Translated, Written
from .source import Piece, Source, source_of
from .target import Target, target_of
from .tree import Node, divided, forests_of, pieces_of
from .words import Range

FOREIGN = 0.5
"""Weight of words that are aligned to words outside the element."""
UNALIGNED = 0.01
"""Score that is subtracted for a word without alignment."""
KEYS = ("&", "_")
"""The signs before the letter that chooses an entry of a menu."""
Group = Sequence[Piece]
"""A tag, a point, or an element that has no words in the translation."""
MOST_WORK = 200_000
"""Limit for the number of pieces of markup times the number of words of a line and its translation.

Above the limit all markup keeps its order, which takes linear time."""


def project(segment: Segment, translation: Translated, escape: Escape) -> Written:
    """Return the translation in the document's format, with the markup and the untranslatable parts of its segment."""
    if not segment.aligned:
        return Written(escape(translation.text.strip()), translation.restored)
    source = source_of(segment)
    target = target_of(source, translation, escape)
    pieces = pieces_of(source, target.missing)
    spoken = Spoken([flag and word not in target.missing for word, flag in enumerate(source.spoken)])
    cheap = len(pieces) * (len(source.spans) + len(target.words)) <= MOST_WORK
    forests = (forests_of(pieces) if cheap else None) or divided(pieces)
    cuts = [forest.behind for forest in forests if forest.behind]
    trees = _Trees(target, spoken, source)
    needed = [trees.measure(forest.nodes) for forest in forests]
    ends = _separating(target, cuts) if cheap else _in_proportion(target, cuts)
    boundaries = [0, *_covered(target, spoken, cuts, ends, needed), len(target.words)]
    at = [0, *(cut.at for cut in cuts), len(source.spans)]
    for index, forest in enumerate(forests):
        trees.place(forest.nodes, (boundaries[index], boundaries[index + 1]), (at[index], at[index + 1]))
        if forest.behind:
            trees.placed[boundaries[index + 1]].append([forest.behind])
    return Written(_text(source, target, trees.placed, escape), translation.restored + target.restored)


def _text(source: Source, target: Target, placed: Sequence[Sequence[Group]], escape: Escape) -> str:
    """Return the text of a translation with the markup that is placed in each of its gaps.

    A gap that has the markup of a source gap, or is between the translations of two source words in a row, and that has
    a space where the model saw one, is spelled as in the document.
    """
    words = [-1, *target.sources(), len(source.spans)]
    around = source.gap(0, with_markup=False), source.gap(len(source.spans), with_markup=False)
    out: list[str] = []
    for gap, groups in enumerate(placed):
        pieces = [*chain.from_iterable(groups)]
        between = words[gap + 1] if words[gap + 1] == words[gap] + 1 else -1
        first, last = gap == 0, gap == len(target.words)
        same = pieces[0].at if pieces else between
        ends = (first, last) == (same == 0, same == len(source.spans))
        if same >= 0 and source.markup[same] == pieces and ends and source.seen[same] == target.gaps[gap]:
            out.append(source.gap(same))
        else:
            inner = 0 < between < len(source.spans) and source.seen[between] == target.gaps[gap]
            blank = source.gap(between, with_markup=False) if inner else escape(target.gaps[gap])
            out += [around[0] * first, *_glued(groups, blank, first, last), around[1] * last]
        out += target.words[gap : gap + 1]
    return "".join(out)


def _glued(groups: Sequence[Group], blank: str, first: bool, last: bool) -> Iterator[str]:
    """Yield the markup of a gap and its white space, which is on the outer side of tags.

    What has white space on both sides in the document, such as an icon, has it here. `first` and `last`: whether the
    gap is at the start or the end of the sentence.
    """
    done = first
    for group in groups:
        had_words = group[0].at < group[-1].at and not any(piece.stays for piece in group)
        tag = had_words or (len(group) == 1 and group[0].markup.kind is not Kind.POINT)
        before = group[0].markup.kind is Kind.OPEN if tag else group[0].before
        behind = not tag and group[-1].behind
        if before and not done:
            yield blank or " " * behind
            done = True
        yield from (piece.markup.raw for piece in group)
        if behind and done and not last:
            yield blank or " " * first
    yield "" if done else blank


def _covered(
    target: Target, spoken: Spoken, cuts: Sequence[Piece], boundaries: Sequence[int], needed: Sequence[int]
) -> list[int]:
    """Return the target boundaries of tags that divide the line, moved so that no element is empty.

    `needed` are the words that the trees before each cut need, and those after the last.
    """
    gaps = list(pairwise([0, *(cut.at for cut in cuts), len(spoken.flags)]))
    pairs = list(enumerate(zip(cuts, matched([cut.markup for cut in cuts]), strict=True)))
    elements = [
        (0 if partner is None else partner + 1, index + 1)
        for index, (cut, partner) in pairs
        if cut.markup.kind is Kind.CLOSE
    ] + [(index + 1, len(gaps)) for index, (cut, partner) in pairs if cut.markup.kind is Kind.OPEN and partner is None]
    needed = list(map(max, needed, covering(elements, [spoken.count(*gap) > 0 for gap in gaps])))
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
    """Places trees of elements on target words."""

    def __init__(self, target: Target, needs: Spoken, source: Source) -> None:
        self._words, self._links, self._needs = target.words, target.links, needs
        self._main, self._inner = source.main, Spoken([main != word for word, main in enumerate(source.main)])
        self._spoken = Spoken(target.spoken)
        self.placed: list[list[Group]] = [[] for _ in target.gaps]
        """The markup in each gap of the translation."""
        self._aligned: dict[int, list[int]] = {}
        """Source word → the target words in which it has the largest share."""
        for word, source_word in enumerate(target.sources()):
            self._aligned.setdefault(source_word, []).append(word)

    def measure(self, nodes: Sequence[Node]) -> int:
        """Set the number of words that each node needs, and return their sum."""
        for node in nodes:
            node.needed = max(self.measure(node.children), int(self._needs.count(node.first, node.last) > 0))
        return sum(node.needed for node in nodes)

    def place(self, nodes: Sequence[Node], inside: Range, source: Range) -> None:
        """Place siblings; `inside` are the parent's target words, `source` the parent's source words."""
        intervals = self._intervals(nodes, inside, source)
        taken = list(intervals.values())
        placed = []
        for index, node in enumerate(nodes):
            at = intervals.get(index) or (outside(self._anchor(node, inside, source), taken),) * 2
            placed.append((*at, index, node))
        for start, end, _, node in sorted(placed, key=lambda item: item[:3]):
            if start == end:
                self.placed[start].append(node.pieces())
            elif node.closing:
                self.placed[start].append([node.piece])
                self.place(node.children, (start, end), (node.first, node.last))
                self.placed[end].append([node.closing])

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
        for index, (start, end) in [*intervals.items()]:
            low = next((first for first, last in free if last == start), start)
            high = next((last for first, last in free if first == end), end)
            while self._spoken.count(start, end) < needed[index] and (low < start or end < high):
                start, end = (start, end + 1) if end < high else (start - 1, end)
            free = without(without(free, (start, intervals[index][0])), (intervals[index][1], end))
            intervals[index] = start, end
        for index in sorted(lacking, key=lambda index: not nodes[index].needed):
            node = nodes[index]
            own = node.last > node.first and not node.children and not self._inner.count(node.first, node.last)
            if node.needed or own:  # others have no text of their own
                at = self._anchor(node, inside, source)
                intervals[index] = self._nearest(node, free, at) or (outside(at, [*intervals.values()]),) * 2
                free = without(free, intervals[index])
        return self._with_enough(intervals, needed, inside)

    def _nearest(self, node: Node, free: Sequence[Range], at: int) -> Range | None:
        """Return the free word that is nearest to a boundary, for an element without aligned words.

        An element that had punctuation only gets punctuation or nothing. Of two words as near, one without links comes
        first.
        """

        def order(word: int) -> tuple[int, bool, bool]:
            away = word - at if word >= at else at - 1 - word
            return away, bool(self._links[word]), word < at

        words = (word for start, end in free for word in range(start, end))
        word = min((word for word in words if self._spoken.flags[word] == bool(node.needed)), key=order, default=None)
        return None if word is None else (word, word + 1)

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

        It is beside the translation of the word that the element divides, or of the nearest source word that is
        aligned.
        """
        if node.first <= source[0]:
            return inside[0]
        if node.first >= source[1]:
            return inside[1]
        for word, boundary in self._near(node, source[1] - source[0]):
            if source[0] <= word < source[1]:
                aligned = self._aligned.get(word) or self._aligned.get(self._main[word], [])
                if targets := [target for target in aligned if inside[0] <= target < inside[1]]:
                    at = targets[-1] + 1 if boundary else targets[0]
                    return self._led(at, inside) if node.piece.markup.raw in KEYS else at
        return inside[0]

    def _led(self, at: int, inside: Range) -> int:
        """Return the boundary, or an earlier one if no word with a letter or digit is behind it."""
        alnum = (any(map(str.isalnum, word)) for word in self._words[at : inside[1]])
        before = range(inside[0], at) if not any(alnum) else ()
        return max((word for word in before if any(map(str.isalnum, self._words[word]))), default=at)

    def _near(self, node: Node, most: int) -> Iterator[Range]:
        """Yield source words beside a node, the nearest first, each with 0 if the node is before it, 1 if behind."""
        if node.first < node.last and not node.first <= (main := self._main[node.first]) < node.last:
            yield main, int(main < node.first)
        pieces = node.pieces()
        leftward = node.first == node.last and (pieces[-1].behind or not pieces[0].before)
        for distance in range(most):
            sides = (node.first - 1 - distance, 1), (node.last + distance, 0)
            yield from sides if leftward else sides[::-1]
