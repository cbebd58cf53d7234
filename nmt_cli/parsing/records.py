"""The record NAME.trees.json beside the files of a conversion. With it the next conversion may replace these files."""

from __future__ import annotations

from ..records import Record


class Conversion(Record):
    """SHA-256 of the files that `nmt data trees` wrote, by name."""

    files: dict[str, str]
