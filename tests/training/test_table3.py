"""The paper's table beside our models: the rows' own numbers, parameters counted by hand, hours from what was measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from forked import run
from in_process import printed, refused

from nmt_cli.device.hardware import Hardware
from nmt_cli.recipe import load_recipe, recipe_folder, recipe_names
from nmt_cli.training.table3 import ROWS, PaperRow, compare

Rows = list[dict[str, Any]]
CPU = Hardware.find("cpu", "fp32")


@pytest.fixture(scope="module")
def rows() -> Rows:
    return list(compare(CPU))


def test_every_row_of_the_table_is_there_once() -> None:
    blocks = [row.block for row in ROWS]
    assert Counter(blocks) == {"base": 1, "A": 4, "B": 2, "C": 7, "D": 4, "E": 1, "big": 1}
    assert {row.recipe for row in ROWS if row.recipe.startswith("table3")} == {
        name for name in recipe_names() if name.startswith("table3")
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.block not in ("base", "big")], ids=lambda row: row.recipe)
def test_a_row_differs_from_base_in_what_its_name_says_alone(row: PaperRow) -> None:
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_the_recipes_head_states_the_papers_figures(row: PaperRow) -> None:
    head = (recipe_folder() / f"{row.recipe}.toml").read_text(encoding="utf-8").partition("extends")[0]
    assert f"{row.perplexity:.2f}" in head
    assert re.search(rf"BLEU {row.bleu}\b", head)
    assert f"{row.millions}M" in head


def test_hours_follow_from_the_seconds_of_an_update(rows: Rows) -> None:
    measured = compare(CPU, seconds=lambda recipe: recipe.model.d_ff / 1000)
    assert [row["hours"] for row in measured] == [
        pytest.approx(load_recipe(row.recipe).model.d_ff / 1000 * (300_000 if row.block == "big" else 100_000) / 3600)
        for row in ROWS
    ]
    assert all(row["hours"] is None for row in rows)


SMALL = ["model.d_model=32", "model.d_ff=64", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1"]


def test_the_command_prints_the_table_and_takes_no_other_recipe() -> None:
    lines = printed("info --table3").splitlines()
    assert [line.split()[:2] for line in lines[2:22]] == [[row.block, row.recipe] for row in ROWS]
    assert lines[2].split()[-8:] == ["4.92", "25.8", "65M", "63.08M", "-1.9M", "100,000", "25,000", "-"]
    rows = json.loads(printed("info --table3 --json"))["rows"]
    assert [(row["paper_perplexity"], row["paper_bleu"]) for row in rows] == [
        (row.perplexity, row.bleu) for row in ROWS
    ]
    assert "give no recipe" in refused("info wmt14_en_de_big --table3")


def test_a_recipe_is_probed(tmp_path: Path) -> None:
    settings = [word for setting in [*SMALL, "train.batch_tokens=4096"] for word in ("--set", setting)]
    values = json.loads(run(tmp_path, "info", "demo", *settings, "--probe", "--json").stdout)  # it may warn
    assert values["seconds_per_update"] > 0
    assert values["hours"] == pytest.approx(values["seconds_per_update"] * values["updates"] / 3600)
