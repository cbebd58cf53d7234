"""The model folder: what is written is read back, and what is not as it was written is refused by name."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import sealed
import torch
from safetensors.torch import load_file
from torch import Tensor

from nmt_cli import __version__
from nmt_cli.errors import ModelError
from nmt_cli.model.folder import load_model, read_tensors, weights_of
from nmt_cli.model.folder_files import (
    FORMAT_VERSION,
    check_files,
    find_model,
    not_an_average,
    read_config,
    read_metrics,
)
from nmt_cli.model.transformer import Transformer, attention_mask, count_parameters
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe

V = 20
TOKENIZER = b"not a real one: opaque here"


def recipe_of(**model: Any) -> Recipe:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2, "max_positions": 50}
    joint = model.get("tie_embeddings", True)
    data = {"generator": "teaching", "max_length": 40, "joint_vocab": joint}
    return Recipe.from_dict({"name": "tiny", "data": data, "model": {**sizes, **model}}, "test")


def written(folder: Path, recipe: Recipe | None = None, target_vocab: int = V, **metrics: object) -> Transformer:
    recipe = recipe or recipe_of()
    torch.manual_seed(1)
    model = Transformer(recipe.model, V, target_vocab).eval()
    folder.mkdir(parents=True, exist_ok=True)
    files = {"tokenizer.model": TOKENIZER}
    write_model(folder, weights_of(model), recipe, (V, target_vocab), files, metrics or {"bleu": 12.5})
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path / "model")
    return tmp_path / "model"


def outputs(model: Transformer) -> Tensor:
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
    with torch.no_grad():
        return model.logits(
            model(src, attention_mask(torch.tensor([4, 2]), 4), torch.tensor([[2, 9, 10], [2, 11, 12]]))
        )


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "learned"}, {"residual": "pre", "d_k": 3}, {"tie_embeddings": False}]
)
def test_a_written_model_is_read_back_to_the_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    recipe, target_vocab = recipe_of(**changes), V if changes.get("tie_embeddings", True) else V + 5
    model = written(tmp_path / "model", recipe, target_vocab)
    loaded = load_model(tmp_path / "model")
    assert torch.equal(outputs(loaded.model), outputs(model))
    assert not loaded.model.training
    assert loaded.recipe == recipe
    assert loaded.recipe.name == "tiny"
    assert loaded.folder == tmp_path / "model"
    assert (loaded.model.target_vocab, loaded.config.target_vocab) == (target_vocab, target_vocab)


def test_loading_draws_no_random_numbers(folder: Path) -> None:
    state = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_in_the_folder(folder: Path) -> None:
    files = {"model.safetensors", "tokenizer.model", "metrics.json"}
    assert {item.name for item in folder.iterdir()} == {"config.json", *files}
    assert (folder / "tokenizer.model").read_bytes() == TOKENIZER
    assert read_metrics(folder) == {"bleu": 12.5}
    config = read_config(folder)
    assert (config.format_version, config.package_version) == (FORMAT_VERSION, __version__)
    assert (config.source_vocab, config.target_vocab) == (V, V)
    assert config.recipe == recipe_of().to_dict()
    assert config.parameters == count_parameters(Transformer(recipe_of().model, V, V))["total"]
    assert set(config.sha256) == files
    for name in config.sha256:
        assert config.sha256[name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_tensors_that_were_read_keep_no_map_of_the_file(folder: Path) -> None:
    """So the memory of a tensor is free as soon as the tensor is."""

    def is_mapped() -> bool:
        return str(folder / "model.safetensors") in Path("/proc/self/maps").read_text()

    tensors = read_tensors(folder / "model.safetensors")
    assert not is_mapped()
    expected = load_file(folder / "model.safetensors")
    assert is_mapped()
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("name", ["metrics.json", "model.safetensors", "tokenizer.model"])
def test_every_flipped_bit_of_what_it_records_is_noticed(folder: Path, name: str) -> None:
    """Of config.json: `cli/test_damage.py`."""
    config, data = read_config(folder), (folder / name).read_bytes()
    for damaged in sealed.flipped(data, len(data) // 10 | 1):
        (folder / name).write_bytes(damaged)
        with pytest.raises(ModelError, match=re.escape(repr(str(folder / name)))):
            check_files(folder, config.sha256)


def test_an_average_is_known_by_its_marker_and_contents(folder: Path, tmp_path: Path) -> None:
    written(tmp_path / "average", averaged=["step-00000001"])
    assert not_an_average(tmp_path / "average") == ""
    assert not_an_average(folder) == "it is a model folder that nmt average did not write"
    assert "nmt average did not write it" in not_an_average(tmp_path)


def test_a_run_gives_its_averaged_model_else_the_best_else_the_last(tmp_path: Path) -> None:
    run = tmp_path / "run"
    written(run / "checkpoints" / "step-00000100")
    written(run / "checkpoints" / "step-00000200")
    (run / "last").symlink_to("checkpoints/step-00000200")
    assert find_model(run) == run / "last"
    (run / "best").symlink_to("checkpoints/step-00000100")
    assert find_model(run) == run / "best"
    written(run / "averaged")
    assert find_model(run) == run / "averaged"
    assert find_model(run / "last") == run / "last"  # a model folder is itself
    load_model(find_model(run))


def test_where_no_model_is_the_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model folder at .*nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"is not a model folder: it has no config\.json"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match=r"no model at .*nowhere"):
        find_model(tmp_path / "nowhere")
    (tmp_path / "last").symlink_to("gone")
    with pytest.raises(ModelError, match="holds no model") as fault:
        find_model(tmp_path)
    assert repr(str(tmp_path)) in str(fault.value)
