"""What several files of commands start from."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared import number_words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text, the recipe numbers.toml and shards."""
    folder = tmp_path_factory.mktemp("numbers")
    number_words(tmp_path_factory, folder)
    return folder
