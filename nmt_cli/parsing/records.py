"""NAME.trees.json, beside the files of a conversion: which they are, so that the next conversion may replace them."""

from __future__ import annotations

from ..records import Record


class Conversion(Record):
    """SHA-256 of the files that `nmt data trees` wrote, by name."""

    files: dict[str, str]
