"""The libraries of the extra `documents`, imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import UsageError, install_command


def library(name: str) -> Any:
    """Return a module of the extra. Raises UsageError if it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"documents need the package {name.partition('.')[0]!r}, which cannot be imported ({error}). "
            f"Run: {install_command('documents')}"
        ) from None
