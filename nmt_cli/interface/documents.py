"""Translation of documents with a loaded model: text, HTML or XML in, the same format out (docs/documents.md).

text ──▶ documents.read_document ──▶ lines ──▶ Translator.translate ──▶ Document.write ──▶ text
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import console
from ..errors import UsageError

if TYPE_CHECKING:
    from ..translation.translation import Translation
    from .translator import Translator

REFUSED = {
    "nbest": "a document has one translation",
    "confidence": "a document has no room for confidence",
    "calibration": "a document has no room for confidence",
    "alignment": "a document takes alignments where it needs them",
    "terms": "a document is not given line by line",
}
"""Options of `translate` that a document cannot have, and why."""


def check_document_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option of `translate` that documents do not have."""
    for name, reason in REFUSED.items():
        if options.get(name) not in (None, False, 1):
            raise UsageError(
                f"{name}={options[name]!r} and a document do not go together: {reason}. Leave it out, or "
                "translate lines."
            )


def translate_document(
    translator: Translator, text: str, format: str, split_sentences: str | None, options: Mapping[str, Any]
) -> str:
    """Return the translated document, and show the progress: see `Translator.translate_document`."""
    from ..documents import read_document

    check_document_options(options)
    document = read_document(text, format, translator.source_language, split_sentences=split_sentences)
    line_options: Any = {**options, "alignment": document.aligned}
    translations: list[Translation] = []
    lacking = Counter[str]()
    with console.progress(len(document.lines), "translating", " sentences") as bar:
        for window in translator.windows(document.lines, line_options, lacking) if document.lines else ():
            translations += window
            bar.update(len(window))
    translator.stored.tags.warn(lacking)
    return document.write(translations)
