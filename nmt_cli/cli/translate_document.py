"""`nmt translate --format`: the whole input is one document, and so is the output.

input ──▶ documents.read_document ──▶ lines ──▶ Translator ──▶ Document.write ──▶ output
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DocumentError, UsageError
from ..options import flags
from .translate_output import say_restored

if TYPE_CHECKING:
    from ..interface.options import TranslateKeywords
    from ..interface.translator import Translator
    from .translate_input import LineRules
    from .translate_output import OutputForm

_ENCODING = re.compile(r"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([^"']*)["']""")


def check_document(form: OutputForm, rules: LineRules) -> None:
    """Raise UsageError for options of lines, which --format excludes."""
    given = (
        flags(form, "nbest", "scores", "as_json"),
        flags(rules, "prefix_column", "prefix_file", "terms", "terms_columns"),
    )
    if form.document_format and any(given):
        raise UsageError(
            f"--format {form.document_format} and {', '.join(filter(None, given))} do not go together: a document is "
            "one text, without columns, scores or files for single lines. Leave out one of them."
        )


def translate_document(
    translator: Translator, source: Path | None, name: str, split_sentences: str | None, options: TranslateKeywords
) -> str:
    """Return the translated document, and say what was put back. Raises DocumentError, DataError, UsageError."""
    text, restored = translator.document(_read(source, name), name, split_sentences, options)
    say_restored(restored)
    return text


def _read(path: Path | None, format: str) -> str:
    """Return the whole input as text. Raises DocumentError unless it is UTF-8."""
    from .inputs import open_input

    shown = "standard input" if path is None else repr(str(path))
    with open_input(path) as stream:
        raw = stream.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            f"{shown}, line {line:,}: byte {raw[error.start]:#04x} at offset {error.start:,} is not UTF-8. "
            "Convert it: iconv -f ENCODING -t UTF-8"
        ) from None
    declared = _ENCODING.match(text.removeprefix("\ufeff")) if format == "xml" else None
    if declared and declared[1].lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise DocumentError(
            f"{shown} declares the encoding {declared[1]!r}: expected UTF-8. Convert it to UTF-8, and write "
            'encoding="UTF-8" in its first line.'
        )
    return text
