"""Validation during training: NLL per target token of the validation pairs, and BLEU of translations.

    shards' validation pairs ──▶ compute model ──▶ NLL, without label smoothing and dropout
    first lines of the validation text ──▶ Translator ──▶ translations ──▶ BLEU by sacrebleu, with its signature

Translations come from the same search as those of `nmt translate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import console
from ..data.batches import EpochPlan, collate, micro_batches
from ..data.shards import Corpus, valid_text
from ..data.tokenizer import Vocabulary
from ..decoding.translator import Translator
from ..errors import TrainingError
from ..evaluation.metrics import compute
from ..hardware import Hardware
from ..model.transformer import Transformer
from ..recipe import Recipe
from .loader import PackedBatch
from .update import loss_sums


@dataclass(frozen=True)
class Sample:
    """A validation sentence with its reference and its translation."""

    source: str
    reference: str
    translation: str


class Validator:
    """Scores the model. It is built once per run, and called after every `train.valid_every` updates."""

    def __init__(self, shards: Path, vocabulary: Vocabulary, recipe: Recipe, hardware: Hardware, tokens: int) -> None:
        """`tokens` is the size limit of a batch, per side. Warns of pairs that are too long for the model."""
        self.corpus = Corpus.open(shards, "valid")
        self.vocabulary, self.recipe, self.hardware, self.tokens = vocabulary, recipe, hardware, tokens
        plan = EpochPlan(self.corpus.source_lengths, self.corpus.target_lengths, tokens, seed=0)
        fits = np.maximum(*plan.lengths(np.arange(plan.pairs))) <= recipe.model.max_positions
        if not fits.all():
            console.warn(f"{int((~fits).sum())} validation pairs are longer than model.max_positions = {recipe.model.max_positions}: they do not count in the NLL")
        parts = [part[fits[part]] for update in plan.updates(0) for part in micro_batches(plan, update, tokens)[0]]
        self.parts = [part for part in parts if len(part)]
        source, target = valid_text(shards)
        self.source = source[: recipe.train.valid_bleu_sentences]
        self.target = target[: recipe.train.valid_bleu_sentences]

    @torch.no_grad()
    def nll(self, compute_model: Transformer) -> float:
        """Return the mean NLL per target token, end symbols counted, in nats. Raises TrainingError if it is not finite."""
        total = tokens = 0.0
        for part in self.parts:
            batch = collate([self.corpus.pair(int(i)) for i in part])
            _, nll = loss_sums(compute_model, PackedBatch.of(batch).to(self.hardware.device), 0.0)
            total, tokens = total + float(nll), tokens + float(batch.tgt_lengths.sum())
        if not math.isfinite(total):
            raise TrainingError(
                f"the NLL of the validation text is {total}: the model has diverged. Checkpoints up to the last one are kept. "
                'Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = "fp32".'
            )
        return total / tokens

    def translate(self, model: Transformer) -> list[str]:
        """Return the model's translations of the first `train.valid_bleu_sentences` sentences."""
        options = self.recipe.decode.model_copy(update={"beam": self.recipe.train.valid_beam})
        translator = Translator(model, self.vocabulary.source, self.vocabulary.target, options, longest=self.recipe.data.max_length, precision=self.hardware.precision, search="beam", defaults=self.recipe.constraint_values)
        return [result.translation for result in translator.translate(self.source)]

    def __call__(self, model: Transformer, compute_model: Transformer) -> tuple[dict[str, Any], list[Sample]]:
        """Return the scores, and `train.valid_samples` samples.

        The NLL is that of `compute_model`, in the precision of training; `model` translates. Both are in training mode
        afterwards.
        """
        model.eval()
        compute_model.eval()
        try:
            scores: dict[str, Any] = {"nll": self.nll(compute_model), "bleu": None, "bleu_signature": None}
            samples: list[Sample] = []
            if self.source:
                translations = self.translate(model)
                bleu = compute("bleu", translations, [self.target])
                scores |= {"bleu": bleu.value, "bleu_signature": bleu.signature, "bleu_sentences": len(self.source)}
                samples = [Sample(*sides) for sides in zip(self.source, self.target, translations, strict=True)]
            return scores, samples[: self.recipe.train.valid_samples]
        finally:
            model.train()
            compute_model.train()
