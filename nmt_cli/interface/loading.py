"""Model folders and options ──▶ `Loaded` ──▶ `decoding`'s Translator: one model or an ensemble, on the chosen devices."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import say
from ..errors import RecipeError, UsageError
from ..registry import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..data.tokenizer import Vocabulary
    from ..decoding.translator import Translator
    from ..decoding.workers import ConvertedModels
    from ..model.folder import LoadedModel
    from ..model.transformer import Transformer
    from ..recipe import Recipe


DEFAULT_MODEL = Path("runs/latest")


def models_named(given: list[Path] | None) -> list[Path]:
    """Return the folders of --model, else of $NMT_MODEL, else DEFAULT_MODEL."""
    return given or [Path(os.environ.get("NMT_MODEL") or DEFAULT_MODEL)]


def decode_changes(overrides: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Return the changes of the recipe's [decode], in the form of --set: `overrides`, and the options in `given`, by key, that are not None."""
    wrong = [change for change in overrides if not change.strip().startswith("decode.")]
    if wrong:
        raise UsageError(f"--set {wrong[0]!r}: the recipe of a trained model cannot be changed; only decode.KEY=VALUE can.")
    return [*overrides, *(f"decode.{key}={value}" for key, value in given.items() if value is not None)]


def check_precision(precision: str) -> None:
    """Raise UsageError unless --precision is "auto" or registered."""
    names = ["auto", *PRECISIONS]
    if precision not in names:
        raise UsageError(f"--precision {precision!r}: expected {', '.join(names[:-1])} or {names[-1]}.")


def recipe_search(paths: Sequence[Path]) -> str:
    """Return the search that the recipe of the first model names. Raises ModelError."""
    from ..model.contents import find_model, read_config
    from ..recipe import DecodeSection

    decode = read_config(find_model(paths[0])).recipe.get("decode")
    found = decode.get("search") if isinstance(decode, dict) else None
    return found if isinstance(found, str) else str(DecodeSection().search)


@dataclass(frozen=True)
class Loaded:
    """Models in fp32, or as they are stored in int8, on the first of `devices`, their vocabulary, and the first one's recipe with what was changed in it."""

    folders: list[Path]
    models: list[Transformer]
    vocabulary: Vocabulary
    values: dict[str, object]
    """The recipe of the first model as its config.json has it."""
    recipe: Recipe
    devices: list[str]
    converted: dict[str, ConvertedModels] = field(default_factory=dict)
    """By precision, the models as they were converted to it."""

    def changed(self, changes: Sequence[str], nbest: int = 1) -> Loaded:
        """Return the same models with these changes of [decode]. Raises UsageError."""
        return replace(self, recipe=_changed(self.values, changes, nbest))

    def translator(self, *, nbest: int = 1, precision: str = "auto", **options: Any) -> Translator:
        """Return what translates with them. `options` are more parameters of Translator."""
        from ..decoding.translator import Translator

        return Translator(
            self.in_precision(precision), self.vocabulary.source, self.vocabulary.target, self.recipe.decode,
            longest=self.recipe.data.max_length, nbest=nbest, defaults=self.recipe.constraint_values, **options,
        )  # fmt: skip

    def in_precision(self, precision: str) -> ConvertedModels:
        """Return the converted models; "auto": in int8 if they are stored so, else in the precision that is fastest on the device."""
        from ..decoding.workers import ConvertedModels
        from ..kernels import fastest_precision
        from ..model.precision import in_int8

        name = precision
        if precision == "auto":
            name = "int8" if any(in_int8(model) for model in self.models) else fastest_precision(self.devices[0])
        if name not in self.converted:
            self.converted[name] = ConvertedModels.of(self.models, name, self.devices)
            for kernels in self.converted[name].kernels:
                if kernels.unknown_forms:
                    say(kernels.summary)
        return self.converted[name]


def load_translator(
    paths: Sequence[Path], changes: Sequence[str], *, nbest: int, device: str, devices: int | None, precision: str, chosen: Callable[[Path], None] = lambda _: None,
    **options: Any,
) -> Translator:  # fmt: skip
    """Return a translator with the models at `paths`, by the first one's recipe with `changes`; `options` are more parameters of Translator."""
    return load(paths, changes, nbest=nbest, device=device, devices=devices, chosen=chosen).translator(nbest=nbest, precision=precision, **options)


def load(
    paths: Sequence[Path], changes: Sequence[str], *, nbest: int = 1, device: str = "auto", devices: int | None = None, chosen: Callable[[Path], None] = lambda _: None
) -> Loaded:
    """Load the models at `paths` on the chosen devices. Raises UsageError, ModelError.

    `chosen` is called with each model folder that was found in a run folder.
    """
    from ..hardware import Hardware
    from ..model.contents import checking, find_model, read_config

    folders = [find_model(path) for path in paths]
    for folder, path in zip(folders, paths, strict=True):
        if folder != path:
            chosen(folder)
    configs = [read_config(folder) for folder in folders]
    recipe = _changed(configs[0].recipe, changes, nbest)
    checks = [checking(folder, config) for folder, config in zip(folders, configs, strict=True)]  # while torch loads
    workers = workers_on(Hardware.find(device).device, device, devices)

    from ..data.tokenizer import Vocabulary
    from ..model.folder import load_model

    loaded = [load_model(folder, checked, quantized=True) for folder, checked in zip(folders, checks, strict=True)]
    _check_vocabularies(loaded)
    vocabulary = Vocabulary.load(folders[0], loaded[0].config.vocabularies)
    return Loaded(folders, [one.model.to(workers[0]) for one in loaded], vocabulary, configs[0].recipe, recipe, workers)


def workers_on(device: str, named: str, count: int | None) -> list[str]:
    """Return the device of each worker. `device` is the one that was detected, `named` is --device, `count` is --devices."""
    import torch

    from ..hardware import cores

    if device == "cpu":
        if count:
            torch.set_num_threads(count)  # of the few lines that one worker alone translates
        return ["cpu"] * (count or cores())
    if count in (None, 1):
        return [device]
    if ":" in named:
        raise UsageError(f"--device {named!r} is one GPU, --devices {count} are several: give one of the two, or --device cuda.")
    available = torch.cuda.device_count()
    if count > available:
        raise UsageError(f"--devices {count}: torch sees {available} CUDA device{'s' * (available != 1)} here. Give {available} or fewer.")
    return [f"cuda:{number}" for number in range(count)]


def _check_vocabularies(loaded: Sequence[LoadedModel]) -> None:
    """Raise UsageError if a model's tokenizers differ from those of the first."""
    first = loaded[0]
    for other in loaded[1:]:
        if other.config.tokenizers != first.config.tokenizers:
            raise UsageError(
                f"--model {str(first.folder)!r} and --model {str(other.folder)!r} have different tokenizers (by SHA-256 in config.json): "
                "the models of an ensemble must share their vocabulary, as models trained on the same shards do."
            )


def _changed(values: dict[str, object], changes: Sequence[str], nbest: int) -> Recipe:
    """Return the recipe with these values and changes. Raises UsageError."""
    from ..recipe import Recipe
    from ..recipe_files import apply_override

    values = {section: dict(keys) if isinstance(keys, dict) else keys for section, keys in values.items()}
    try:
        for change in changes:
            apply_override(values, change)
        recipe = Recipe.from_dict(values, f"the model's recipe{' with these options' if changes else ''}")
    except RecipeError as error:
        raise UsageError(str(error)) from None
    if nbest > recipe.decode.beam:
        raise UsageError(f"--nbest {nbest} exceeds the beam of {recipe.decode.beam}: give --beam {nbest} or more.")
    return recipe
