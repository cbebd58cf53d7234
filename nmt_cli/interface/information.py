"""`nmt info` as functions: descriptions of a recipe, run, model folder or folder of shards, as plain dictionaries.

info(what) ──▶ parameters, vocabulary, updates, memory and kernels on this machine, the recipe
               for a folder, its checked files
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..device.hardware import loading_torch
from ..errors import NeedsTorch, UsageError
from ..model.folder_files import named_model
from ..recipe import recipe_names
from .commands import Overrides, changes_of
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..device.hardware import Hardware
    from ..recipe import Recipe

Values = dict[str, Any]
OF_TRAINING = {
    *("batch_tokens", "updates", "buckets_per_update", "bucket_tokens", "device", "precision", "devices"),
    *("micro_batch_tokens", "micro_batches_per_update", "memory_bytes", "memory_free_bytes"),
}
"""Values that say how a training of the recipe would run."""


def info(
    what: str | Path = "demo",
    *,
    devices: int = 1,
    device: str = "auto",
    overrides: Overrides = (),
    verify: bool = False,
    progress: ProgressOption = None,
) -> Values:
    """Describe a recipe by name or path, or a run, a model folder or a folder of shards, as `nmt info --json` prints
    it.

    For a folder, its files are checked. `verify` reads
    the checkpoints of a run, too. Raises UsageError, RecipeError, ModelError, DataError.
    """
    folder, changes = Path(what), changes_of(overrides)
    if str(what) not in recipe_names():
        folder = named_model(folder)
    with showing(progress):
        if folder.is_dir():
            if changes:
                raise UsageError("--set changes a recipe; a folder cannot be changed.")
            if (folder / "index.json").is_file():
                return _of_shards(folder)
            recipe, vocabularies, facts = _of_folder(folder, verify)
        else:
            if verify:
                raise UsageError(
                    f"--verify checks the files of a folder, and {str(what)!r} is none. Give a run, a model or "
                    "a folder of shards."
                )
            from ..recipe import RECIPE_SUFFIX, load_recipe

            if folder.suffix != RECIPE_SUFFIX and folder.exists() != ("/" in str(what)):
                state = "is a file" if folder.exists() else "does not exist"
                raise UsageError(
                    f"{str(what)!r} {state}: expected a recipe by name or as a .toml file, a run, a model or a folder "
                    "of shards."
                )
            recipe = load_recipe(str(what), changes)
            vocabularies, facts = (recipe.data.vocab_size, recipe.data.target_size), {"kind": "recipe"}
        here, sections = _here(recipe, vocabularies, device, devices), recipe.to_dict()
        if "imported" in facts.get("scores", {}):  # others trained it, in a way that the files do not say
            here = {key: value for key, value in here.items() if key not in OF_TRAINING}
            here["kernels"].pop("training")
            sections.pop("train")
        return {"name": recipe.name, **facts, **here, "recipe": sections}


def _here(recipe: Recipe, vocabularies: tuple[int, int], device: str, devices: int) -> Values:
    """Return the estimates for the recipe on this machine: parameters, memory and kernels."""
    from ..device.hardware import Hardware
    from ..engine.library import summary as engine_summary
    from ..engine.model import unsupported
    from ..training.estimate import estimate

    hardware = Hardware.find(device, recipe.train.precision)
    numbers = estimate(recipe, vocabularies, hardware, devices)
    on_gpu = "" if hardware.device == "cpu" else f"the device is {hardware.device}"
    reason = on_gpu or unsupported(recipe.model, "int8") or unsupported(recipe.model, "fp32")
    decoding = f"plain torch: {reason}" if reason else f"engine for {engine_summary()}"
    return {**numbers, "kernels": {"training": _training(recipe, hardware), "decoding": f"decoding: {decoding}"}}


def _training(recipe: Recipe, hardware: Hardware) -> str:
    """Return which kernels a training on this hardware uses; without torch, that it cannot run."""
    try:
        with loading_torch("it"):
            from ..kernels.choice import summary
    except NeedsTorch as error:
        return f"training: {error}"
    return summary(recipe.model, hardware.device, hardware.dtype)


def _of_folder(folder: Path, verify: bool) -> tuple[Recipe, tuple[int, int], Values]:
    """Return recipe, vocabulary sizes and facts of a run or model folder; `verify` reads all files of the folder."""
    from ..data.tokenizer import Vocabulary
    from ..model.folder_files import CONFIG, check_files, find_model, read_config, read_metrics
    from ..model.weights import check_weights
    from ..recipe import Recipe
    from ..training.run import RunFolder

    model = find_model(folder)
    config = read_config(model)
    check_files(model, config.sha256)
    tags = Vocabulary.load(model, config.vocabularies, config.tokenizers).source.tags
    checkpoints = RunFolder(folder).checkpoints()
    facts: Values = {
        "kind": "run" if model != folder else "model",
        "model": str(model),
        "package_version": config.package_version,
        **({"target_languages": list(tags)} if tags else {}),
    }
    if checkpoints:
        facts |= {"updates_done": checkpoints[-1].update, "checkpoints": [c.folder.name for c in checkpoints]}
    if verify:
        for checkpoint in checkpoints:
            checkpoint.verify()
        facts["verified"] = [str(model), *(str(checkpoint.folder) for checkpoint in checkpoints)]
    facts |= {"weights": config.precision, "scores": read_metrics(model)}
    recipe = Recipe.from_dict(config.recipe, f"{str(model / CONFIG)!r}")
    check_weights(model, config, recipe)
    return recipe, config.vocabularies, facts


def _of_shards(folder: Path) -> Values:
    """Check the files of a folder of shards and return a description of its contents."""
    from ..data import shards

    index = shards.verify(folder)
    return {"kind": "shards", "folder": str(folder), **index.model_dump(exclude={"data"})}
