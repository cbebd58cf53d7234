"""The model folder (DESIGN: "The model folder"): all that `translate`, `export` and `info` need.

    model.safetensors   weights, tied matrices once
    config.json         format version, the whole recipe, sizes, package version, SHA-256 of every other file
    tokenizer.model     SentencePiece (with separate vocabularies tokenizer.source.model and tokenizer.target.model)
    metrics.json        what it scored, on what, with which signature

config.json also holds the SHA-256 of its own content; `contents` checks it. `write_model` fills a folder that the caller makes (`files.new_folder`), `load_model` checks and reads one,
`find_model` goes from a run folder to the model to use. Tokenizers are opaque bytes here. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .. import __version__
from ..errors import ModelError, NmtError
from ..files import sha256
from ..hardware import reproducible_products
from ..recipe import Recipe
from ..records import to_json
from .contents import CONFIG, FORMAT_VERSION, METRICS, REMEDY, WEIGHTS, ModelConfig, check_files, read_config
from .transformer import Transformer


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, with the recipe that made it."""

    model: Transformer
    recipe: Recipe
    folder: Path
    config: ModelConfig


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Every trained matrix once, by name, on the CPU."""
    return {name: parameter.detach().to("cpu").contiguous() for name, parameter in model.named_parameters()}


def write_model(
    folder: Path, weights: Mapping[str, Tensor], recipe: Recipe, vocabularies: tuple[int, int],
    tokenizers: Mapping[str, bytes], metrics: Mapping[str, Any],
) -> None:  # fmt: skip
    """Fill `folder` with a model: `vocabularies` are the source's and target's sizes, `tokenizers` name -> bytes.

    Raises OSError.
    """
    save_file(dict(weights), folder / WEIGHTS)
    (folder / METRICS).touch()
    (folder / WEIGHTS).chmod((folder / METRICS).stat().st_mode)  # safetensors leaves it to its owner alone
    for name, content in tokenizers.items():
        (folder / name).write_bytes(content)
    (folder / METRICS).write_text(json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    config = ModelConfig(
        format_version=FORMAT_VERSION,
        package_version=__version__,
        parameters=sum(weight.numel() for weight in weights.values()),
        source_vocab=vocabularies[0],
        target_vocab=vocabularies[1],
        sha256={name: sha256(folder / name) for name in (WEIGHTS, METRICS, *tokenizers)},
        recipe=recipe.to_dict(),
    )
    (folder / CONFIG).write_bytes(to_json(config))


def load_model(folder: Path, checked: Future[None] | None = None) -> LoadedModel:
    """Read a model folder into a Transformer in evaluation mode, fp32, on the CPU; `checked` if its files are already.

    Raises ModelError when a file is missing, cut, changed, of a newer format or does not fit the recipe.
    """
    reproducible_products()
    config = read_config(folder)
    try:
        checked.result() if checked else check_files(folder, config.sha256)
        recipe = Recipe.from_dict(config.recipe, f"{str(folder / CONFIG)!r}")
        weights = load_file(folder / WEIGHTS)
    except NmtError as error:
        raise ModelError(str(error)) from None
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load ({type(error).__name__}: {error}). {REMEDY}") from None
    try:
        model = build(recipe, *config.vocabularies, weights)
    except (ModelError, TypeError, RuntimeError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None
    return LoadedModel(model.eval(), recipe, folder, config)


def build(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """A Transformer holding a copy of `weights`; no time is spent on drawing random ones. Raises ModelError."""
    with torch.device("meta"):
        model = Transformer(recipe.model, source_vocab, target_vocab)
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        differing = sorted(parameters.keys() ^ weights.keys())
        raise ModelError(f"the weights do not fit the recipe: {len(differing)} names differ, the first is {differing[0]!r}.")
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            raise ModelError(f"the weights do not fit the recipe: {name} has shape {tuple(weights[name].shape)}, expected {tuple(parameter.shape)}.")
    model.load_state_dict({name: weights[name].to(torch.float32, copy=True) for name in parameters}, assign=True)
    return model
