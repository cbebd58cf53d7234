"""Documents: reads a text, provides the lines that a model has to translate, and writes the text with their
translations.

    read_document(text, format, language) ──▶ Document ── lines ──▶ translate ──▶ write(translations) ──▶ text

Who calls whom (each module uses only those before it):

    items                   the output of a reader: text, markup, untranslatable parts, boundaries
    placeholders            URLs, e-mail addresses, `{name}`, `%s`, …
    segment                 a sentence: its line and the markup inside it
    words, target, tree     words and alignments; the words of a translation; the elements of a line
    projection              puts the markup into the translation
    sentences, runs         from items to segments
    text, html, xml         the readers: entries of the registry's FORMATS

Except for the translation itself, everything takes time linear in the size of the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..registry import FORMATS, load
from ..text.lines import well_formed
from .format import Format
from .projection import project
from .runs import Part, parts_of
from .segment import Segment, Translated
from .sentences import splitter


@dataclass(frozen=True)
class Document:
    """A document, as a sequence of sentences and the text between them."""

    parts: Sequence[Part]
    format: Format

    @cached_property
    def segments(self) -> list[Segment]:
        """The sentences of the document."""
        return [part for part in self.parts if isinstance(part, Segment)]

    @property
    def lines(self) -> list[str]:
        r"""The lines that a model has to translate: one sentence each, not blank, without "\n"."""
        return [segment.line for segment in self.segments]

    @property
    def aligned(self) -> bool:
        """Whether `write` needs the alignment of any line."""
        return any(segment.aligned for segment in self.segments)

    def write(self, translations: Sequence[Translated]) -> str:
        """Return the translated document. `translations` has one for each of `lines`, in the same order."""
        waiting = iter(translations)
        return "".join(
            project(part, next(waiting), self.format.escape) if isinstance(part, Segment) else part
            for part in self.parts
        )


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
    return Document(parts_of(chosen.read(well_formed(text), how), split), chosen)
