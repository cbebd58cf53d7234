"""Model folders and options ──▶ `open_models` ──▶ StoredModels: one model or an ensemble, on the chosen devices."""

from __future__ import annotations

import os
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import status, warn_once
from ..device import is_host
from ..engine.library import OFF, VARIABLE
from ..errors import ModelError, NmtError, RecipeError, UsageError, check_choice
from ..hardware import fast_precision, loading_torch
from ..model.folder_files import check_int8
from ..registry import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..data.tags import Tags
    from ..data.tokenizer import Vocabulary
    from ..model.folder_files import ModelConfig
    from ..model.transformer import Transformer
    from ..recipe import Recipe
    from ..translation.forced import ForcedModel
    from ..translation.models import Models
    from ..translation.scoring import Scorer


DEFAULT_MODEL = Path("runs/latest")
SLOWER = "translating with torch, which is slower: "
"""The beginning of a warning that the engine does not translate."""


def models_named(folders: list[Path] | None) -> list[Path]:
    """Return the folders of --model; without them, the folder in $NMT_MODEL, else DEFAULT_MODEL."""
    return folders or [Path(os.environ.get("NMT_MODEL") or DEFAULT_MODEL)]


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
    """The models of folders, whose files are being checked, and their vocabulary. Each is read when it is first needed.

    On CPUs the engine reads them, without torch. `threads` are those of a computation that has the CPU for itself.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        configs: Sequence[ModelConfig],
        devices: Sequence[str],
        threads: int,
        checks: Sequence[Future[None]],
    ) -> None:
        from ..model.folder_files import CONFIG

        self.folders, self.configs, self.devices, self.threads = folders, configs, devices, threads
        self.recipes = [
            read_recipe(config.recipe, repr(str(folder / CONFIG)))
            for folder, config in zip(folders, configs, strict=True)
        ]
        self._checks = list(checks)
        self._models: list[Transformer] = []
        self._searchable: dict[str, Models] = {}

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first model, without changes."""
        return self.recipes[0]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all models. Raises ModelError."""
        from ..data.tokenizer import Vocabulary

        return Vocabulary.load(self.folders[0], self.configs[0].vocabularies, self.configs[0].tokenizers)

    @cached_property
    def tags(self) -> Tags:
        """The tags of the target languages."""
        from ..data.tags import Tags

        return Tags(self.vocabulary.source, self.recipe.data.target_language)

    @property
    def length_limits(self) -> tuple[int, int]:
        """See `model.folder_files.length_limits`."""
        from ..model.folder_files import length_limits

        return length_limits(self.recipe.data, (config.safe_length for config in self.configs))

    @property
    def in_int8(self) -> bool:
        """Whether at least one model is stored in int8."""
        return any(config.precision == "int8" for config in self.configs)

    def check(self) -> None:
        """Wait until all files are checked. Raises ModelError."""
        for checked in self._checks:
            try:
                checked.result()
            except NmtError as error:
                raise ModelError(str(error)) from None

    def models(self, reason: str = "") -> list[Transformer]:
        """Return the models of torch on the first device, in fp32; models that are stored in int8 stay in int8.

        Raises ModelError; NeedsTorch, with the `reason` why the engine does not take them.
        """
        if not self._models:
            with loading_torch(f"the model {str(self.folders[0])!r}{f' ({reason})' * bool(reason)}"):
                import torch

                from ..device import let_forks_compute
                from ..model.folder import load_model

            let_forks_compute()
            torch.set_num_threads(self.threads)
            checked: Future[None] = Future()
            checked.set_result(None)
            self.check()
            self._models = [
                load_model(folder, checked, quantized=True).model.to(self.devices[0]) for folder in self.folders
            ]
        return self._models

    def precision(self, name: str) -> str:
        """Return the precision that "auto" means: int8 for models stored in int8, else the fastest. Other names stay.

        Raises UsageError for a precision that models in int8 do not have.
        """
        if self.in_int8:
            check_int8("int8" if name == "auto" else name)
            return "int8"
        if name != "auto":
            return name
        if is_host(self.devices[0]):
            precision = next((one for one in ("int8", "fp32") if not self.declined(one)), "")
            if precision:
                return precision
            _warn(self.declined("fp32"))
        return fast_precision(self.devices[0])

    def declined(self, precision: str) -> str:
        """Return why the engine does not take the models in this precision; "" if it does. Raises ModelError."""
        from ..engine.model import unsupported

        if not is_host(self.devices[0]):
            return f"the device is {self.devices[0]}"
        return next(filter(None, (unsupported(recipe.model, precision) for recipe in self.recipes)), "")

    def searchable(self, precision: str) -> Models:
        """Return the models in this precision, on all devices. Raises ModelError, UsageError, NeedsTorch."""
        name = self.precision(precision)
        if name not in self._searchable:
            with status("loading the model"):
                reason = self._reason(name)
                self._searchable[name] = self._converted(name, reason) if reason else self._packed(name)
        return self._searchable[name]

    def forced(self, precision: str = "", batch_tokens: int = 4096) -> ForcedModel:
        """Return the first model, for forced passes by this thread. `precision` "": fp32, or int8 if stored in int8.

        `batch_tokens`: see `TorchForced`. Raises ModelError, UsageError, NeedsTorch.
        """
        name = self.precision(precision or ("int8" if self.in_int8 else "fp32"))
        if reason := self._reason(name):
            model = self.models(reason)[0]

            from ..model.precision import convert
            from ..translation.torch_forced import TorchForced

            return TorchForced(convert(model, name), batch_tokens)
        from ..engine.model import use_threads
        from ..translation.models import EngineModels

        models = self.searchable(name)
        assert isinstance(models, EngineModels)
        use_threads(self.threads)
        return models.models[0]

    def _reason(self, precision: str) -> str:
        """Return `declined`, and warn if the engine has this precision but does not take the models."""
        from ..engine.model import PRECISIONS

        reason = self.declined(precision)
        if reason and is_host(self.devices[0]) and precision in PRECISIONS:
            _warn(reason)
        return reason

    def _packed(self, precision: str) -> Models:
        """Return the engine's models. They are packed while their files are checked."""
        from ..engine.model import EngineModel, use_threads
        from ..model.folder_files import REMEDY, WEIGHTS
        from ..model.weights import mapped_weights
        from ..translation.models import EngineModels

        use_threads(self.threads)
        try:
            models = [
                EngineModel(recipe.model, config.vocabularies, mapped_weights(folder / WEIGHTS), precision)
                for folder, config, recipe in zip(self.folders, self.configs, self.recipes, strict=True)
            ]
        except (ModelError, OSError) as error:
            self.check()
            raise ModelError(
                f"{' or '.join(repr(str(folder)) for folder in self.folders)} does not load: {error} {REMEDY}"
            ) from None
        self.check()
        return EngineModels(models, len(self.devices), self.threads)

    def _converted(self, precision: str, reason: str) -> Models:
        """Return models of torch; `reason`: see `models`."""
        several = len(set(self.devices)) > 1
        models = [] if several else self.models(reason)

        from ..translation.models import DeviceModels, TorchModels

        if several:
            self.check()
            return DeviceModels(self.folders, precision, self.devices)
        return TorchModels(models, precision, len(self.devices), self.threads)

    def scorer(
        self, precision: str = "", batch_tokens: int | None = None, target_language: str | None = None
    ) -> Scorer:
        """Return a scorer with the first model.

        Options: see `forced`; `batch_tokens` and `target_language` None are the recipe's. Raises UsageError.
        """
        from ..translation.scoring import Scorer

        language = self.tags.chosen(target_language)
        forced = self.forced(precision, batch_tokens or self.recipe.decode.batch_tokens)
        return Scorer(forced, self.vocabulary, self.tags, language)

    def close(self) -> None:
        """End the workers."""
        for models in self._searchable.values():
            models.close()


