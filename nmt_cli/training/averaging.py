"""Checkpoint averaging: the mean of the weights of several checkpoints (section 6.1: the last 5, for big the last 20).

choose(run, …) ──▶ checkpoint folders
    ──▶ average(folders, out): check that they fit together, validate the mean, write a model folder

    shards of the run ──▶ Validator ──▶ scores of the average ─┐
    metrics.json of `best` or `last`, else Validator ──────────┴─▶ Comparison

RUN/averaged is the model that commands use which are given RUN. If the average is worse than the run's best checkpoint,
that folder gets the checkpoint's weights. metrics.json of the folder has the validation scores and

    averaged          the names of the folders whose mean it is
    last_checkpoint   the newest checkpoint, at that time, of the run that it lies in
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import console
from ..data.shards import check_matches, hold, open_index
from ..data.tokenizer import LARGEST, Vocabulary
from ..device.hardware import Hardware
from ..errors import DataError, ModelError, RecipeError, UsageError
from ..model.folder import build, load_model, weights_of
from ..model.folder_files import (
    AVERAGED,
    CHOICES,
    CONFIG,
    REMEDY,
    WEIGHTS,
    ModelConfig,
    card_of,
    is_rounded,
    not_an_average,
    origin_of,
    read_config,
    read_metrics,
)
from ..model.transformer import Transformer
from ..model.weights import write_model
from ..recipe import Recipe
from ..storage.files import follow_links, read_bounded
from ..storage.output_paths import check_output_folder, output_folder
from ..storage.sealed_json import read_record
from .checkpoint import STATE, Checkpoint, State, best_of, trained_on
from .metrics import NAMES, by_chance, goodness, measure_in, perplexity, shown
from .progress import TrainingProgress
from .run import RunFolder
from .validation import Validator, has_validation


@dataclass(frozen=True)
class Comparison:
    """The validation scores of an average, and that of another model by the same metric."""

    metric: str
    """"chrf", "bleu" or "nll": `TrainSection.chosen_by`."""
    scores: dict[str, Any]
    """The average's scores, as training writes them into metrics.json."""
    other: Path
    """The model folder with which the average is compared."""
    other_score: float
    kept: bool = False
    """Whether the folder of the average got the other model's weights, because the average is worse."""

    @property
    def is_worse(self) -> bool:
        """Whether the average's score is worse than the other one, by more than chance and rounding."""
        own, other = (goodness(self.metric, float(score)) for score in self._shown)
        return own < other - by_chance(self.metric, measure_in(self.scores, self.metric))

    @property
    def _shown(self) -> tuple[str, str]:
        return shown(self.metric, self.scores[self.metric]), shown(self.metric, self.other_score)

    def __str__(self) -> str:
        own, other = self._shown
        return f"validation {NAMES[self.metric]}: the average {own}, {self.other} {other}"


def otherwise(folders: Sequence[Path], out: Path) -> Path:
    """Return the model folder with which an average of `folders` is compared.

    It is what the run of `out`, else the run of the folders, would use without an average: its best checkpoint, else
    its last. If neither is a run, it is the last of the folders.
    """
    choices = [run / choice for run in (out.parent, folders[-1].parent.parent) for choice in CHOICES[1:]]
    return next((choice for choice in choices if (choice / CONFIG).is_file()), folders[-1])


def compare(
    weights: Mapping[str, Tensor], recipe: Recipe, config: ModelConfig, tokenizers: Path, other: Path, data: Path | None
) -> Comparison | None:
    """Return the validation scores of the averaged `weights` and of the model folder `other`. If this folder has a
    score that was measured in the same way, it is not validated again.

    `tokenizers` is the folder with their vocabulary, `data` that of the run's shards, by default that of the recipe.
    Without the shards, return None, with a warning; if `data` was given, raise DataError.
    """
    try:
        shards = data or recipe.folder("data", "--data")
        with hold(shards):
            vocabulary = Vocabulary.load(tokenizers, config.vocabularies, config.tokenizers)
            _check_shards(shards, recipe, config, vocabulary, other)
            metric = recipe.train.chosen_by
            hardware = Hardware.find("auto", "fp32" if recipe.train.precision == "fp32" else "auto")
            batch_tokens = 2048  # changes only speed and memory
            validator = Validator(shards, vocabulary, recipe, hardware, batch_tokens, config.safe_length)

            def scores_of(model: Transformer) -> dict[str, Any]:
                model = model.to(hardware.device)
                shares = [validator.share(model, copy.deepcopy(model).to(hardware.dtype), 0, 1)]
                scores = {key: value for key, value in validator.combine(shares)[0].items() if value is not None}
                return {"ppl": perplexity(scores["nll"]), **scores}

            scores = scores_of(build(recipe, *config.vocabularies, weights))
            known = Checkpoint(other, 0).metrics
            if known.get(metric) is None or measure_in(known, metric) != measure_in(scores, metric):
                known = scores_of(load_model(other).model)
            return Comparison(metric, scores, other, known[metric])
    except (DataError, ModelError, RecipeError) as error:
        if data:
            raise
        console.warn(
            f"the average has no validation score: {error} If the run's shards are elsewhere, give --data DIR."
        )
        return None


