"""Checkpoint averaging: the mean of the weights of several checkpoints (section 6.1: the last 5, for big the last 20).

choose(run, …) ──▶ checkpoint folders
    ──▶ average(folders, out): check that they fit together, validate the mean, write a model folder

metrics.json of an average has its validation scores and

    averaged          the names of the folders
    last_checkpoint   the newest checkpoint, at that time, of the run that it lies in
    worse_than        the checkpoint that has a better validation score; then the average is not used (`find_model`)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from .. import console
from ..data.tokenizer import LARGEST
from ..errors import ModelError, UsageError, write_failed
from ..files import follow_links, read_bounded, system_error
from ..model.contents import CONFIG, WEIGHTS, ModelConfig, not_an_average, read_config
from ..model.folder import load_model, weights_of
from ..model.weights import write_model
from ..output_paths import check_output_folder, output_folder
from ..recipe import Recipe
from .average_validation import Comparison, compare, otherwise
from .checkpoint import best_of
from .run import RunFolder


def choose(run: Path, last: int = 0, best: int = 0) -> list[Path]:
    """Return the folders of the run's last `last` or best `best` checkpoints.

    By default, return the last ones, as many as `train.average`.

    The last checkpoints are the last periodic ones; only if the run has no periodic checkpoint, the others count.

    Raises ModelError when there are too few checkpoints, UsageError when both `last` and `best` are given.
    """
    if last and best:
        raise UsageError(f"--last {last} and --best {best}: choose one of them.")
    checkpoints = RunFolder(run).checkpoints()
    if not checkpoints:
        raise ModelError(f"run {str(run)!r} has no checkpoints to average. Train it first, or name another run folder.")
    newest = checkpoints[-1].folder
    recipe = Recipe.from_dict(read_config(newest).recipe, str(newest))
    newest_first = checkpoints[::-1]
    ranked = (
        best_of(checkpoints, recipe.train.best_metric)
        if best
        else [c for c in newest_first if c.periodic] or newest_first
    )
    count = best or last or min(recipe.train.average, len(ranked))
    if len(ranked) < count:
        kind = f"{'validated ' * bool(best)}checkpoint{'s' * (len(ranked) != 1)}"
        raise ModelError(
            f"run {str(run)!r} has {len(ranked)} {kind}, {count} were asked for. Ask for fewer, or keep more "
            "(train.keep, train.keep_best)."
        )
    return sorted(checkpoint.folder for checkpoint in ranked[:count])


def average(folders: Sequence[Path], out: Path, data: Path | None = None) -> tuple[dict[str, Any], Comparison | None]:
    """Write the mean of the model folders' weights to the model folder `out`.

    Return the content of its metrics.json, and its validation.

    `data`: see `average_validation.compare`. Raises ModelError if a folder is damaged or in int8, if two folders have
    the same weights, or if architectures or vocabularies differ. Raises UsageError if `out` is neither free nor an
    earlier average, or is one of the inputs.
    """
    check_output_folder(out, "the averaged model", not_an_average, folders)
    metrics: dict[str, Any] = {"averaged": [follow_links(folder).name for folder in folders]}
    if checkpoints := RunFolder(out.parent).checkpoints():
        metrics["last_checkpoint"] = checkpoints[-1].folder.name
    other = follow_links(otherwise(folders, out))
    configs = [read_config(folder) for folder in folders]
    for folder, config in zip(folders, configs, strict=True):
        if config.precision != "fp32":
            raise ModelError(
                f"the model {str(folder)!r} is in {config.precision}, which translates only: average the "
                "models in fp32, and quantize the average."
            )
    _check_same_architecture(folders, configs)
    _check_different(folders, configs)
    first = configs[0]
    with console.status(f"averaging {len(folders)} checkpoints"):
        mean = _mean(folders)
    recipe = Recipe.from_dict(
        configs[-1].recipe, str(folders[-1] / CONFIG)
    )  # that of the last folder: a resumed run may have changed [decode]
    if comparison := compare(mean, recipe, configs[-1], folders[0], other, data):
        metrics |= comparison.scores | ({"worse_than": other.name} if comparison.is_worse else {})
    tokenizers = {name: read_bounded(folders[0] / name, LARGEST) for name in first.tokenizers}
    try:
        with output_folder(out, "the averaged model", not_an_average, folders, ModelError) as partial:
            write_model(
                partial, mean, recipe, first.vocabularies, tokenizers, metrics, safe_length=configs[-1].safe_length
            )
    except SafetensorError as error:
        raise write_failed(system_error(error), out, "the averaged model", ModelError) from None
    return metrics, comparison


def _mean(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the folders' weights, in fp32."""
    total = {name: tensor.double() for name, tensor in weights_of(load_model(folders[0]).model).items()}
    for folder in folders[1:]:
        for name, tensor in weights_of(load_model(folder).model).items():
            total[name] += tensor
    return {name: (tensor / len(folders)).to(torch.float32) for name, tensor in total.items()}


def _check_same_architecture(folders: Sequence[Path], configs: Sequence[ModelConfig]) -> None:
    """Raise ModelError when model sizes or tokenizers differ."""

    def architecture(config: ModelConfig) -> dict[str, Any]:
        return {
            **Recipe.from_dict(config.recipe, CONFIG).model.model_dump(),
            "tokenizer": (config.tokenizers, config.vocabularies),
        }

    first = architecture(configs[0])
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        differing = [key for key, value in architecture(config).items() if first.get(key) != value]
        if differing:
            raise ModelError(
                f"{str(folders[0])!r} and {str(folder)!r} are different models ({', '.join(differing)} "
                "differ): only checkpoints of one architecture and vocabulary can be averaged."
            )


def _check_different(folders: Sequence[Path], configs: Sequence[ModelConfig]) -> None:
    """Raise ModelError when two folders have the same weights."""
    seen: dict[str, Path] = {}
    for folder, config in zip(folders, configs, strict=True):
        digest = config.sha256[WEIGHTS]
        if digest in seen:
            raise ModelError(
                f"{str(seen[digest])!r} and {str(folder)!r} hold the same weights: a checkpoint counts once in "
                "an average. Leave one of them out."
            )
        seen[digest] = folder
