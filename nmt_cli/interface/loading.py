"""Model folders and options ──▶ `open_models` ──▶ StoredModels: one model or an ensemble, on the chosen devices."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import status
from ..device.hardware import loading_torch
from ..errors import ModelError, RecipeError, UsageError, check_choice
from ..registry import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..data.tags import Tags
    from ..data.tokenizer import Vocabulary
    from ..recipe import Recipe
    from ..translation.forced import ForcedModel
    from ..translation.models import ModelFolder, Models
    from ..translation.scoring import PairScorer

DEFAULT_MODEL = Path("runs/latest")


def models_named(model: str | Path | Sequence[str | Path] | None) -> list[Path]:
    """Return the folder or folders of --model; without one, the folder in $NMT_MODEL, else DEFAULT_MODEL."""
    folders = [model] if isinstance(model, str | Path) else model
    return [Path(folder) for folder in folders or [os.environ.get("NMT_MODEL") or DEFAULT_MODEL]]


def decode_changes(overrides: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return all changes of the recipe's [decode] in the form of --set: `overrides`, then those `options` (key → value)
    that are not None.

    Raises UsageError for a key outside [decode].
    """
    wrong = [change for change in overrides if not change.strip().startswith("decode.")]
    if wrong:
        raise UsageError(
            f"--set {wrong[0]!r}: the recipe of a trained model cannot be changed; only decode.KEY=VALUE can."
        )
    return [*overrides, *(f"decode.{key}={value}" for key, value in options.items() if value is not None)]


def check_precision(precision: str) -> None:
    """Raise UsageError unless --precision is "auto" or registered."""
    check_choice("--precision", precision, ["auto", *PRECISIONS])