def _check_shards(shards: Path, recipe: Recipe, config: ModelConfig, vocabulary: Vocabulary, other: Path) -> None:
    """Raise DataError unless the shards have validation pairs and are those with which the models were trained."""
    index = open_index(shards)
    try:
        progress = read_record(other / STATE, State, ModelError, REMEDY).progress
    except FileNotFoundError:
        progress = TrainingProgress()
    check_matches(index, recipe, shards, names=not progress.data_fingerprint)
    if vocabulary.sha256 != index.tokenizer_sha256 or not trained_on(index, progress, config.tokenizers):
        raise DataError(f"the shards in {str(shards)!r} are of another text or tokenizer than those of the training.")
    if not has_validation(index):
        raise DataError(f"the shards in {str(shards)!r} hold no validation pairs.")


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
        best_of(checkpoints, recipe.train.chosen_by)
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
    """Write the mean of the model folders' weights to the model folder `out`; if this is the model of a run and the
    mean is worse than a checkpoint of this run, write the checkpoint's.

    Return the content of its metrics.json, and the validation of the mean.

    `data`: see `compare`. Raises ModelError if a folder is damaged or was rounded to int8, if two folders have
    the same weights, or if architectures or vocabularies differ. Raises UsageError if `out` is neither free nor an
    earlier average, or is one of the inputs.
    """
    check_output_folder(out, "the averaged model", not_an_average, folders)
    metrics: dict[str, Any] = {"averaged": [follow_links(folder).name for folder in folders]}
    checkpoints = RunFolder(out.parent).checkpoints()
    other = follow_links(otherwise(folders, out))
    configs = [read_config(folder) for folder in folders]
    _check_together(folders, configs)
    first = configs[0]
    with console.status(f"averaging {len(folders)} checkpoints"):
        mean = _mean(folders)
    # that of the last folder: a resumed run may have changed [decode]
    recipe = Recipe.from_dict(configs[-1].recipe, str(folders[-1] / CONFIG))
    if comparison := compare(mean, recipe, configs[-1], folders[0], other, data):
        metrics |= comparison.scores
        if comparison.is_worse and checkpoints and out.name == AVERAGED:
            mean = weights_of(load_model(other).model)
            metrics = {**read_metrics(other), comparison.metric: comparison.other_score, "averaged": [other.name]}
            comparison = replace(comparison, kept=True)
    made_from = next((folder for folder in folders if origin_of(read_metrics(folder))), folders[0])
    metrics |= origin_of(read_metrics(made_from), is_changed=True)
    if checkpoints:
        metrics["last_checkpoint"] = checkpoints[-1].folder.name
    tokenizers = {name: read_bounded(folders[0] / name, LARGEST) for name in first.tokenizers}
    with output_folder(out, "the averaged model", not_an_average, folders, ModelError) as partial:
        safe_length, card = configs[-1].safe_length, card_of(made_from, is_changed=True)
        write_model(partial, mean, recipe, first.vocabularies, tokenizers, metrics, safe_length=safe_length, card=card)
    return metrics, comparison


def _mean(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the folders' weights, in fp32."""
    total = {name: tensor.double() for name, tensor in weights_of(load_model(folders[0]).model).items()}
    for folder in folders[1:]:
        for name, tensor in weights_of(load_model(folder).model).items():
            total[name] += tensor
    return {name: (tensor / len(folders)).to(torch.float32) for name, tensor in total.items()}


def _check_together(folders: Sequence[Path], configs: Sequence[ModelConfig]) -> None:
    """Raise ModelError for a model in int8, different sizes or tokenizers, or two folders with the same weights."""

    def architecture(config: ModelConfig) -> dict[str, Any]:
        return {
            **Recipe.from_dict(config.recipe, CONFIG).model.model_dump(),
            "tokenizer": (config.tokenizers, config.vocabularies),
        }

    first, digests = architecture(configs[0]), list[str]()
    for folder, config in zip(folders, configs, strict=True):
        if is_rounded(config, read_metrics(folder)):
            raise ModelError(
                f"the model {str(folder)!r} is in {config.precision}, which translates only: average the "
                "models in fp32, and quantize the average."
            )
        differing = [key for key, value in architecture(config).items() if first.get(key) != value]
        if differing:
            raise ModelError(
                f"{str(folders[0])!r} and {str(folder)!r} are different models ({', '.join(differing)} "
                "differ): only checkpoints of one architecture and vocabulary can be averaged."
            )
        digest = config.sha256[WEIGHTS]
        if digest in digests:
            raise ModelError(
                f"{str(folders[digests.index(digest)])!r} and {str(folder)!r} hold the same weights: a checkpoint "
                "counts once in an average. Leave one of them out."
            )
        digests.append(digest)
