"""The model folder (DESIGN: "The model folder"): everything that `translate`, `export` and `info` need.

    model.safetensors   weights, tied matrices once; in fp32, or in int8 (`precision.integers`)
    config.json         format version, the whole recipe, sizes, package version, SHA-256 of every other file
    tokenizer.model     SentencePiece (with separate vocabularies tokenizer.source.model and tokenizer.target.model)
    metrics.json        the model's scores, with their signature

config.json also holds the SHA-256 of its own content; `contents` checks it. `write_model` fills a folder that the caller creates
(`files.new_folder`), `load_model` checks and reads a folder. `contents.find_model` returns the model to use in a run folder. This
module does not interpret the bytes of tokenizers. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .. import __version__
from ..errors import ModelError, NmtError
from ..files import sha256
from ..hardware import reproducible_products
from ..recipe import Recipe
from ..records import to_json
from .contents import CONFIG, FORMAT_VERSION, METRICS, REMEDY, WEIGHTS, ModelConfig, check_files, read_config
from .precision import OUTPUT, integers, with_integers
from .transformer import Transformer

SCALES = (".scales", ".input_scale")
"""Endings of the names under which int8 stores scales, beside the parameters."""
TABLES = "next_word."
"""The beginning of the names of tensors that are stored but not trained."""


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


def write_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    recipe: Recipe,
    vocabularies: tuple[int, int],
    tokenizers: Mapping[str, bytes],
    metrics: Mapping[str, Any],
    precision: Literal["fp32", "int8"] = "fp32",
    safe_length: int | None = None,
) -> None:
    """Write a model into `folder`. `vocabularies` are the sizes of source and target vocabulary, `tokenizers` maps file names to bytes.

    `weights` come from `weights_of`, or for int8 from `quantized_weights`. `safe_length`: see `ModelConfig`.
    Raises OSError.
    """
    save_file(dict(weights), folder / WEIGHTS)
    (folder / METRICS).touch()
    (folder / WEIGHTS).chmod((folder / METRICS).stat().st_mode)  # safetensors lets only the owner read it
    for name, content in tokenizers.items():
        (folder / name).write_bytes(content)
    (folder / METRICS).write_text(
        json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    config = ModelConfig(
        format_version=FORMAT_VERSION,
        package_version=__version__,
        parameters=sum(
            weight.numel()
            for name, weight in weights.items()
            if not name.endswith(SCALES) and not name.startswith(TABLES)
        ),
        source_vocab=vocabularies[0],
        target_vocab=vocabularies[1],
        sha256={name: sha256(folder / name) for name in (WEIGHTS, METRICS, *tokenizers)},
        recipe=recipe.to_dict(),
        precision=precision,
        safe_length=safe_length,
    )
    (folder / CONFIG).write_bytes(to_json(config))


def load_model(folder: Path, checked: Future[None] | None = None, *, quantized: bool = False) -> LoadedModel:
    """Read a model folder into a Transformer in evaluation mode, fp32, on the CPU.

    `checked` is the future of `contents.checking`; without it the files are checked here. With `quantized` the folder may be
    in int8; its model then equals one of `precision.int8`. Raises ModelError when a file is missing, truncated, changed or of
    a newer format, or does not fit the recipe.
    """
    reproducible_products()
    config = read_config(folder)
    if config.precision == "int8" and not quantized:
        raise ModelError(
            f"the model {str(folder)!r} is in int8, which translates only: name the model that it was made from."
        )
    try:
        checked.result() if checked else check_files(folder, config.sha256)
        recipe = Recipe.from_dict(config.recipe, f"{str(folder / CONFIG)!r}")
        weights = read_tensors(folder / WEIGHTS)
    except NmtError as error:
        raise ModelError(str(error)) from None
    except (SafetensorError, OSError, TypeError) as error:
        raise ModelError(f"{str(folder)!r} does not load ({type(error).__name__}: {error}). {REMEDY}") from None
    try:
        model = (build_quantized if config.precision == "int8" else build)(recipe, *config.vocabularies, weights)
    except (ModelError, TypeError, RuntimeError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None
    return LoadedModel(model.eval(), recipe, folder, config)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file, each in memory of its own: this memory is free as soon as the tensor is.

    (`load_file` maps the whole file into memory, until its last tensor is freed.) Raises OSError, SafetensorError, and TypeError
    for a dtype that NumPy does not have; no model folder has one.
    """
    layers: dict[str, list[str]] = {}
    with safe_open(path, "np") as file:
        for name in sorted(file.keys()):
            layers.setdefault(".".join(name.split(".")[:2]), []).append(name)
    tensors: dict[str, Tensor] = {}
    for names in layers.values():
        with safe_open(path, "np") as file:  # opened for each layer: what was read stays mapped until it is closed
            tensors |= {name: torch.from_numpy(file.get_tensor(name)) for name in names}
    return tensors


def build(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """Return a Transformer whose parameters are `weights`, not copies if these are fp32. Raises ModelError if they do not fit."""
    model = _without_weights(recipe, source_vocab, target_vocab)
    parameters = model.state_dict()
    _check_fit({name: parameter.shape for name, parameter in parameters.items()}, weights)
    model.load_state_dict({name: weights[name].to(torch.float32) for name in parameters}, assign=True)
    return model


def quantized_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors that an int8 folder stores of an fp32 model: `precision.integers`, and all other parameters unchanged."""
    return {name: value.to("cpu").contiguous() for name, value in {**weights_of(model), **integers(model)}.items()}


def build_quantized(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """Return the int8 Transformer of `weights` from `quantized_weights`, as `precision.int8` returns it. Raises ModelError if they do not fit."""
    model = _without_weights(recipe, source_vocab, target_vocab)
    parameters = model.state_dict()
    matrices = [f"{name}.weight" for name, module in model.named_modules() if type(module) is nn.Linear]
    tables = [f"embeddings.{key}" for key in model.embeddings]
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    shapes |= {
        f"{name.removesuffix('.weight')}{SCALES[0]}": parameters[name].shape[:1] for name in (*matrices, *tables)
    }
    shapes |= {f"{name.removesuffix('.weight')}{SCALES[1]}": torch.Size() for name in (*matrices, f"{OUTPUT}.weight")}
    _check_fit(shapes, weights)
    for name in (*matrices, *tables):
        if weights[name].dtype != torch.int8:
            raise ModelError(f"the weights do not fit int8: {name} is {weights[name].dtype}.")
    fp32 = {name: weights[name].to(torch.float32) for name in parameters if name not in (*matrices, *tables)}
    model.load_state_dict(fp32, assign=True, strict=False)
    return with_integers(model, weights)


def _without_weights(recipe: Recipe, source_vocab: int, target_vocab: int) -> Transformer:
    with torch.device("meta"):
        return Transformer(recipe.model, source_vocab, target_vocab)


def _check_fit(shapes: Mapping[str, torch.Size], weights: Mapping[str, Tensor]) -> None:
    """Raise ModelError unless the weights have these names and shapes."""
    if shapes.keys() != weights.keys():
        differing = sorted(shapes.keys() ^ weights.keys())
        raise ModelError(
            f"the weights do not fit the recipe: {len(differing)} names differ, the first is {differing[0]!r}."
        )
    for name, shape in shapes.items():
        if shape != weights[name].shape:
            raise ModelError(
                f"the weights do not fit the recipe: {name} has shape {tuple(weights[name].shape)}, expected {tuple(shape)}."
            )
