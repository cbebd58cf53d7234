"""Documents: reads a text, provides the lines that a model has to translate, and writes the text with their
translations.

    read_document(text, format, language) ──▶ Document ── lines ──▶ translate ──▶ write(translations) ──▶ text

Who calls whom (each module uses only those before it):

    items                   the output of a reader: text, markup, untranslatable parts, boundaries
    placeholders, messages  URLs, e-mail addresses, `{name}`, `%s`, …; arguments of ICU
    segment                 a sentence: its line and the markup inside it
    words                   words and alignments
    source, target, tree    the words of a line; the words of its translation; the elements of a line
    projection              puts the markup into the translation
    sentences, runs         from items to segments
    text, html, xml         the readers: entries of the registry's FORMATS

Except for the translation itself, everything takes time linear in the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..registry import FORMATS, load
from ..text.lines import well_formed
from ..text.placeholders import find_placeholders
from .format import Format
from .items import Boundary, Text
from .projection import project
from .runs import parts_of
from .segment import HIDDEN, Part, Segment, Translated, Written
from .sentences import splitter, whole


@dataclass(frozen=True)
class Document:
    """A document, as a sequence of sentences and the text between them."""

    parts: Sequence[Part]
    format: Format

    @cached_property
    def segments(self) -> list[Segment]:
        """The sentences of the document, those inside a sentence before it."""
        return _segments(self.parts)

    @property
    def lines(self) -> list[str]:
        r"""The lines that a model has to translate: one sentence each, not blank, without "\n"."""
        return [segment.line for segment in self.segments]

    def write(self, translations: Sequence[Translated]) -> Written:
        """Return the translated document. `translations` has one for each of `lines`, in the same order."""
        return self._written(self.parts, iter(translations))

    def _written(self, parts: Sequence[Part], waiting: Iterator[Translated]) -> Written:
        written = [self._sentence(part, waiting) if isinstance(part, Segment) else Written(part, 0) for part in parts]
        return Written("".join(text for text, _ in written), sum(restored for _, restored in written))

    def _sentence(self, segment: Segment, waiting: Iterator[Translated]) -> Written:
        inner = [self._written(stay.parts, waiting) for stay in segment.stays]
        stays = tuple(replace(stay, raw=text) for stay, (text, _) in zip(segment.stays, inner, strict=True))
        text, restored = project(replace(segment, stays=stays), next(waiting), self.format.escape)
        hidden = sum(markup.name == HIDDEN for markup in segment.markup.values())
        return Written(text, hidden + restored + sum(restored for _, restored in inner))


def _segments(parts: Iterable[Part]) -> list[Segment]:
    segments = [part for part in parts if isinstance(part, Segment)]
    return [one for part in segments for one in (*_segments(p for stay in part.stays for p in stay.parts), part)]


_LINE_ENDS = re.compile(r"((?:\\[nrt]\s*){2,}|(?:(?<=[.!?;…])|(?<=\w\w:))(?:\\[nrt]\s*)+)")
"""Line ends, written as escapes, that divide sentences."""


def read_line(text: str, lacking: Collection[str]) -> Document | None:
    """Return a line as a document; None without untranslatable parts. `lacking`: characters without pieces."""
    found = find_placeholders(text, lacking)
    if not found:
        return None
    pieces = [text] if any(part.texts for part in found) else _LINE_ENDS.split(text)
    items = [Boundary(piece) if index % 2 else Text(piece, piece) for index, piece in enumerate(pieces)]
    plain: Format = load(FORMATS, "text", "format")
    return Document(parts_of(items, whole, plain.escape, lacking), plain)


def read_document(text: str, format: str, language: str = "", *, split_sentences: str | None = None) -> Document:
    """Read a document in a format of the registry's FORMATS: "text", "html" or "xml".

    `language` is the ISO code of the source, for the sentence splitter; unknown languages get common rules.
    `split_sentences`: "1" ends a sentence at punctuation and at line ends, "nonewlines" only at punctuation, "0"
    nowhere. None is the format's default: "1" for text, else "nonewlines". Raises UsageError for an unknown format or a
    missing library, DocumentError for a document that is refused.
    """
    chosen: Format = load(FORMATS, format, "format")
    how = chosen.split_sentences if split_sentences is None else split_sentences
    split = splitter(language, how)
    return Document(parts_of(chosen.read(well_formed(text), how), split, chosen.escape), chosen)
