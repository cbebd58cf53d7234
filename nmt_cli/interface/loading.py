"""Model folders and options ──▶ `Loaded` ──▶ `decoding`'s Translator: one model or an ensemble, on the chosen devices."""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import say, status
from ..errors import ModelError, NmtError, RecipeError, UsageError
from ..registry import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..data.tokenizer import Vocabulary
    from ..decoding.model_workers import ConvertedModels
    from ..decoding.ready import ReadyModel
    from ..decoding.translator import Translator
    from ..model.contents import ModelConfig
    from ..model.transformer import Transformer
    from ..recipe import Recipe


DEFAULT_MODEL = Path("runs/latest")


def models_named(folders: list[Path] | None) -> list[Path]:
    """Return the folders of --model; without them, the folder in $NMT_MODEL, else DEFAULT_MODEL."""
    return folders or [Path(os.environ.get("NMT_MODEL") or DEFAULT_MODEL)]


def decode_changes(overrides: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return all changes of the recipe's [decode] in the form of --set: `overrides`, then those `options` (key → value) that are not None.

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
    names = ["auto", *PRECISIONS]
    if precision not in names:
        raise UsageError(f"--precision {precision!r}: expected {', '.join(names[:-1])} or {names[-1]}.")


def recipe_search(paths: Sequence[Path]) -> str:
    """Return the name of the search in the recipe of the first model. Raises ModelError."""
    from ..model.contents import find_model, read_config
    from ..recipe import DecodeSection

    decode = read_config(find_model(paths[0])).recipe.get("decode")
    search = decode.get("search") if isinstance(decode, dict) else None
    return search if isinstance(search, str) else str(DecodeSection().search)


class StoredModels:
    """The models of folders whose files were checked. A model is read when it is first needed.

    `ready_in`: the precision of a model that may be `ready`, "": there is none. Then torch is not loaded yet; `threads` is the number of its
    threads, None: its default.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        configs: Sequence[ModelConfig],
        devices: Sequence[str],
        ready_in: str = "",
        threads: int | None = None,
    ) -> None:
        self.folders, self.configs, self.devices, self.ready_in, self.threads = (
            folders,
            configs,
            devices,
            ready_in,
            threads,
        )
        self._models: list[Transformer] = []
        self._converted: dict[str, ConvertedModels] = {}

    @property
    def in_int8(self) -> bool:
        """Whether at least one model is stored in int8."""
        return any(config.precision == "int8" for config in self.configs)

    @cached_property
    def ready(self) -> ReadyModel | None:
        """The model for plain beam search without torch, if it can be read."""
        from ..decoding.ready import ready_model

        return ready_model(self.configs[0], self.ready_in, self.threads) if self.ready_in else None

    def models(self) -> list[Transformer]:
        """Return the models on the first device, in fp32; models that are stored in int8 stay in int8. Raises ModelError."""
        if not self._models:
            self._start_torch()
            self._models = [self._load(folder).to(self.devices[0]) for folder in self.folders]
        return self._models

    def converted(self, precision: str) -> ConvertedModels:
        """Return the models converted to `precision`, on all devices. Raises ModelError, UsageError."""
        if precision not in self._converted:
            with status("loading the model"):
                from ..decoding.model_workers import ConvertedModels
                from ..device import return_freed_memory

                self._start_torch()
                release = self.devices[0] == "cpu" and not self._models
                models = self._read(precision) if release else self.models()
                converted = self._converted[precision] = ConvertedModels.of(models, precision, self.devices, release)
                del models
                if precision == "int8":
                    self._keep_ready(converted)
                return_freed_memory()  # reading and converting a model leaves free memory that translating does not need
            for kernels in converted.kernels:
                if kernels.unknown_forms:
                    say(kernels.summary)
        return self._converted[precision]

    def _start_torch(self) -> None:
        import torch

        _let_forks_compute()
        if self.threads:
            torch.set_num_threads(self.threads)  # threads for few lines, which one worker translates alone

    def _keep_ready(self, converted: ConvertedModels) -> None:
        """Keep a model for later commands that do plain beam search, if the compiled functions take whole steps with it."""
        from ..kernels.choice import fastest_precision

        if len(converted.kernels) == 1 and (steps := converted.kernels[0].whole_steps):
            from ..kernels.cpu_decoding.storing import store

            store(steps, self.configs[0], fastest_precision("cpu") == "int8")

    def _read(self, precision: str) -> list[Transformer]:
        """Read the models for `precision`. For int8 they are in int8; if the cache has an int8 model, its fp32 weights are not read."""
        if precision != "int8":
            return [self._load(folder) for folder in self.folders]
        from ..model.int8_cache import int8_model
        from ..recipe import Recipe

        def model(folder: Path, config: ModelConfig) -> Transformer:
            if config.precision == "int8":
                return self._load(folder)
            return int8_model(config, Recipe.from_dict(config.recipe, str(folder)), partial(self._load, folder))

        return [model(*pair) for pair in zip(self.folders, self.configs, strict=True)]

    def _load(self, folder: Path) -> Transformer:
        """Return the model of a folder whose files were checked."""
        from ..model.folder import load_model

        checked: Future[None] = Future()
        checked.set_result(None)
        return load_model(folder, checked, quantized=True).model


@dataclass(frozen=True)
class Loaded:
    """Models, their vocabulary, and the recipe of the first model with the changes of the options."""

    folders: list[Path]
    stored: StoredModels
    vocabulary: Vocabulary
    values: dict[str, object]
    """The recipe of the first model as it is in config.json, without changes."""
    recipe: Recipe
    devices: list[str]

    @property
    def models(self) -> list[Transformer]:
        """The models on the first of `devices`, in fp32; models that are stored in int8 stay in int8. Raises ModelError."""
        return self.stored.models()

    @property
    def length_limits(self) -> tuple[int, int]:
        """See `contents.length_limits`."""
        from ..model.contents import length_limits

        return length_limits(self.recipe.data, (config.safe_length for config in self.stored.configs))

    def changed(self, changes: Sequence[str], nbest: int = 1) -> Loaded:
        """Return the same models, with their unchanged recipe and these changes of [decode]. Raises UsageError."""
        return replace(self, recipe=_changed(self.values, changes, nbest))

    def translator(self, *, nbest: int = 1, precision: str = "auto", plain: bool = False, **options: Any) -> Translator:
        """Return a Translator with these models. `options` are further parameters of Translator. `plain`: the lines and `options` need nothing but beam search."""
        from ..decoding.ready import is_plain
        from ..decoding.translator import Translator

        safe, longest = self.length_limits
        ready = self.stored.ready if plain and is_plain(self.recipe.decode) else None
        return Translator(
            ready or self.in_precision(precision),
            self.vocabulary.source,
            self.vocabulary.target,
            self.recipe.decode,
            longest=longest,
            safe_length=safe,
            nbest=nbest,
            defaults=self.recipe.constraint_values,
            **options,
        )

    def in_precision(self, precision: str) -> ConvertedModels:
        """Return the converted models. "auto" means int8 if a model is stored in int8, else the fastest precision on the device."""
        from ..kernels.choice import fastest_precision

        name = precision
        if precision == "auto":
            name = "int8" if self.stored.in_int8 else fastest_precision(self.devices[0])
        return self.stored.converted(name)


def load_translator(
    paths: Sequence[Path],
    changes: Sequence[str],
    *,
    nbest: int,
    device: str,
    devices: int | None,
    precision: str,
    chosen: Callable[[Path], None] = lambda _: None,
    **options: Any,
) -> Translator:
    """Return a Translator with the models at `paths` and the first model's recipe with `changes`. `options` are further parameters of Translator."""
    return load(paths, changes, nbest=nbest, device=device, devices=devices, chosen=chosen).translator(
        nbest=nbest, precision=precision, **options
    )


def load(
    paths: Sequence[Path],
    changes: Sequence[str],
    *,
    nbest: int = 1,
    device: str = "auto",
    devices: int | None = None,
    ready_in: str = "",
    chosen: Callable[[Path], None] = lambda _: None,
) -> Loaded:
    """Load the models at `paths` on the chosen devices. Raises UsageError, ModelError.

    For each run folder in `paths`, `chosen` is called with the model folder in it. `ready_in`: a precision. If the cache folder has the model in
    this precision and in the form that the compiled functions read, torch is not loaded before it is needed.
    """
    from ..decoding.ready import may_be_ready
    from ..hardware import Hardware, cores, surely_cpu
    from ..model.contents import checking, find_model, read_config

    folders = [find_model(path) for path in paths]
    for folder, path in zip(folders, paths, strict=True):
        if folder != path:
            chosen(folder)
    configs = [read_config(folder) for folder in folders]
    recipe = _changed(configs[0].recipe, changes, nbest)
    checks = [
        checking(folder, config) for folder, config in zip(folders, configs, strict=True)
    ]  # the files are checked while torch loads
    without_torch = bool(ready_in) and len(configs) == 1 and surely_cpu(device) and may_be_ready(configs[0], ready_in)
    if without_torch:
        workers = ["cpu"] * (devices or cores())
    else:
        with status("loading torch"):
            workers = workers_on(Hardware.find(device).device, device, devices)

    from ..data.tokenizer import Vocabulary

    for checked in checks:
        try:
            checked.result()
        except NmtError as error:
            raise ModelError(str(error)) from None
    _check_vocabularies(folders, configs)
    vocabulary = Vocabulary.load(folders[0], configs[0].vocabularies, configs[0].tokenizers)
    stored = (
        StoredModels(folders, configs, workers, ready_in, devices)
        if without_torch
        else StoredModels(folders, configs, workers)
    )
    if (
        stored.in_int8 and not without_torch
    ):  # no other precision is possible, so it is read here, where a damaged file is an error of `load`
        stored.converted("int8")
    return Loaded(folders, stored, vocabulary, configs[0].recipe, recipe, workers)


@cache
def _let_forks_compute() -> None:
    """Let forks of this process compute with one thread. A fork does not have the threads of torch's pool, and would wait for them for ever."""
    import torch

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def workers_on(device: str, named: str, count: int | None) -> list[str]:
    """Return the device of each worker. `device` is the detected device, `named` is --device, `count` is --devices. Raises UsageError."""
    import torch

    from ..hardware import cores

    if device == "cpu":
        if count:
            torch.set_num_threads(count)  # threads for few lines, which one worker translates alone
        return ["cpu"] * (count or cores())
    if count in (None, 1):
        return [device]
    if ":" in named:
        raise UsageError(
            f"--device {named!r} is one GPU, --devices {count} are several: give one of the two, or --device cuda."
        )
    available = torch.cuda.device_count()
    if count > available:
        raise UsageError(
            f"--devices {count}: torch sees {available} CUDA device{'s' * (available != 1)} here. Give {available} or fewer."
        )
    return [f"cuda:{number}" for number in range(count)]


def _check_vocabularies(folders: Sequence[Path], configs: Sequence[ModelConfig]) -> None:
    """Raise UsageError if a model's tokenizers differ from those of the first model."""
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        if config.tokenizers != configs[0].tokenizers:
            raise UsageError(
                f"--model {str(folders[0])!r} and --model {str(folder)!r} have different tokenizers (by SHA-256 in config.json): "
                "the models of an ensemble must share their vocabulary, as models trained on the same shards do."
            )


def _changed(values: dict[str, object], changes: Sequence[str], nbest: int) -> Recipe:
    """Return the recipe with these values and changes. Raises UsageError; ModelError for wrong values without changes."""
    from ..recipe import Recipe
    from ..recipe_files import apply_overrides

    values = {section: dict(keys) if isinstance(keys, dict) else keys for section, keys in values.items()}
    try:
        apply_overrides(values, changes)
        recipe = Recipe.from_dict(values, f"the model's recipe{' with these options' if changes else ''}")
    except RecipeError as error:
        raise (UsageError if changes else ModelError)(str(error)) from None
    if nbest > recipe.decode.beam:
        raise UsageError(f"--nbest {nbest} exceeds the beam of {recipe.decode.beam}: give --beam {nbest} or more.")
    return recipe
