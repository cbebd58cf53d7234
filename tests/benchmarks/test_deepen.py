"""A deepened model computes what the model that it was made of computes, and its new layers learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from deepen import LAST_MAPS, deepen

from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "max_positions": 512, "dropout": 0.0}


def recipe(encoder: int, decoder: int, residual: str = "pre") -> Recipe:
    model = {**SIZES, "encoder_layers": encoder, "decoder_layers": decoder, "residual": residual}
    return Recipe.from_dict({"data": {"train_source": ["a"], "train_target": ["b"]}, "model": model}, "test")


def saved(folder: Path, shallow: Recipe) -> Path:
    torch.manual_seed(3)
    folder.mkdir()
    write_model(
        folder, weights_of(Transformer(shallow.model, 50, 50)), shallow, (50, 50), {"tokenizer.model": b"pieces"}, {}
    )
    return folder


@pytest.mark.parametrize(("encoder", "decoder"), [(2, 1), (6, 6), (5, 1)])
def test_a_deeper_model_computes_the_same(tmp_path: Path, encoder: int, decoder: int) -> None:
    deepen(saved(tmp_path / "shallow", recipe(2, 1)), recipe(encoder, decoder), tmp_path / "deep")
    shallow, deep = (load_model(tmp_path / name).model for name in ("shallow", "deep"))
    assert (len(deep.encoder), len(deep.decoder)) == (encoder, decoder)
    source, target = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 5))
    torch.testing.assert_close(deep(source, None, target), shallow(source, None, target), atol=1e-6, rtol=1e-5)


def test_new_layers_get_a_gradient(tmp_path: Path) -> None:
    deepen(saved(tmp_path / "shallow", recipe(1, 1)), recipe(2, 2), tmp_path / "deep")
    deep = load_model(tmp_path / "deep").model.train()
    deep(torch.randint(4, 50, (3, 7)), None, torch.randint(4, 50, (3, 5))).square().sum().backward()
    for name, parameter in deep.named_parameters():
        if ".1." in name and any(last in name for last in LAST_MAPS):
            assert parameter.grad is not None, name
            assert float(parameter.grad.abs().sum()) > 0, name


@pytest.mark.parametrize(
    ("shallow", "deep"), [(recipe(2, 1, "post"), recipe(4, 2, "post")), (recipe(2, 2), recipe(1, 2))]
)
def test_what_cannot_be_deepened_is_refused(tmp_path: Path, shallow: Recipe, deep: Recipe) -> None:
    with pytest.raises(ValueError, match="expected pre-norm"):
        deepen(saved(tmp_path / "shallow", shallow), deep, tmp_path / "deep")
