"""Checks that files are lines of text, before they are read as such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def check_text_files(paths: Sequence[Path]) -> None:
    """Raise DataError if a file is not text."""
