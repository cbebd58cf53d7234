"""What a release needs: places that must agree, and the licences of what pip installs beside the package."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import release

import nmt_cli

ROOT = Path(__file__).parents[2]
PLACES = ("nmt_cli/__init__.py", "CHANGELOG.md", "CITATION.cff")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The places of the project, its unreleased changes released as version 9.8.7."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    edit(tmp_path / PLACES[0], re.escape(nmt_cli.__version__), "9.8.7")
    edit(tmp_path / PLACES[1], r"## \[Unreleased\]", "## [9.8.7] - 2030-01-31")
    edit(tmp_path / PLACES[2], rf"\nversion: {re.escape(nmt_cli.__version__)}", "\nversion: 9.8.7")
    return tmp_path


def edit(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(encoding="utf-8"))
    assert count == 1
    path.write_text(changed, encoding="utf-8")


def test_a_tag_agrees_with_the_version_the_changelog_and_the_citation(root: Path) -> None:
    assert release.disagreements("v9.8.7", root) == []
    assert release.notes("v9.8.7", root).startswith("### Added")
    assert "## " not in re.sub("^###+ ", "", release.notes("v9.8.7", root), flags=re.MULTILINE)


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_was_forgotten_is_named(root: Path, place: str) -> None:
    shutil.copy(ROOT / place, root / place)
    (said,) = release.disagreements("v9.8.7", root)
    assert said.startswith(f"{place} has no line ")
    for tag in ("9.8.7", "v9.8", "latest"):
        assert f"{tag!r} is no tag such as v1.2.3" in release.disagreements(tag, root)


def test_the_command_says_what_is_missing_and_fails() -> None:
    program = [sys.executable, str(ROOT / "tools" / "release.py"), "v0.0.1"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == len(PLACES)


def test_every_package_that_users_install_is_listed_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    wanted = [project["dependencies"], *extras.values()]
    names = {re.split(r"[^\w.-]", item)[0] for needed in wanted for item in needed}
    text = (ROOT / "docs/licenses.md").read_text("utf-8")
    table = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    listed = [name for row in table[1:] for name in row.split(", ")]
    assert sorted(listed) == sorted(names)
