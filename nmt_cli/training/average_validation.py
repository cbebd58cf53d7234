"""The validation score of an average, and that of the checkpoint which its run would use without it.

shards of the run ──▶ Validator ──▶ scores of the average ─┐
metrics.json of `best` or `last`, else Validator ──────────┴─▶ Comparison
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import console
from ..data.shards import check_matches, hold, open_index
from ..data.tokenizer import Vocabulary
from ..errors import DataError, ModelError, RecipeError
from ..hardware import Hardware
from ..model.contents import CHOICES, CONFIG, REMEDY, ModelConfig, read_metrics
from ..model.folder import build, load_model
from ..model.transformer import Transformer
from ..recipe import Recipe
from ..records import read_record
from .checkpoint import STATE, Checkpoint, State, trained_on
from .metrics import DIGITS, measure_in, perplexity
from .progress import Progress
from .validation import Validator, has_validation

BATCH_TOKENS = 2048
"""Size limit of a batch of validation pairs, per side. It changes only speed and memory."""


@dataclass(frozen=True)
class Comparison:
    """The validation scores of an average, and that of another model by the same metric."""

    metric: str
    """"nll" or "bleu": the recipe's `train.best_metric`."""
    scores: dict[str, Any]
    """The average's scores, as training writes them into metrics.json."""
    other: Path
    """The model folder with which the average is compared."""
    other_score: float

    @property
    def is_worse(self) -> bool:
        """Whether the average's score is worse than the other one."""
        own, other = (round(score, DIGITS[self.metric]) for score in (self.scores[self.metric], self.other_score))
        return own < other if self.metric == "bleu" else own > other

    def __str__(self) -> str:
        own, other = (f"{score:.{DIGITS[self.metric]}f}" for score in (self.scores[self.metric], self.other_score))
        return f"validation {self.metric.upper()}: the average {own}, {self.other} {other}"


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
    lock = -1
    try:
        shards = data or recipe.folder("data", "--data")
        lock = hold(shards)
        vocabulary = Vocabulary.load(tokenizers, config.vocabularies, config.tokenizers)
        _check_shards(shards, recipe, vocabulary, other)
        metric = recipe.train.best_metric
        hardware = Hardware.find("auto", "fp32" if recipe.train.precision == "fp32" else "auto")
        lines = recipe.train.valid_bleu_sentences if metric == "bleu" else 0
        recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"valid_bleu_sentences": lines})})
        validator = Validator(shards, vocabulary, recipe, hardware, BATCH_TOKENS, config.safe_length)

        def scores_of(model: Transformer) -> dict[str, Any]:
            model = model.to(hardware.device)
            shares = [validator.share(model, copy.deepcopy(model).to(hardware.dtype), 0, 1)]
            scores = {key: value for key, value in validator.combine(shares)[0].items() if value is not None}
            return {"ppl": perplexity(scores["nll"]), **scores}

        scores = scores_of(build(recipe, *config.vocabularies, weights))
        other_score = Checkpoint(other, 0).score(metric)
        if other_score is None or measure_in(read_metrics(other), metric) != measure_in(scores, metric):
            other_score = scores_of(load_model(other).model)[metric]
        return Comparison(metric, scores, other, other_score)
    except (DataError, ModelError, RecipeError) as error:
        if data:
            raise
        console.warn(
            f"the average has no validation score: {error} If the run's shards are elsewhere, give --data DIR."
        )
        return None
    finally:
        if lock >= 0:
            os.close(lock)


def _check_shards(shards: Path, recipe: Recipe, vocabulary: Vocabulary, other: Path) -> None:
    """Raise DataError unless the shards have validation pairs and are those with which the models were trained."""
    index = open_index(shards)
    try:
        progress = read_record(other / STATE, State, ModelError, REMEDY).progress
    except FileNotFoundError:
        progress = Progress()
    check_matches(index, recipe, shards, names=not progress.data_fingerprint)
    tokenizers = {name: tokenizer.sha256 for name, tokenizer in vocabulary.files.items()}
    if vocabulary.sha256 != index.tokenizer_sha256 or not trained_on(index, progress, tokenizers):
        raise DataError(f"the shards in {str(shards)!r} are of another text or tokenizer than those of the training.")
    if not has_validation(index):
        raise DataError(f"the shards in {str(shards)!r} hold no validation pairs.")