def _warn(reason: str) -> None:
    """Warn that torch translates, and why; not where the user has asked for it."""
    if os.environ.get(VARIABLE) != OFF:
        warn_once(f"{SLOWER}{reason}.")


def open_models(
    paths: Sequence[Path],
    *,
    device: str = "auto",
    devices: int | None = None,
    precision: str = "",
    chosen: Callable[[Path], None] = lambda _: None,
) -> StoredModels:
    """Open the models at `paths` on the chosen devices. Raises UsageError, ModelError.

    For each run folder in `paths`, `chosen` is called with the model folder in it. If a `precision` is given, the
    models are read in it, while their files are checked; else they are read when they are first needed.
    """
    from ..hardware import surely_cpu, threads_by_default
    from ..model.folder_files import checking, find_model, read_config

    folders = [find_model(path) for path in paths]
    for folder, path in zip(folders, paths, strict=True):
        if folder != path:
            chosen(folder)
    configs = [read_config(folder) for folder in folders]
    checks = [checking(folder, config) for folder, config in zip(folders, configs, strict=True)]
    if surely_cpu(device):
        workers = workers_on("cpu", device, devices)
    else:
        from ..hardware import Hardware

        with loading_torch(f"--device {device}"):
            workers = workers_on(Hardware.find(device).device, device, devices)

    stored = StoredModels(folders, configs, workers, devices or threads_by_default(), checks)
    if precision or stored.in_int8:  # no other precision is possible, so a damaged file is an error of `load`
        stored.searchable(precision or "int8")
    stored.check()
    _check_vocabularies(folders, configs)
    _ = stored.vocabulary  # a damaged one is an error now
    return stored


def workers_on(device: str, named: str, count: int | None) -> list[str]:
    """Return the device of each worker.

    `device` is the detected device, `named` is --device, `count` is --devices. Raises UsageError.
    """
    from ..hardware import cores

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


def _check_vocabularies(folders: Sequence[Path], configs: Sequence[ModelConfig]) -> None:
    """Raise UsageError if a model's tokenizers differ from those of the first model."""
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        if config.tokenizers != configs[0].tokenizers:
            raise UsageError(
                f"--model {str(folders[0])!r} and --model {str(folder)!r} have different tokenizers (by "
                "SHA-256 in config.json): "
                "the models of an ensemble must share their vocabulary, as models trained on the same shards do."
            )


def read_recipe(values: dict[str, Any], where: str) -> Recipe:
    """Return the recipe of a stored model. Raises ModelError if it is none; it names the file `where`."""
    from ..recipe import Recipe

    try:
        return Recipe.from_dict(values, where)
    except RecipeError as error:
        raise ModelError(str(error)) from None


def changed(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Return a recipe with these changes, in the form of --set. Raises UsageError for a wrong one."""
    from ..recipe import Recipe, apply_overrides

    values = recipe.to_dict()
    try:
        apply_overrides(values, changes)
        return Recipe.from_dict(values, "the model's recipe with these options")
    except RecipeError as error:
        raise UsageError(str(error)) from None
