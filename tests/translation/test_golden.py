"""Every feature of a model, every search and every option gives what tests/fixtures/golden holds.

That was written by torch's operators alone; these tests run what a user runs. tests/support/golden.py has the cases and the command
that writes the files anew. The engine rounds otherwise than torch: a line may have another output where rounding decides.
"""

from pathlib import Path

import golden
import pytest

from nmt_cli import registry
from nmt_cli.interface.options import TranslateKeywords

MOST_TIES = 2
"""Of the lines of a case, at most so many may be near ties."""
NO_OUTPUT = {"calibration", "batch_tokens", "overrides", "scores", "target_language"}
"""Options that no case needs: they choose no output, are a form of another option, or need a model with tags."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.CASES)
def test_outputs(name: str, models: Path) -> None:
    found, expected = golden.outputs(golden.CASES[name], models), golden.read(name)
    wrong = golden.differences(found, expected)
    ties = golden.near_ties(name, models, wrong)
    shown = [
        f"{golden.LINES[one]!r}\n  expected {expected[one]!r}\n  found    {found[one]!r}"
        for one in wrong
        if one not in ties
    ]
    assert not shown, "\n".join(shown)
    assert len(ties) <= MOST_TIES


def test_nothing_is_missing() -> None:
    options = {option for case in golden.CASES.values() for option in case.options}
    assert set(TranslateKeywords.__annotations__) - options == NO_OUTPUT | {"terms"}
    features = {value for features in golden.MODELS.values() for value in features.values()}
    paper = {"layer", "post", "relu", "sinusoidal"}
    for registered in (registry.NORMS, registry.RESIDUALS, registry.ACTIVATIONS, registry.POSITIONS):
        assert set(registered) <= features | paper
    values = {value for case in golden.CASES.values() for value in case.options.values() if isinstance(value, str)}
    for registered in (registry.SEARCHES, registry.LENGTH_PENALTIES, registry.UTILITIES):
        assert set(registered) <= values | {"beam", "gnmt", "chrf", "sample"}
    assert sum(file.stat().st_size for file in golden.FOLDER.iterdir()) <= 10**6
    assert {file.stem for file in golden.FOLDER.glob("*.xz")} == set(golden.CASES)
