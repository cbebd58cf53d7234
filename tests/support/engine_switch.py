"""Translates with torch's operators alone, where the engine is, too."""

import pytest

from nmt_cli.engine import library


def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and those that it starts, find no engine."""
    monkeypatch.setenv(library.VARIABLE, library.OFF)
    monkeypatch.setattr(library, "_found", lambda: (None, "this test does without the engine"))
