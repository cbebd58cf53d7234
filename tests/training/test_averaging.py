"""Averaging: the mean is numpy's, and what must not be averaged is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from nmt_cli.errors import ModelError, UsageError
from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe
from nmt_cli.training.averaging import average, choose

V = 12


def recipe_of(model: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> Recipe:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2, "max_positions": 50}
    sections = {"model": {**sizes, **(model or {})}, "train": {"average": 2, **(train or {})}}
    return Recipe.from_dict({"data": {"generator": "teaching", "max_length": 40}, **sections}, "test")


def written(
    folder: Path,
    seed: int,
    recipe: Recipe | None = None,
    tokenizer: bytes = b"joint",
    metrics: dict[str, Any] | None = None,
) -> Path:
    recipe = recipe or recipe_of()
    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    weights = weights_of(Transformer(recipe.model, V, V))
    write_model(folder, weights, recipe, (V, V), {"tokenizer.model": tokenizer}, metrics or {})
    return folder


def run_of(path: Path, scores: dict[int, dict[str, Any]], train: dict[str, Any] | None = None) -> Path:
    """A run whose checkpoints, by update, scored what is given."""
    for update, metrics in scores.items():
        written(path / "checkpoints" / f"step-{update:08d}", update, recipe_of(train=train), metrics=metrics)
    return path


def names(folders: list[Path]) -> list[int]:
    return [int(folder.name.removeprefix("step-")) for folder in folders]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_average_is_numpys_mean_with_the_tokenizer_and_recipe_of_its_parts(count: int, tmp_path: Path) -> None:
    folders = [written(tmp_path / f"step-{seed}", seed, tokenizer=b"this one") for seed in range(count)]
    metrics, comparison = average(folders, tmp_path / "averaged")
    parts = [load_file(folder / "model.safetensors") for folder in folders]
    mean = load_file(tmp_path / "averaged" / "model.safetensors")
    assert mean.keys() == parts[0].keys()
    for name, array in mean.items():
        expected = np.mean([part[name].astype(np.float64) for part in parts], axis=0)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected.astype(np.float32))
    assert load_model(tmp_path / "averaged").recipe == recipe_of()
    assert (tmp_path / "averaged" / "tokenizer.model").read_bytes() == b"this one"
    assert metrics == json.loads((tmp_path / "averaged" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics == {"averaged": [f"step-{seed}" for seed in range(count)]}
    assert comparison is None  # there are no shards


def test_averaging_again_replaces_the_average_and_the_newest_decode_section_counts(tmp_path: Path) -> None:
    newest = recipe_of().model_copy(update={"decode": recipe_of().decode.model_copy(update={"alpha": 1.0})})
    folders = [written(tmp_path / "step-1", 1), written(tmp_path / "step-2", 2, newest)]
    average(folders, tmp_path / "averaged")
    assert load_model(tmp_path / "averaged").recipe.decode.alpha == 1.0
    average(folders[:1], tmp_path / "averaged")
    alone, replaced = (load_file(folder / "model.safetensors") for folder in (folders[0], tmp_path / "averaged"))
    assert all(np.array_equal(alone[name], replaced[name]) for name in alone)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["averaged", "step-1", "step-2"]


def test_what_is_no_mean_is_refused_and_what_stood_there_stays(tmp_path: Path) -> None:
    first, second, copy = written(tmp_path / "a", 1), written(tmp_path / "b", 2), written(tmp_path / "c", 1)
    (tmp_path / "link").symlink_to("b")
    other = written(tmp_path / "other", 2, recipe_of({"d_ff": 16, "residual": "pre"}))
    another, damaged = written(tmp_path / "another", 2, tokenizer=b"another"), written(tmp_path / "damaged", 3)
    with (damaged / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    average([first, second], tmp_path / "averaged")
    before = (tmp_path / "averaged" / "model.safetensors").read_bytes()
    for parts, said, named in (
        ([first, second, copy], "hold the same weights", (first, copy)),
        ([second, tmp_path / "link"], "hold the same weights", ()),
        ([first, other], r"different models \(d_ff, residual differ\)", (first, other)),
        ([first, another], r"different models \(tokenizer differ\)", (first, another)),
        ([first, damaged], "was changed or damaged", ()),
    ):
        with pytest.raises(ModelError, match=said) as raised:
            average(parts, tmp_path / "averaged")
        assert all(repr(str(part)) in str(raised.value) for part in named)
        assert (tmp_path / "averaged" / "model.safetensors").read_bytes() == before


SCORES = {
    100: {"bleu": 9.0, "nll": 3.0},
    200: {"bleu": 30.0, "nll": 2.0},
    300: {},
    400: {"bleu": 30.0, "nll": 1.5},
    1000: {"bleu": 20.0, "nll": 1.8},
}


def test_the_last_are_those_with_the_most_updates_as_many_as_the_recipe_says(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCORES)
    assert names(choose(run, last=3)) == [300, 400, 1000]
    assert names(choose(run, last=5)) == [100, 200, 300, 400, 1000]
    assert names(choose(run)) == [400, 1000]
    assert names(choose(run_of(tmp_path / "short", {100: {}}))) == [100]


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        ("bleu", {1: [400], 2: [200, 400], 3: [200, 400, 1000], 4: [100, 200, 400, 1000]}),
        ("nll", {1: [400], 2: [400, 1000], 3: [200, 400, 1000]}),
    ],
)
def test_the_best_are_those_with_the_best_score(metric: str, best: dict[int, list[int]], tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCORES, {"best_metric": metric})
    for number, updates in best.items():
        assert names(choose(run, best=number)) == updates


@pytest.mark.parametrize(("lines", "best"), [(50, 400), (100, 300), (200, 200), (10**6, 200)])
def test_of_scores_that_chance_may_have_made_the_last_one_counts(lines: int, best: int, tmp_path: Path) -> None:
    """A standard error is 15 / sqrt(lines): 2.1, 1.5, 1.1 and 0."""
    scores = {100: 20.0, 200: 30.0, 300: 28.8, 400: 28.0, 500: 27.0}
    measure = {"bleu_sentences": lines, "bleu_of_sentences": lines, "chrf_signature": "s"}
    run = run_of(tmp_path / "run", {update: {"chrf": score, **measure} for update, score in scores.items()})
    assert names(choose(run, best=1)) == [best]


def test_only_scores_that_were_measured_like_the_last_one_are_compared(tmp_path: Path) -> None:
    measures = {100: ("a", 60.0), 200: ("b", 50.0), 300: ("b", 40.0)}
    scores = {update: {"chrf": score, "chrf_signature": by} for update, (by, score) in measures.items()}
    run = run_of(tmp_path / "run", scores)
    assert names(choose(run, best=2)) == [200, 300]


def test_what_cannot_be_chosen_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCORES, {"best_metric": "nll"})
    with pytest.raises(ModelError, match="has 5 checkpoints, 6 were asked for"):
        choose(run, last=6)
    with pytest.raises(ModelError, match="has 4 validated checkpoints, 5 were asked for"):
        choose(run, best=5)
    with pytest.raises(UsageError, match="--last 2 and --best 3: choose one"):
        choose(run, last=2, best=3)
    with pytest.raises(ModelError, match="none' has no checkpoints to average"):
        choose(tmp_path / "none")
