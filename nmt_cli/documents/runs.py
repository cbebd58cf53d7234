"""Turns the items of a document into sentences. A run is the sequence of items between two boundaries.

    items ──▶ Run: text (one object character for each untranslatable part), markup by offset ──▶ splitter ──▶ parts

A part is a `Segment` (a sentence to translate, with the markup inside it) or a str that stays unchanged: boundaries,
white space, markup between sentences, text without letters. Tags that enclose whole sentences stay between the
sentences. Only tags that begin or end inside a sentence have to be moved with its words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, pairwise

from ..text.placeholders import Found, find_placeholders
from .items import Boundary, Item, Kind, Markup, Text, Untranslated, matched
from .segment import HIDDEN, OBJECT, Escape, Part, Segment, Stay, stand_ins
from .sentences import Splitter, whole

UNSEEN = "\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u2060-\u206f\ufeff"
"""Characters that the model does not read, because no reader sees them: soft hyphens, controls, …"""
BLANK = rf"{UNSEEN}\u200b"
"""Those that it does not read beside white space."""
MOST_DIGITS = 4
"""Most digits that a stand-in needs. From a fifth part on, markup inside it goes behind it."""
_SEEN = re.compile(rf"[^\s{BLANK}](?:.*[^\s{BLANK}])?", re.DOTALL)
_CHANGED = re.compile(
    rf"(?<![{BLANK}])[{BLANK}]++\s[\s{BLANK}]*+|\s[\s{BLANK}]++|[^\S ]|[{UNSEEN}]++"
    rf"|(?:(?<![\d.,])\d[\d.,{UNSEEN}]{{0,60}}+)?{OBJECT}(?:[{UNSEEN}]*+{OBJECT})*+(?:[\d.,{UNSEEN}]*\d)?"
)
"""Parts of the text that have another form in the line: white space, unseen characters, untranslatable parts."""
_TAG = re.compile(r"(?:<|&lt;)(/?)([A-Za-z][\w:.-]*+)(?!.*/(?:>|&gt;)\Z)", re.DOTALL)
"""A tag in plain text, or spelled with entities; without those of empty elements."""


def parts_of(
    items: Iterable[Item], split: Splitter, escape: Escape, lacking: Collection[str] = (), in_message: bool = False
) -> list[Part]:
    """Return the parts of a document, in order. `escape` is that of its format; the others: see `find_placeholders`."""
    parts: list[Part] = []
    run = _Run(escape, lacking, in_message)
    for item in items:
        if isinstance(item, Boundary):
            parts += run.parts(split)
            parts.append(item.raw)
            run = _Run(escape, lacking, in_message)
        else:
            run.add(item)
    return [*parts, *run.parts(split)]


class _Run:
    def __init__(self, escape: Escape, lacking: Collection[str], in_message: bool) -> None:
        self._escape, self._lacking, self._in_message = escape, lacking, in_message
        self._pieces: list[str] = []
        self._length = 0
        self._raw: list[str | list[Part]] = []
        """The spelling of each character of the text in the document, with the sentences inside a message."""
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
        for part in find_placeholders(text.characters, self._lacking, self._in_message):
            self._add_plain(text, done, part.start)
            done, raw = part.end, "".join(text.raw[part.start : part.end])
            beside = text.characters[max(0, part.start - 1) : part.start] + text.characters[done : done + 1]
            if not part.hidden:
                self._add_object(self._message(text, part) if part.texts else raw)
            elif part.start or "".join(self._pieces[-1:] or " ")[-1:].isspace():
                self._add_hidden(raw, beside)
            else:  # it touches the text before a tag
                self._add_plain(text, 0, done)
        self._add_plain(text, done, len(text.characters))

    def _add_hidden(self, raw: str, beside: str) -> None:
        """Add what the model does not read. It divides the words `beside` it, unless it marks the letter of a key."""
        divides = (beside.isalnum() and raw not in ("&", "&amp;", "_")) or raw[:2] in ("\\n", "\\r", "\\t")
        if divides and len(beside) == 2 and beside.split() == [beside]:
            self._add_plain(Text(" ", [""]), 0, 1)
        tag = _TAG.match(raw)
        kind = Kind.POINT if not tag else Kind.CLOSE if tag[1] else Kind.OPEN
        self.add(Markup(raw, kind, tag[2] if tag else HIDDEN))

    def _message(self, text: Text, part: Found) -> list[Part]:
        """Return the parts of a message: its texts are sentences."""
        parts, done = list[Part](), part.start
        for start, end in part.texts:
            inner = Text(text.characters[start:end], text.raw[start:end])
            parts += ["".join(text.raw[done:start]), *parts_of([inner], whole, self._escape, self._lacking, True)]
            done = end
        return [*parts, "".join(text.raw[done : part.end])]

    def _add_plain(self, text: Text, start: int, end: int) -> None:
        if start == end:
            return
        self._pieces.append(text.characters[start:end])
        self._raw.extend(text.raw[start:end])
        self._length += end - start

    def _add_object(self, raw: str | list[Part]) -> None:
        self._pieces.append(OBJECT)
        self._raw.append(raw)
        self._length += 1

    def parts(self, split: Splitter) -> Iterator[Part]:
        """Yield the parts of the run."""
        text = "".join(self._pieces)
        partners = matched(self._markup)
        for index, markup in enumerate(self._markup):
            if partners[index] is None and markup.raw.endswith("/>"):  # in HTML, the start tag of an unknown element
                self._markup[index] = Markup(markup.raw, Kind.POINT)
        done, used = 0, 0
        spans = [span for span in split(text) if any(map(str.isalpha, text[slice(*span)]))]
        sentences = [match.span() for span in spans for match in _SEEN.finditer(text, *span)]
        for number, (start, end) in enumerate(sentences):
            following = sentences[number + 1][0] if number + 1 < len(sentences) else len(text)
            before, behind = done + len(text[done:start].rstrip()), following - len(text[end:following].lstrip())
            first, last = self._inside(partners, used, (before, start, end, behind))
            begin = min([start, *self._offsets[first:last][:1]])
            yield from _joined(self._spelled(done, begin, used, first))
            yield self._segment(text, start, end, first, last)
            done, used = max([end, *self._offsets[first:last][-1:]]), last
        yield from _joined(self._spelled(done, len(text), used, len(self._markup)))

    def _inside(self, partners: list[int | None], used: int, offsets: tuple[int, int, int, int]) -> tuple[int, int]:
        """Return the range of the markup that belongs to a sentence.

        Markup before index `used` belongs to earlier sentences.

        `offsets` are four offsets: the start of the white space before the sentence, the start of the sentence, its
        end, and the end of the white space after it. In the white space before the sentence, the range begins with the
        first tag that is closed inside the sentence. In the white space after it, the range ends with the last tag that
        was opened inside the range.
        """
        before, start, end, behind = offsets
        most = bisect_right(self._offsets, start, used)
        closed = (
            index
            for index in range(bisect_left(self._offsets, before, used), most)
            if (partner := partners[index]) is not None and start < self._offsets[partner] < end
        )
        first = next(closed, most)
        last = bisect_left(self._offsets, end, first)
        for index in range(last, bisect_right(self._offsets, behind, last)):
            partner = partners[index]
            if partner is not None and first <= partner < last:
                last = index + 1
        return first, last

    def _spelled(self, start: int, end: int, first: int, last: int) -> list[str | list[Part]]:
        """Return what the document has from `start` to `end`, with the markup from `first` to `last` at its offsets."""
        pieces = list[str | list[Part]]()
        for markup, offset in zip(self._markup[first:last], self._offsets[first:last], strict=True):
            pieces += self._raw[start:offset]
            start = max(start, offset)
            pieces.append(markup.raw)
        return [*pieces, *self._raw[start:end]]

    def _segment(self, text: str, start: int, end: int, first: int, last: int) -> Segment:
        line, stays, origin = self._line(text, start, end)
        offsets = self._offsets[first:last]
        begin = min([start, *offsets[:1]])
        raw = self._spelled(begin, max([end, *offsets[-1:]]), first, last)
        spelled = [one if isinstance(one, str) else "".join(_texts(one)) for one in raw]
        if not offsets and self._escape(line) == "".join(spelled):
            return Segment(line)
        markup = {offset - begin + place: self._markup[first + place] for place, offset in enumerate(offsets)}
        indices = [offset - begin + bisect_right(offsets, offset) for offset in origin]
        return Segment(line, markup, tuple(stays), spelled, indices)

    def _line(self, text: str, start: int, end: int) -> tuple[str, list[Stay], list[int]]:
        """Return the line for the model, its untranslatable parts, and the offset in the text of each character of it.

        A run of white space becomes one space, unseen characters are left out. An untranslatable part becomes its
        stand-in. Parts that touch each other, or a number, share one: each digit stands for those up to a piece of
        markup, the last one for the rest.
        """
        pieces: list[str] = []
        stays: list[Stay] = []
        origin: list[int] = []
        names = stand_ins(text[start:end])
        done = start
        for change in _CHANGED.finditer(text, start, end):
            first, last = change.span()
            pieces.append(text[done:first])
            origin += range(done, first)
            done = last
            if OBJECT in change[0]:
                tags = self._offsets[bisect_right(self._offsets, first) : bisect_left(self._offsets, last)]
                edges = [first, *list(dict.fromkeys(tags))[: MOST_DIGITS - 1], last]
                pieces.append(next(name for name in names if len(name) >= len(edges) - 1))
                for part, (begin, behind) in enumerate(pairwise(edges)):
                    raw, digits = _joined(self._raw[begin:behind]), 1 if behind < last else len(pieces[-1]) - part
                    stays.append(Stay(len(origin), len(origin) + digits, raw))
                    self._raw[begin:behind] = [raw, *[""] * (behind - begin - 1)]
                    origin += [begin] * digits
            elif any(map(str.isspace, change[0])):
                pieces.append(" ")
                origin.append(first)
        pieces.append(text[done:end])
        return "".join(pieces), stays, [*origin, *range(done, end)]


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the parts that are no sentences."""
    return (part for part in parts if isinstance(part, str))


def _joined(pieces: Iterable[str | list[Part]]) -> list[Part]:
    """Return the parts that pieces are, texts in a row as one."""
    parts = (part for piece in pieces for part in ([piece] if isinstance(piece, str) else piece))
    runs = groupby(parts, lambda part: isinstance(part, str))
    return [part for is_text, run in runs for part in (["".join(map(str, run))] if is_text else run)]
