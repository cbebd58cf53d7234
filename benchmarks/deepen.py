"""A deeper model that computes the same as a trained one, to train on: each layer is followed by new ones that add nothing yet.

    deepen(model folder of l layers, a recipe of L) ──▶ a model folder of L layers, for `train.init`

The layers of a pre-norm model add to the residual stream. A new layer is a copy of the one before it whose last maps are zero: it
adds zero, and learns from the first update on (Net2Net, arXiv 1511.05641; progressive stacking, ICML 2019). A step of training costs
what a model's depth costs, so a deep model that is only needed for its shape is trained for a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from nmt_cli.files import new_folder
from nmt_cli.model.contents import read_config
from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe

LAST_MAPS = ("self_attention.output.", "cross_attention.output.", "feed_forward.outer.")


def deepen(model: Path, recipe: Recipe, folder: Path) -> None:
    """Write the model with the layers of `recipe` to a new folder. Raises ValueError unless it is pre-norm and not deeper already."""
    loaded, wanted = load_model(model), recipe.model
    have = loaded.recipe.model
    if (
        have.residual != "pre"
        or wanted.encoder_layers < have.encoder_layers
        or wanted.decoder_layers < have.decoder_layers
    ):
        raise ValueError(
            f"{model} has {have.encoder_layers} + {have.decoder_layers} layers, {have.residual}-norm: expected pre-norm and at most {wanted.encoder_layers} + {wanted.decoder_layers}"
        )
    weights = weights_of(loaded.model)
    for stack, old, new in (
        ("encoder", have.encoder_layers, wanted.encoder_layers),
        ("decoder", have.decoder_layers, wanted.decoder_layers),
    ):
        weights = more_layers(weights, stack, old, new)
    config = read_config(model)
    with new_folder(folder) as aside:
        write_model(
            aside,
            weights,
            recipe,
            config.vocabularies,
            {name: (model / name).read_bytes() for name in config.tokenizers},
            {},
        )


def more_layers(weights: Mapping[str, Tensor], stack: str, old: int, new: int) -> dict[str, Tensor]:
    """Return the weights with `new` instead of `old` layers in a stack; the new ones are spread evenly and add nothing."""
    origin = [index * old // new for index in range(new)]
    layer = re.compile(rf"{stack}\.(\d+)\.(.*)")
    grown = {name: value for name, value in weights.items() if not layer.fullmatch(name)}
    for name, value in weights.items():
        if match := layer.fullmatch(name):
            for index in (index for index in range(new) if origin[index] == int(match[1])):
                is_new = index > 0 and origin[index - 1] == origin[index]
                grown[f"{stack}.{index}.{match[2]}"] = (
                    value.new_zeros(value.shape) if is_new and match[2].startswith(LAST_MAPS) else value.clone()
                )
    return grown
