"""The words of a line as the document spells them, and the gaps between them.

    segment, its words ──▶ Source: words (n), gaps with white space and markup (n + 1), untranslatable parts

Markup divides words: `H<sub>2</sub>O` is three words. Together they are one whole, which a translation may copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise

from .items import Kind, Markup
from .segment import Segment, Stay
from .words import Range, Span, words_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of markup in the gap before the source word `at`.

    `before` and `behind`: whether white space is on this side of it. A piece that is an untranslatable part has the
    white space of a word.
    """

    markup: Markup
    at: int
    before: bool
    behind: bool
    stays: bool = False
    """Whether it is an untranslatable part."""


@dataclass(frozen=True)
class Source:
    """The words of a line."""

    segment: Segment
    spans: Sequence[Span]
    wholes: Sequence[Range]
    """The words of each whole, as a range of their indices."""
    stays: Mapping[int, Stay]
    """The words that stand for untranslatable parts."""
    main: Sequence[int]
    """The word that counts for each word: of those that markup divides, the one in most elements, or the longest."""
    spoken: Sequence[bool]
    """Whether each word counts, and has a letter or a digit."""
    markup: Sequence[Sequence[Piece]]
    """The markup in each gap: before each word, and after the last: n + 1."""
    seen: Sequence[str]
    """What the model sees of each gap: a space or nothing."""
    gaps: Sequence[Range]
    """The range of each gap in the document's spelling."""

    def word(self, word: int) -> str:
        """Return a word as the document spells it."""
        if word in self.stays:
            return self.stays[word].raw
        return "".join(self.segment.spelled[self.gaps[word][1] : self.gaps[word + 1][0]])

    def gap(self, gap: int, with_markup: bool = True) -> str:
        """Return a gap as the document spells it."""
        inside = range(*self.gaps[gap])
        return "".join(self.segment.spelled[at] for at in inside if with_markup or at not in self.segment.markup)


def source_of(segment: Segment) -> Source:
    """Return the words of a segment that has a spelling of its own."""
    line, indices = segment.line, segment.indices
    offsets = [bisect_left(indices, index) for index in segment.markup]
    edges = {stay.start for stay in segment.stays} ^ {stay.end for stay in segment.stays}
    spans = words_of(line, [*edges, *offsets, *(stay.end for stay in segment.stays)])
    starts = [start for start, _ in spans]
    firsts = [bisect_left(starts, start) for start, _ in words_of(line, edges)]
    inner = set(range(len(spans))) - set(firsts)
    between = [*pairwise([0, *chain.from_iterable(spans), len(line)])][::2]
    upto = [*indices, len(segment.spelled)]
    gaps = [(indices[start - 1] + 1 if start else 0, upto[end]) for start, end in between]
    markup: list[list[Piece]] = [[] for _ in gaps]
    for gap, group in groupby(zip(segment.markup, offsets, strict=True), key=lambda one: bisect_left(starts, one[1])):
        found, (start, end) = [index for index, _ in group], gaps[gap]
        for place, index in enumerate(found):
            before = gap == 0 or index - start > place or gap in inner  # inside a word it stays with what is behind it
            behind = gap == len(spans) or end - index > len(found) - place
            markup[gap].append(Piece(segment.markup[index], gap, before, behind))
    stays = {bisect_left(starts, stay.start): stay for stay in segment.stays}
    main = _main(line, spans, inner, markup)
    spoken = [main[word] == word and any(map(str.isalnum, line[slice(*span)])) for word, span in enumerate(spans)]
    return Source(
        segment,
        spans,
        list(pairwise([*firsts, len(spans)])),
        stays,
        main,
        spoken,
        markup,
        [line[slice(*gap)] for gap in between],
        gaps,
    )


DEEPER = {Kind.OPEN: 1, Kind.CLOSE: -1, Kind.POINT: 0}


def _main(line: str, spans: Sequence[Span], inner: Set[int], markup: Sequence[Sequence[Piece]]) -> list[int]:
    """Return the word that counts for each word; `inner` are the words that markup divides from the one before."""
    depths = [*accumulate(sum(DEEPER[piece.markup.kind] for piece in pieces) for pieces in markup)]
    firsts = [at for at, (start, _) in enumerate(spans) if at not in inner or not line[start - 1 : start + 1].isalnum()]
    main: list[int] = []
    for first, end in pairwise([*firsts, len(spans)]):
        best = max(range(first, end), key=lambda word: (depths[word], spans[word][1] - spans[word][0]))
        main += [best] * (end - first)
    return main
