"""What a format is: an entry of the registry's FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .items import Item
from .segment import Escape


@dataclass(frozen=True)
class Format:
    """How documents of a format are read and written."""

    read: Callable[[str, str], Iterator[Item]]
    """(document, value of split_sentences) → its items. Raises DocumentError."""
    escape: Escape
    """Characters of a translation → how the format writes them."""
    split_sentences: str
    """The default: a name of `sentences.SPLIT_SENTENCES`."""
