"""The model folder (DESIGN: "The model folder"): all that `translate`, `export` and `info` need.

    model.safetensors   weights, tied matrices once
    config.json         format version, the whole recipe, sizes, package version, SHA-256 of every other file
    tokenizer.model     SentencePiece (with separate vocabularies tokenizer.source.model and tokenizer.target.model)
    metrics.json        what it scored, on what, with which signature

`write_model` fills a folder that the caller makes (`files.new_folder`), `load_model` checks and reads one,
`find_model` goes from a run folder to the model to use. Tokenizers are opaque bytes here. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from ..recipe import Recipe
from .positions import Sinusoidal
from .transformer import Transformer

FORMAT_VERSION = 1
WEIGHTS, CONFIG, METRICS = "model.safetensors", "config.json", "metrics.json"
CHOICES = ("averaged", "best", "last")
"""In a run folder, the models to use, the first that is there."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, with the recipe that made it."""

    model: Transformer
    recipe: Recipe
    folder: Path
    config: dict[str, Any]


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
    for name, content in tokenizers.items():
        (folder / name).write_bytes(content)
    (folder / METRICS).write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    config = {
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "parameters": sum(weight.numel() for weight in weights.values()),
        "source_vocab": vocabularies[0],
        "target_vocab": vocabularies[1],
        "sha256": {name: sha256(folder / name) for name in (WEIGHTS, *tokenizers)},
        "recipe": recipe.to_dict(),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder, its version checked. Raises ModelError."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise ModelError(f"no model folder at {str(folder)!r}. Train one (`nmt train`), or name another with --model.")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = config["format_version"]
    except FileNotFoundError:
        raise ModelError(f"{str(folder)!r} is not a model folder: it has no {CONFIG}. Name a model folder or a run folder.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{str(path)!r} is damaged ({type(error).__name__}: {error}). Restore the folder from a copy, or take another checkpoint.") from None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelError(f"{str(folder)!r} has format version {version!r}; this nmt {__version__} reads up to {FORMAT_VERSION}. Install a newer nmt.")
    return config


def check_files(folder: Path, config: Mapping[str, Any]) -> None:
    """Every file that `config.json` vouches for is there and unchanged. Raises ModelError naming the first that is not."""
    for name, expected in config["sha256"].items():
        path = folder / name
        if not path.is_file():
            raise ModelError(f"{str(folder)!r} lacks {name}. The folder was cut: restore it from a copy, or take another checkpoint.")
        if sha256(path) != expected:
            raise ModelError(f"{str(path)!r} was changed or cut: its SHA-256 is not the one in {CONFIG}. Restore it from a copy, or take another checkpoint.")


def load_model(folder: Path) -> LoadedModel:
    """Read a model folder into a Transformer in evaluation mode, fp32, on the CPU.

    Raises ModelError when a file is missing, cut, changed, of a newer format or does not fit the recipe.
    """
    config = read_config(folder)
    remedy = "Restore it from a copy, or take another checkpoint."
    try:
        check_files(folder, config)
        recipe = Recipe.from_dict(config["recipe"], f"{str(folder / CONFIG)!r}")
        weights = load_file(folder / WEIGHTS)
        sizes = config["source_vocab"], config["target_vocab"]
    except NmtError as error:
        raise ModelError(str(error)) from None
    except (KeyError, TypeError, AttributeError, SafetensorError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load ({type(error).__name__}: {error}). {remedy}") from None
    try:
        model = build(recipe, *sizes, weights)
    except (ModelError, TypeError, RuntimeError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {remedy}") from None
    return LoadedModel(model.eval(), recipe, folder, config)


def build(recipe: Recipe, source_vocab: int, target_vocab: int, weights: Mapping[str, Tensor]) -> Transformer:
    """A Transformer holding a copy of `weights`; no time is spent on drawing random ones. Raises ModelError."""
    with torch.device("meta"):
        model = Transformer(recipe.model, source_vocab, target_vocab)
    model.to_empty(device="cpu")
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        differing = sorted(parameters.keys() ^ weights.keys())
        raise ModelError(f"the weights do not fit the recipe: {len(differing)} names differ, the first is {differing[0]!r}.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise ModelError(f"the weights do not fit the recipe: {name} has shape {tuple(weights[name].shape)}, expected {tuple(parameter.shape)}.")
            parameter.copy_(weights[name])
        for module in model.modules():
            if isinstance(module, Sinusoidal):
                module.fill()
    return model


def find_model(path: Path) -> Path:
    """The model folder at `path`; in a run folder its averaged model, else its best, else its last checkpoint.

    Raises ModelError when there is none.
    """
    if (path / CONFIG).is_file():
        return path
    for choice in CHOICES:
        if (path / choice / CONFIG).is_file():
            return path / choice
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}. Train one (`nmt train`), or name a model or run folder with --model.")
    raise ModelError(f"{str(path)!r} holds no model: neither {CONFIG} nor any of {', '.join(CHOICES)} is in it. Name a model folder or a run folder.")


