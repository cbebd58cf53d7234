"""A table of docs/ that lists the values of an option has all of them, and no other."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from nmt_cli.engine.library import ARM, X86
from nmt_cli.evaluation.outputs import CHECKS
from nmt_cli.evaluation.significance import TESTS
from nmt_cli.recipe import recipe_names
from nmt_cli.registry import DATASETS, IMPORTERS, LENGTH_PENALTIES, SEARCHES

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the documents are not here")


TABLES: dict[tuple[str, str, int], Collection[str]] = {
    ("data", "name", 0): DATASETS,
    ("engine", "library", 0): [*X86, *ARM, "portable"],
    ("models", "SOURCE", 1): IMPORTERS,
    ("recipes", "recipe", 0): recipe_names(),
    ("scoring", "fault", 0): CHECKS,
    ("scoring", "`--significance`", 0): TESTS,
    ("search", "`--length-penalty`", 0): LENGTH_PENALTIES,
    ("search", "`--search`", 0): SEARCHES,
}
"""Page, head and column of a table → its values."""


def test_a_table_of_values_has_all_of_them() -> None:
    for (page, head, column), values in TABLES.items():
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        table = re.search(rf"^\| {re.escape(head)} \|.*\n\|[-:|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
        assert table, (page, head)
        rows = [row.split("|")[column + 1] for row in table[1].splitlines()]
        listed = {name for row in rows for name in re.findall("`([^`]+)`", row)}
        families = tuple(name.removesuffix("…") for name in listed if name.endswith("…"))
        named = {name for name in listed if not name.endswith("…")}
        assert {name for name in values if not name.startswith(families)} == named, (page, head)


def test_every_promise_names_a_test_that_exists() -> None:
    text = (DOCS / "reliability.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and ".py`" in row.split("|")[-2]]
    assert len(rows) > 50
    named = {name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row.split("|")[-2])}
    assert [name for name in sorted(named) if not (DOCS.parent / "tests" / name).is_file()] == []
