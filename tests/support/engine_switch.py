"""Translates with torch's operators alone, where the engine is, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nmt_cli.engine import library


def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and those that it starts, find no engine."""
    monkeypatch.setenv(library.VARIABLE, library.OFF)
    monkeypatch.setattr(library, "_found", lambda: (None, "this test does without the engine"))


def with_and_without_engine(code: str) -> list[str]:
    """Return what Python `code` prints with the engine, and what it prints with NMT_ENGINE=off; each in a process of its own."""
    printed = []
    for switch in ({}, {library.VARIABLE: library.OFF}):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **switch}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    return printed
