"""The paper's table 3 in docs/recipes.md: our recipes, their heads and their parameters, counted by hand."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from nmt_cli.device.hardware import Hardware
from nmt_cli.recipe import load_recipe, recipe_folder, recipe_names
from nmt_cli.training.estimate import estimate


class Row(NamedTuple):
    block: str
    recipe: str
    what: str
    perplexity: str
    bleu: str
    millions: str
    ours: str


TEXT = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
ROWS = [
    Row(*row) for row in re.findall(r"^\| (base|big|[A-E]) " + r"\| `?([^|`]+)`? " * 6 + r"\|$", TEXT, re.MULTILINE)
]


def test_every_row_of_the_table_is_there_once() -> None:
    assert Counter(row.block for row in ROWS) == {"base": 1, "A": 4, "B": 2, "C": 7, "D": 4, "E": 1, "big": 1}
    assert {row.recipe for row in ROWS if row.recipe.startswith("table3")} == {
        name for name in recipe_names() if name.startswith("table3")
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.block not in ("base", "big")], ids=lambda row: row.recipe)
def test_a_row_differs_from_base_in_what_its_name_says_alone(row: Row) -> None:
    base, own = load_recipe("wmt14_en_de_base").to_dict(), load_recipe(row.recipe).to_dict()
    changed = {
        key: own[section][key]
        for section in ("data", "model", "train", "decode")
        for key in own[section]
        if own[section][key] != base[section][key]
    }
    *_, key, value = row.recipe.split("_")
    names = {"heads": ["num_heads"], "dk": ["d_k"], "layers": ["encoder_layers", "decoder_layers"]}
    names |= {"dmodel": ["d_model"], "dff": ["d_ff"], "dropout": ["dropout"], "smoothing": ["label_smoothing"]}
    expected = (
        {"positions": "learned"}
        if value == "learned"
        else {name: float(value) / 10 if value.startswith("0") else int(value) for name in names[key]}
    )
    assert changed == expected


def by_hand(layers: int, d: int, d_ff: int, keys: int, values: int) -> int:
    """The parameters with 37,000 pieces. `keys`, `values`: of all heads together."""
    attention = 2 * (d * keys + keys) + d * values + values + values * d + d
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    return 37_000 * d + layers * (3 * attention + 2 * feed_forward + 5 * 2 * d)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_the_figures_are_those_of_the_recipe(row: Row) -> None:
    recipe = load_recipe(row.recipe)
    head = (recipe_folder() / f"{row.recipe}.toml").read_text(encoding="utf-8").partition("extends")[0]
    assert row.perplexity in head
    assert re.search(rf"BLEU {row.bleu}\b", head)
    assert row.millions in head
    model = recipe.model
    heads = model.num_heads * model.key_size, model.num_heads * model.value_size
    expected = by_hand(model.encoder_layers, model.d_model, model.d_ff, *heads)
    expected += 2 * 1024 * 512 if model.positions == "learned" else 0
    assert estimate(recipe, (37_000, 37_000), Hardware.find("cpu", "fp32"))["parameters"] == expected
    assert row.ours == f"{expected / 1e6:.2f}M"
