"""What several files of commands start from."""

from pathlib import Path

import pytest
from shared import number_words
from untrained import write_untrained, write_untrained_parser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text, the recipe numbers.toml and shards."""
    folder = tmp_path_factory.mktemp("numbers")
    number_words(tmp_path_factory, folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of untrained models: `one` and `two` share their vocabulary, `other` has another; two parsers, one without a kind."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, text) in enumerate([("one", 0), ("two", 0), ("other", 1)]):
        write_untrained(folder / name, seed, text, max_extra=4, beam=4, encoder_layers=2)
    write_untrained_parser(folder / "parser", "xx")
    write_untrained_parser(folder / "unnamed", "")
    return folder


@pytest.fixture
def here(workdir: Path, models: Path) -> Path:
    """The working folder of a test, with links to the models."""
    for model in models.iterdir():
        Path(model.name).symlink_to(model)
    return workdir
