"""Translation of documents with a loaded model: text, HTML or XML in, the same format out (docs/documents.md).

text ──▶ documents.read_document ──▶ lines ──▶ translate, a callable ──▶ Document.write ──▶ text
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import console
from ..errors import UsageError

if TYPE_CHECKING:
    from ..documents.segment import Written
    from ..translation.line import Line, Translation

REFUSED = ("nbest", "confidence", "calibration", "alignment", "terms")
"""Options of lines, which a document cannot have."""


def check_document_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option of `translate` that documents do not have."""
    for name in REFUSED:
        if options.get(name) not in (None, False, 1):
            raise UsageError(
                f"{name}={options[name]!r} and a document do not go together: it has one translation, and no scores. "
                "Leave it out, or translate lines."
            )


def translate_document(
    translate: Callable[[Sequence[Line]], Iterable[Sequence[Translation]]],
    text: str,
    format: str,
    language: str,
    split_sentences: str | None,
) -> Written:
    """Return the translated document, and show the progress: see `Translator.translate_document`.

    `translate` yields translations of lines in lists; `language` is that of the text.
    """
    from ..documents import read_document
    from ..translation.line import Line

    document = read_document(text, format, language, split_sentences=split_sentences)
    translations: list[Translation] = []
    lines = [Line(segment.line, aligned=segment.aligned) for segment in document.segments]
    with console.progress(len(lines), "translating", " sentences") as bar:
        for window in translate(lines) if lines else ():
            translations += window
            bar.update(len(window))
    return document.write(translations)
