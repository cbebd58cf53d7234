"""Model folders and options on the command line ──▶ a `Translator`: one model or an ensemble, on the devices asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..decoding.sampling import Sampling
    from ..decoding.translator import Translator
    from ..model.folder import LoadedModel
    from ..recipe import Recipe


def load_translator(
    paths: Sequence[Path], changes: Sequence[str], *,
    nbest: int, device: str, devices: int | None, precision: str, sampling: Sampling | None, align: bool,
) -> Translator:  # fmt: skip
    """The models at `paths`, ready to translate by the first one's recipe with `changes`."""
    from ..console import say
    from ..errors import RecipeError, UsageError
    from ..hardware import Hardware
    from ..model.contents import checking, find_model, read_config

    folders = [find_model(path) for path in paths]
    for folder, path in zip(folders, paths, strict=True):
        if folder != path:
            say(f"model: {folder}")
    configs = [read_config(folder) for folder in folders]
    try:
        recipe = _overridden(configs[0]["recipe"], changes)
    except RecipeError as error:
        raise UsageError(str(error)) from None
    if nbest > recipe.decode.beam:
        raise UsageError(f"--nbest {nbest} exceeds the beam of {recipe.decode.beam}: give --beam {nbest} or more.")
    checks = [checking(folder, config) for folder, config in zip(folders, configs, strict=True)]  # while torch loads
    workers = workers_on(Hardware.find(device).device, device, devices)

    from ..data.tokenizer import Vocabulary
    from ..decoding.precision import fastest
    from ..decoding.translator import Translator
    from ..model.folder import load_model

    loaded = [load_model(folder, checked) for folder, checked in zip(folders, checks, strict=True)]
    _check_vocabularies(loaded)
    vocabulary = Vocabulary.load(folders[0])
    return Translator(
        [one.model.to(workers[0]) for one in loaded], vocabulary.source, vocabulary.target, recipe.decode,
        longest=recipe.data.max_length, nbest=nbest, precision=fastest(workers[0]) if precision == "auto" else precision,
        devices=workers, sampling=sampling, align=align,
    )  # fmt: skip


def workers_on(device: str, named: str, count: int | None) -> list[str]:
    """The device of each worker: `device` is what there is, `named` what --device says, `count` what --devices says."""
    import torch

    from ..errors import UsageError
    from ..hardware import cores

    if device == "cpu":
        if count:
            torch.set_num_threads(count)  # of the few lines that one worker alone translates
        return ["cpu"] * (count or cores())
    if count in (None, 1):
        return [device]
    if ":" in named:
        raise UsageError(f"--device {named!r} is one GPU, --devices {count} are several: give one of the two, or --device cuda.")
    there = torch.cuda.device_count()
    if count > there:
        raise UsageError(f"--devices {count}: torch sees {there} CUDA device{'s' * (there != 1)} here. Give {there} or fewer.")
    return [f"cuda:{number}" for number in range(count)]


def _check_vocabularies(loaded: Sequence[LoadedModel]) -> None:
    """Raise UsageError where a model's tokenizers are not those of the first."""
    from ..errors import UsageError
    from ..model.contents import WEIGHTS

    def tokenizers(one: LoadedModel) -> dict[str, Any]:
        return {name: digest for name, digest in one.config["sha256"].items() if name != WEIGHTS}

    first = loaded[0]
    for other in loaded[1:]:
        if tokenizers(other) != tokenizers(first):
            raise UsageError(
                f"--model {str(first.folder)!r} and --model {str(other.folder)!r} have different tokenizers (by SHA-256 in config.json): "
                "an ensemble is of models that share their vocabulary, as those that were trained on the same shards do."
            )


def _overridden(values: dict[str, object], changes: Sequence[str]) -> Recipe:
    from ..recipe import Recipe, lay_over

    for change in changes:
        lay_over(values, change)
    return Recipe.from_dict(values, "the model's recipe")
