"""Two models, and a server of both for the tests that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

for package in ("fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart", "py3langid", "httpx", "sentencex", "defusedxml"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'nmt-cli[serve,dev]'")

from served import Served, running  # noqa: E402
from untrained import write_untrained  # noqa: E402

import nmt_cli as nmt  # noqa: E402


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
    with running(model, other) as one:
        yield one


@pytest.fixture(scope="session")
def translator(model: Path) -> Iterator[nmt.Translator]:
    """The first model in this process."""
    with nmt.load(model, device="cpu", devices=1, precision="fp32") as one:
        yield one
