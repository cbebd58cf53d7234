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
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .. import __version__
from ..errors import ModelError, NmtError, shown
from ..files import sha256
from ..hardware import reproducible_products
from ..recipe import Recipe
from ..records import to_json
from .contents import CONFIG, FORMAT_VERSION, METRICS, REMEDY, WEIGHTS, ModelConfig, check_files, read_config
from .positions import Sinusoidal
from .precision import integers, with_integers
from .transformer import Transformer
from .weights import Form, read_forms

SCALES = ".scales"
"""Ending of the names under which int8 stores scales, beside the parameters."""
TABLES = "next_word."
"""The beginning of the names of tensors that are stored but not trained."""
DTYPES = {torch.float32: "F32", torch.int8: "I8"}
"""The dtypes of weights files."""


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
    except NmtError as error:
        raise ModelError(str(error)) from None
    try:
        model = read_model(folder / WEIGHTS, recipe, config.vocabularies, config.precision == "int8")
    except (ModelError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None
    return LoadedModel(model.eval(), recipe, folder, config)


def check_weights(folder: Path, config: ModelConfig, recipe: Recipe) -> None:
    """Raise ModelError unless the names, dtypes and shapes in the weights file are those of the recipe. Only its header is read."""
    model = _without_weights(recipe, *config.vocabularies)
    try:
        _check_fit(_forms(model, config.precision == "int8"), read_forms(folder / WEIGHTS))
    except (ModelError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None


def read_model(path: Path, recipe: Recipe, vocabularies: tuple[int, int], quantized: bool) -> Transformer:
    """Return the Transformer of a weights file. It is read only if it fits. Raises ModelError, OSError."""
    model = _without_weights(recipe, *vocabularies)
    _check_fit(_forms(model, quantized), read_forms(path))
    return (_with_quantized if quantized else _with_weights)(model, read_tensors(path))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file whose forms were checked, each in memory of its own: this memory is free as soon as the tensor is.

    (`load_file` maps the whole file into memory, until its last tensor is freed.) Raises OSError.
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
    """Return a Transformer whose parameters are `weights`, not copies. Raises ModelError if they do not fit."""
    model = _without_weights(recipe, source_vocab, target_vocab)
    _check_fit(_forms(model), _forms_of(weights))
    return _with_weights(model, weights)


def quantized_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors that an int8 folder stores of an fp32 model: `precision.integers`, and all other parameters unchanged."""
    return {name: value.to("cpu").contiguous() for name, value in {**weights_of(model), **integers(model)}.items()}


def build_quantized(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """Return the int8 Transformer of `weights` from `quantized_weights`, as `precision.int8` returns it."""
    return _with_quantized(_without_weights(recipe, source_vocab, target_vocab), weights)


def _without_weights(recipe: Recipe, source_vocab: int, target_vocab: int) -> Transformer:
    """Return a model without values, which takes no memory."""
    with torch.device("meta"):
        return Transformer(recipe.model, source_vocab, target_vocab)


def _with_weights(model: Transformer, weights: Mapping[str, Tensor]) -> Transformer:
    """Give a model without values these parameters, if they are among `weights`, and its tables of positions."""
    names = model.state_dict().keys() & weights.keys()
    model.load_state_dict({name: weights[name] for name in names}, assign=True, strict=False)
    for module in model.modules():
        if isinstance(module, Sinusoidal):
            module.fill()
    return model


def _with_quantized(model: Transformer, weights: Mapping[str, Tensor]) -> Transformer:
    in_int8 = set(_in_int8(model))
    return with_integers(
        _with_weights(model, {name: value for name, value in weights.items() if name not in in_int8}), weights
    )


def _in_int8(model: Transformer) -> list[str]:
    """Return the names of the matrices that an int8 folder stores as integers."""
    linear = [f"{name}.weight" for name, module in model.named_modules() if type(module) is nn.Linear]
    return [*linear, *(f"embeddings.{key}" for key in model.embeddings)]


def _forms(model: Transformer, quantized: bool = False) -> dict[str, Form]:
    """Return the forms of the tensors that a folder stores of a model, in fp32 or int8."""
    forms: dict[str, Form] = {name: ("F32", tuple(value.shape)) for name, value in model.state_dict().items()}
    if quantized:
        for name in _in_int8(model):
            forms |= {name: ("I8", forms[name][1]), name.removesuffix(".weight") + SCALES: ("F32", forms[name][1][:1])}
    return forms


def _forms_of(weights: Mapping[str, Tensor]) -> dict[str, Form]:
    return {name: (DTYPES.get(value.dtype, str(value.dtype)), tuple(value.shape)) for name, value in weights.items()}


def _check_fit(expected: Mapping[str, Form], stored: Mapping[str, Form]) -> None:
    """Raise ModelError unless the names, dtypes and shapes are equal."""
    if expected.keys() != stored.keys():
        differing = sorted(expected.keys() ^ stored.keys())
        raise ModelError(
            f"the weights do not fit the recipe: {len(differing)} names differ, the first is {shown(differing[0])}."
        )
    for name, form in expected.items():
        for what, has, needs in zip(("dtype", "shape"), stored[name], form, strict=True):
            if has != needs:
                raise ModelError(f"the weights do not fit the recipe: {name} has {what} {has}, expected {needs}.")