class StoredModels:
    """The models of folders, and their vocabulary. Each is read when it is first needed.

    On CPUs the engine reads them, without torch. `threads` are those of a computation that has the CPU for itself.
    """

    def __init__(self, members: Sequence[ModelFolder], devices: Sequence[str], threads: int) -> None:
        self.members, self.devices, self.threads = members, devices, threads
        self.folders = [member.path for member in members]
        self.recipe = members[0].recipe  # without changes
        self.in_int8 = any(member.config.precision == "int8" for member in members)
        self.checked = False
        self._models: dict[str, Models] = {}

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all models. Raises ModelError."""
        from ..data.tokenizer import Vocabulary

        config = self.members[0].config
        return Vocabulary.load(self.folders[0], config.vocabularies, config.tokenizers)

    @cached_property
    def tags(self) -> Tags:
        """The tags of the target languages."""
        from ..data.tags import Tags

        return Tags(self.vocabulary.source, self.recipe.data.target_language)

    @property
    def length_limits(self) -> tuple[int, int]:
        """See `model.folder_files.length_limits`."""
        from ..model.folder_files import length_limits

        return length_limits(self.recipe.data, (member.config.safe_length for member in self.members))

    def precision(self, name: str) -> str:
        """Return the precision that a name means on these devices. Raises UsageError."""
        from ..translation.models import precision_of

        return precision_of(self.members, name, self.devices[0])

    def models(self, precision: str) -> Models:
        """Return the models in this precision, on all devices. Raises ModelError, UsageError, NeedsTorch."""
        from ..translation.models import load_models

        name = self.precision(precision)
        if name not in self._models:
            with status("loading the model"):
                self._models[name] = load_models(self.members, name, self.devices, self.threads)
        return self._models[name]

    def check(self) -> None:
        """Wait until all files are checked. Raises ModelError."""
        for member in self.members:
            member.check()
        self.checked = True

    def forced(self, precision: str = "", batch_tokens: int = 4096) -> ForcedModel:
        """Return the first model, for forced passes by this thread. `precision` "": fp32, or int8 if stored in int8.

        `batch_tokens`: see `TorchForced`. Raises ModelError, UsageError, NeedsTorch.
        """
        models = self.models(precision or ("int8" if self.in_int8 else "fp32"))
        models.use_threads(self.threads)
        return models.forced(batch_tokens)

    def scorer(
        self, precision: str = "", batch_tokens: int | None = None, target_language: str | None = None
    ) -> PairScorer:
        """Return a scorer with the first model.

        Options: see `forced`; `batch_tokens` and `target_language` None are the recipe's. Raises UsageError.
        """
        from ..translation.scoring import PairScorer

        language = self.tags.chosen(target_language)
        forced = self.forced(precision, batch_tokens or self.recipe.decode.batch_tokens)
        return PairScorer(forced, self.vocabulary, self.tags, language)

    def close(self) -> None:
        """End the workers."""
        for models in self._models.values():
            models.close()


def open_models(
    paths: Sequence[Path],
    *,
    device: str = "auto",
    devices: int | None = None,
    precision: str = "",
    chosen: Callable[[Path], None] = lambda _: None,
    wait: bool = True,
) -> StoredModels:
    """Open the models at `paths` on the chosen devices. Raises UsageError, ModelError.

    For each run folder in `paths`, `chosen` is called with the model folder in it. If a `precision` is given, the
    models are read in it, while their files are checked; else they are read when they are first needed. Without `wait`
    the files may still be checked when this returns: call `check` before any result is used.
    """
    from ..device.hardware import surely_cpu
    from ..device.processor import threads_by_default
    from ..model.folder_files import find_model

    folders = [find_model(path) for path in paths]
    for folder, path in zip(folders, paths, strict=True):
        if folder != path:
            chosen(folder)
    members = [_reading(folder) for folder in folders]
    if surely_cpu(device):
        workers = workers_on("cpu", device, devices)
    else:
        from ..device.hardware import Hardware

        with loading_torch(f"--device {device}"):
            workers = workers_on(Hardware.find(device).device, device, devices)

    stored = StoredModels(members, workers, devices or threads_by_default())
    if precision or stored.in_int8:  # no other precision is possible, so a damaged file is an error of `load`
        stored.models(precision or "int8")
    if wait:
        stored.check()
    _check_vocabularies(members)
    _ = stored.vocabulary  # a damaged one is an error now
    return stored


def _reading(folder: Path) -> ModelFolder:
    """Return a model folder, and begin to check its files. Raises ModelError."""
    from ..model.folder_files import CONFIG, checking, read_config
    from ..recipe import Recipe
    from ..translation.models import ModelFolder

    config = read_config(folder)
    try:
        recipe = Recipe.from_dict(config.recipe, repr(str(folder / CONFIG)))
    except RecipeError as error:
        raise ModelError(str(error)) from None
    return ModelFolder(folder, config, recipe, checking(folder, config))


def workers_on(device: str, named: str, count: int | None) -> list[str]:
    """Return the device of each worker.

    `device` is the detected device, `named` is --device, `count` is --devices. Raises UsageError.
    """
    from ..device.processor import cores

    if device == "cpu":
        return ["cpu"] * (count or cores())
    if count in (None, 1):
        return [device]
    if ":" in named:
        raise UsageError(
            f"--device {named!r} is one GPU, --devices {count} are several: give one of the two, or --device cuda."
        )
    import torch

    available = torch.cuda.device_count()
    if count > available:
        raise UsageError(
            f"--devices {count}: torch sees {available} CUDA device{'s' * (available != 1)} here. Give "
            f"{available} or fewer."
        )
    return [f"cuda:{number}" for number in range(count)]


def _check_vocabularies(members: Sequence[ModelFolder]) -> None:
    """Raise UsageError if a model's tokenizers, or whether it reads an end symbol, differ from those of the first."""

    def reads(member: ModelFolder) -> tuple[object, ...]:
        return member.config.tokenizers, member.config.recipe.get("model", {}).get("source_end", True)

    for member in members[1:]:
        if reads(member) != reads(members[0]):
            raise UsageError(
                f"--model {str(members[0].path)!r} and --model {str(member.path)!r} have different tokenizers (by "
                "SHA-256 in config.json): "
                "the models of an ensemble must share their vocabulary, as models trained on the same shards do."
            )


def changed(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Return a recipe with these changes, in the form of --set. Raises UsageError for a wrong one."""
    from ..recipe import Recipe, apply_overrides

    values = recipe.to_dict()
    try:
        apply_overrides(values, changes)
        return Recipe.from_dict(values, "the model's recipe with these options")
    except RecipeError as error:
        raise UsageError(str(error)) from None
