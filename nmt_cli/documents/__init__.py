"""Translation of documents: plain text, HTML and XML.

`document` describes the package, docs/documents.md describes its use.
"""

from .document import Document, read_document, read_line
from .segment import Translated

__all__ = ["Document", "Translated", "read_document", "read_line"]
