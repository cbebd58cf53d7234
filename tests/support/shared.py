"""Folders that several test files start from: made once per session, by whichever worker comes first, and copied."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import kills
import pytest


def shared(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return the session's folder `name`, which all workers read; `build` fills it where it is missing."""
    base = factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, aside = session / f"shared-{name}", session / f"partial-{name}"
    with (session / f"{name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(aside, ignore_errors=True)  # of a build that failed
            aside.mkdir()
            build(aside)
            aside.rename(folder)
    return folder


def number_words(factory: pytest.TempPathFactory, folder: Path) -> None:
    """Copy into `folder` what `kills.prepare` makes: text of number words, the recipe numbers.toml, and its shards."""
    shutil.copytree(shared(factory, "number-words", kills.prepare), folder, symlinks=True, dirs_exist_ok=True)
