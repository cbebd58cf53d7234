"""Turns the items of a document into sentences. A run is the sequence of items between two boundaries.

    items ──▶ Run: text (one object character for each untranslatable part), markup by offset ──▶ splitter ──▶ parts

A part is a `Segment` (a sentence to translate, with the markup inside it) or a str that stays unchanged: boundaries,
white space, markup between sentences, text without letters. Tags that enclose whole sentences stay between the
sentences. Only tags that begin or end inside a sentence have to be moved with its words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ..text.placeholders import find_placeholders
from .items import Boundary, Item, Markup, Text, Untranslated, matched
from .segment import OBJECT, Placed, Segment, Stay, stand_ins
from .sentences import Splitter

Part = str | Segment
_CHANGED = re.compile(rf"\s{{2,}}|[^\S ]|(?:(?<![\d.,])\d[\d.,]*+)?{OBJECT}+(?:[\d.,]*\d)?")
"""Parts of the text that have another form in the line: white space and untranslatable parts."""


def parts_of(items: Iterable[Item], split: Splitter) -> list[Part]:
    """Return the parts of a document, in order."""
    parts: list[Part] = []
    run = _Run()
    for item in items:
        if isinstance(item, Boundary):
            parts += run.parts(split)
            parts.append(item.raw)
            run = _Run()
        else:
            run.add(item)
    return [*parts, *run.parts(split)]


class _Run:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._raw: list[str] = []
        """The spelling of each character of the text in the document."""
        self._markup: list[Markup] = []
        self._offsets: list[int] = []
        """Offset of each piece of markup in the text. The offsets do not decrease."""

    def add(self, item: Text | Markup | Untranslated) -> None:
        if isinstance(item, Markup):
            self._markup.append(item)
            self._offsets.append(self._length)
        elif isinstance(item, Untranslated):
            self._add_object(item.raw)
        else:
            self._add_text(item)

    def _add_text(self, text: Text) -> None:
        done = 0
        for start, end in find_placeholders(text.characters):
            self._add_plain(text, done, start)
            self._add_object("".join(text.raw[start:end]))
            done = end
        self._add_plain(text, done, len(text.characters))

    def _add_plain(self, text: Text, start: int, end: int) -> None:
        if start == end:
            return
        self._pieces.append(text.characters[start:end])
        self._raw.extend(text.raw[start:end])
        self._length += end - start

    def _add_object(self, raw: str) -> None:
        self._pieces.append(OBJECT)
        self._raw.append(raw)
        self._length += 1

    def parts(self, split: Splitter) -> Iterator[Part]:
        """Yield the parts of the run."""
        text = "".join(self._pieces)
        partners = matched(self._markup)
        done, used = 0, 0
        sentences = [(start, end) for start, end in split(text) if any(map(str.isalpha, text[start:end]))]
        for number, (start, end) in enumerate(sentences):
            following = sentences[number + 1][0] if number + 1 < len(sentences) else len(text)
            before, behind = done + len(text[done:start].rstrip()), following - len(text[end:following].lstrip())
            first, last = self._inside(partners, used, (before, start, end, behind))
            yield self._verbatim(done, start, used, first)
            yield self._segment(text, start, end, first, last)
            done, used = end, last
        yield self._verbatim(done, len(text), used, len(self._markup))

    def _inside(self, partners: list[int | None], used: int, offsets: tuple[int, int, int, int]) -> tuple[int, int]:
        """Return the range of the markup that belongs to a sentence.

        Markup before index `used` belongs to earlier sentences.

        `offsets` are four offsets: the start of the white space before the sentence, the start of the sentence, its
        end, and the end of the white space after it. In the white space before the sentence, the range begins with the
        first tag that is closed inside the sentence. In the white space after it, the range ends with the last tag that
        was opened inside the range.
        """
        before, start, end, behind = offsets
        first = used
        while first < len(self._markup) and self._offsets[first] <= start:
            partner = partners[first]
            if (
                before <= self._offsets[first]
                and partner is not None
                and start < self._offsets[partner] < end
                and partner > first
            ):
                break
            first += 1
        last = first
        while last < len(self._markup) and self._offsets[last] < end:
            last += 1
        for index in range(last, len(self._markup)):
            if self._offsets[index] > behind:
                break
            partner = partners[index]
            if partner is not None and first <= partner < last:
                last = index + 1
        return first, last

    def _verbatim(self, start: int, end: int, first: int, last: int) -> str:
        """Return the text from `start` to `end` as the document spells it, with the markup from `first` to `last` at
        its offsets.
        """
        pieces = []
        for markup, offset in zip(self._markup[first:last], self._offsets[first:last], strict=True):
            if start < offset <= end:
                pieces += self._raw[start:offset]
                start = offset
            pieces.append(markup.raw)
        return "".join([*pieces, *self._raw[start:end]])

    def _segment(self, text: str, start: int, end: int, first: int, last: int) -> Segment:
        line, stays, changes = self._line(text, start, end)
        placed = []
        for markup, offset in zip(self._markup[first:last], self._offsets[first:last], strict=True):
            offset = min(max(offset, start), end)
            following = bisect_right(changes, (offset, len(line)))
            in_text, in_line = changes[following - 1]
            most = changes[following][1] if following < len(changes) else len(line)
            spaced = start < offset < end and text[offset - 1].isspace() and text[offset].isspace()
            placed.append(Placed(markup, min(in_line + offset - in_text, most), spaced))
        return Segment(line, tuple(placed), tuple(stays))

    def _line(self, text: str, start: int, end: int) -> tuple[str, list[Stay], list[tuple[int, int]]]:
        """Return the line for the model, its untranslatable parts, and the pairs of offsets (in the text, in the line)
        that correspond.

        A run of white space becomes one space. An untranslatable part becomes its stand-in. Parts that touch each
        other, or a number, share one stand-in.
        """
        pieces: list[str] = []
        stays: list[Stay] = []
        changes = [(start, 0)]
        length = 0
        names = stand_ins(text[start:end])
        for change in _CHANGED.finditer(text, start, end):
            plain = text[changes[-1][0] : change.start()]
            pieces.append(plain)
            length += len(plain)
            if OBJECT in change[0]:
                changes.append((change.start(), length))
                word = next(names)
                stays.append(Stay(length, length + len(word), "".join(self._raw[change.start() : change.end()])))
            else:
                word = " "
                changes.append((change.start() + 1, length + 1))
            pieces.append(word)
            length += len(word)
            changes.append((change.end(), length))
        pieces.append(text[changes[-1][0] : end])
        return "".join(pieces), stays, changes
