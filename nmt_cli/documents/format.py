"""The type of a document format: an entry of the registry's FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .items import Item
from .segment import Escape


@dataclass(frozen=True)
class Format:
    """The functions that read and write documents of a format."""

    read: Callable[[str, str], Iterator[Item]]
    """(document, value of split_sentences) → items of the document. Raises DocumentError."""
    escape: Escape
    """Characters of a translation → their spelling in the format."""
    split_sentences: str
    """The default value of split_sentences: a name of `sentences.SPLIT_SENTENCES`."""
    endings: tuple[str, ...] = ()
    """Endings of the names of files that the server takes for this format."""
    media_type: str = ""
    """The media type of these files, without the charset."""
