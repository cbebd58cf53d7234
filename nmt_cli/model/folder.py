"""The model folder (DESIGN: "The model folder"): everything that `translate`, `export` and `info` need.

    model.safetensors   weights, tied matrices once; in fp32, or in int8 (`precision.integers`)
    config.json         format version, the whole recipe, sizes, package version, SHA-256 of every other file
    tokenizer.model     SentencePiece (with separate vocabularies tokenizer.source.model and tokenizer.target.model)
    metrics.json        the model's scores, with their signature

config.json also holds the SHA-256 of its own content; `folder_files` checks it. `weights.write_model` fills a folder
that the caller creates (`files.new_folder`), `load_model` checks and reads a folder. `folder_files.find_model` returns
the model to use in a run folder. This module does not interpret the bytes of tokenizers. Nothing is pickled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import ModelError
from ..recipe import Recipe
from .folder_files import REMEDY, WEIGHTS, ModelConfig, check_fp32, checked_recipe, read_config
from .positions import Sinusoidal
from .precision import with_integers, without_weights
from .transformer import Transformer
from .weights import DTYPES, check_fit, forms_of, in_fp32, places_in, read_forms


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, with the recipe that made it."""

    model: Transformer
    recipe: Recipe
    folder: Path
    config: ModelConfig


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Return all trained weights by name, each once, on the CPU, and the tables of `monotonic`."""
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in model.state_dict().items()}


def load_model(folder: Path, checked: Future[None] | None = None, *, quantized: bool = False) -> LoadedModel:
    """Read a model folder into a Transformer in evaluation mode, fp32, on the CPU.

    `checked` is the future of `folder_files.checking`; without it the files are checked here. With `quantized` the
    folder may be in int8; its model then equals one of `precision.int8`. Without it, the numbers of an imported model
    in int8 are its integers times their scales. Raises ModelError when a file is missing, truncated, changed or of a
    newer format, does not fit the recipe, or was rounded to int8.
    """
    config = read_config(folder)
    if not quantized:
        check_fp32(folder, config)
    recipe = checked_recipe(folder, config, checked)
    try:
        model = read_model(folder / WEIGHTS, recipe, config.vocabularies, config.precision, quantized)
    except (ModelError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None
    return LoadedModel(model.eval(), recipe, folder, config)


def read_model(
    path: Path, recipe: Recipe, vocabularies: tuple[int, int], precision: str, quantized: bool
) -> Transformer:
    """Return the Transformer of a weights file in `precision`; see `load_model`. It is read only if it fits.

    Raises ModelError, OSError.
    """
    check_fit(forms_of(recipe.model, vocabularies, precision), read_forms(path))
    model, weights = without_weights(recipe.model, *vocabularies), read_tensors(path)
    if precision != "int8" or not quantized:
        return _with_weights(model, in_fp32(weights))
    others = {name: value for name, value in weights.items() if value.dtype != torch.int8}
    return with_integers(_with_weights(model, others), weights)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file whose forms were checked, each in memory of its own, which is free as soon
    as the tensor is: safetensors' `load_file` keeps the whole file mapped. Raises OSError.
    """
    tensors = {}
    with path.open("rb") as file:
        for name, ((dtype, shape), place) in places_in(path).items():
            file.seek(place.start)
            tensors[name] = torch.from_numpy(np.fromfile(file, DTYPES[dtype], math.prod(shape)).reshape(shape))
    return tensors


def build(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """Return a Transformer whose parameters are `weights`, not copies. Raises ModelError if they do not fit."""
    names = {torch.float32: "F32"}
    given = {name: (names.get(value.dtype, str(value.dtype)), tuple(value.shape)) for name, value in weights.items()}
    check_fit(forms_of(recipe.model, (source_vocab, target_vocab)), given)
    return _with_weights(without_weights(recipe.model, source_vocab, target_vocab), weights)


def _with_weights(model: Transformer, weights: Mapping[str, Tensor]) -> Transformer:
    """Give a model without values these parameters, if they are among `weights`, and its tables of positions."""
    names = model.state_dict().keys() & weights.keys()
    model.load_state_dict({name: weights[name] for name in names}, assign=True, strict=False)
    for module in model.modules():
        if isinstance(module, Sinusoidal):
            module.fill()
    return model
