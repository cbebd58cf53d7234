"""Two models, and a server of both for the tests that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from untrained import write_untrained

import nmt_cli as nmt

if TYPE_CHECKING:
    from served import Served


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English to German."""
    return write_untrained(tmp_path_factory.mktemp("models") / "en-de", max_extra=10)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German to Brazilian Portuguese."""
    return write_untrained(tmp_path_factory.mktemp("models") / "de-pt", seed=1, max_extra=10, pair=("de", "pt-BR"))


@pytest.fixture(scope="session")
def served(model: Path, other: Path) -> Iterator[Served]:
    from served import running  # skips without the extra

    with running(model, other) as one:
        yield one


@pytest.fixture(scope="session")
def translator(model: Path) -> Iterator[nmt.Translator]:
    """The first model in this process."""
    with nmt.load(model, device="cpu", devices=1, precision="fp32") as one:
        yield one
