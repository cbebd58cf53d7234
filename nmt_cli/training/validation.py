"""Validation during training: the NLL per target token of the validation pairs, BLEU and chrF of their translations.

    shards' validation pairs ──▶ compute model ──▶ NLL, without label smoothing and dropout
    lines of the validation text ──▶ LineTranslator ──▶ translations ──▶ BLEU and chrF by sacrebleu, with signatures

These are of all lines, or of `train.valid_bleu_sentences` lines at even distances, because the beginning of a text may
differ from the rest. BLEU's tokenizer fits the target's script (`train.valid_bleu_tokenizer`). Each rank computes a
share of both (`share`), and rank 0 combines the shares (`combine`). The scores do not depend on the number of ranks.
`nmt translate` uses the same search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from .. import console
from ..data.batches import EpochPlan, Indices, collate, micro_batches
from ..data.shards import Corpus, ShardIndex, valid_text
from ..data.tokenizer import Vocabulary
from ..device.hardware import Hardware
from ..device.torch_device import is_host
from ..errors import DataError, TrainingError
from ..evaluation.metric import MetricOptions
from ..evaluation.metrics import build, compute
from ..evaluation.tokenizers import default_tokenizer
from ..model.folder_files import length_limits
from ..model.transformer import Transformer
from ..recipe import Recipe
from ..translation.models import models_of
from ..translation.options import TranslationOptions
from ..translation.translator import LineTranslator
from .loader import PackedBatch
from .update import LossModel

T = TypeVar("T")
Share = tuple[list[float], list[str]]
"""One rank's results. With n ranks: the NLLs of every n-th part of the pairs, and the translations of every n-th
sentence."""


def has_validation(index: ShardIndex) -> bool:
    """Return whether the shards hold validation pairs."""
    return "valid" in index.splits and index.splits["valid"].pairs > 0


class Validator:
    """Scores the model. It is built once per run, and called after every `train.valid_every` updates."""

    def __init__(
        self,
        shards: Path,
        vocabulary: Vocabulary,
        recipe: Recipe,
        hardware: Hardware,
        tokens: int,
        safe_length: int | None,
    ) -> None:
        """Open the validation pairs.

        `tokens` is the size limit of a batch, per side. Warn of pairs that are too long for the model.
        """
        self.corpus = Corpus(shards, "valid")
        self.vocabulary, self.recipe, self.hardware, self.tokens = vocabulary, recipe, hardware, tokens
        self.safe_length, self.longest = length_limits(recipe.data, [safe_length])
        plan = EpochPlan(self.corpus.source_lengths, self.corpus.target_lengths, tokens, seed=0)
        fits = np.maximum(*plan.lengths(np.arange(plan.pairs))) <= recipe.model.max_positions
        if fits.any() and not fits.all():
            count = int((~fits).sum())
            console.warn(
                f"{count:,} validation pair{' is' if count == 1 else 's are'} longer than model.max_positions = "
                f"{recipe.model.max_positions}: not counted in the NLL"
            )
        parts = [part[fits[part]] for update in plan.updates(0) for part in micro_batches(plan, update, tokens)[0]]
        self.parts = [part for part in parts if len(part)]
        self.tokens = sum(plan.target_tokens(part) for part in self.parts)
        if not self.tokens:
            raise DataError(
                f"all {plan.pairs:,} validation pairs are longer than model.max_positions = "
                f"{recipe.model.max_positions}: their NLL cannot be measured. Put one sentence on each line, or give "
                "other validation text, and make the shards again."
            )
        source, target = valid_text(shards)
        self.lines, most = len(target), recipe.train.valid_bleu_sentences
        drawn = [number * len(target) // most for number in range(most)] if most < len(target) else range(len(target))
        self.source, self.target = [source[line] for line in drawn], [target[line] for line in drawn]
        tokenize = recipe.train.valid_bleu_tokenizer or default_tokenizer(recipe.data.target_language, target)
        self.bleu = MetricOptions(tokenize=tokenize)
        if self.source:
            build("bleu", self.bleu)  # an error of the tokenizer before the training

    @property
    def description(self) -> str:
        """What validation computes, in words."""
        if not self.source:
            return f"validation: NLL of {self.lines:,} pairs, no translations"
        lines = f"all {self.lines:,}" if len(self.source) == self.lines else f"{len(self.source):,} of {self.lines:,}"
        return (
            f"validation: NLL of {self.lines:,} pairs, chrF and BLEU of {lines} lines (tokenizer {self.bleu.tokenize})"
        )

    @torch.no_grad()
    def nlls(
        self, compute_model: Transformer, parts: Sequence[Indices], advance: Callable[[int], object]
    ) -> list[float]:
        """Return the NLL of each part: the sum over its target tokens, end symbols counted, in nats."""
        nlls, loss_model = [], LossModel(compute_model, 0.0)
        for part in parts:
            batch = PackedBatch.of(collate([self.corpus.pair(int(i)) for i in part]))
            nlls.append(float(loss_model(batch.to(self.hardware.device))[1]))
            advance(1)
        return nlls

    def translate(self, model: Transformer, source: Sequence[str], advance: Callable[[int], object]) -> list[str]:
        """Return the model's translations of `source`."""
        translations = []
        for result in self.translator(model).translate(source) if source else ():
            translations.append(result.text)
            advance(1)
        return translations

    def translator(self, model: Transformer) -> LineTranslator:
        """Return a translator for the present weights of `model`. Raises UsageError for unfit options."""
        recipe = self.recipe
        options = TranslationOptions(
            decode=recipe.decode.model_copy(
                update={"beam": recipe.train.valid_beam, "search": "beam", "placeholders": False}
            ),
            constraints=recipe.constraint_values,
            target_language=recipe.data.target_language,
            longest=self.longest,
            safe_length=self.safe_length,
        )
        precision = "fp32" if is_host(self.hardware.device) else self.hardware.precision
        models = models_of([model], precision, workers=1, cores=torch.get_num_threads())
        return LineTranslator(models, self.vocabulary, options)

    def share(self, model: Transformer, compute_model: Transformer, rank: int, ranks: int) -> Share:
        """Return the share of rank `rank` of `ranks`.

        `compute_model` computes the NLL, in the precision of training; `model` translates. Both are in training mode
        afterwards.
        """
        model.eval()
        compute_model.eval()
        try:
            parts, source = self.parts[rank::ranks], self.source[rank::ranks]
            with console.progress(len(parts) + len(source), "validating", scale=False, shown=rank == 0) as bar:
                return self.nlls(compute_model, parts, bar.update), self.translate(model, source, bar.update)
        finally:
            model.train()
            compute_model.train()

    def combine(self, shares: Sequence[Share]) -> tuple[dict[str, Any], list[str]]:
        """Return the scores from all ranks' shares, and up to `train.valid_samples` samples.

        Raises TrainingError if the NLL is not finite.
        """
        nll = sum(_interleaved([nlls for nlls, _ in shares]))
        if not math.isfinite(nll):
            raise TrainingError(
                f"the NLL of the validation text is {nll}: the model has diverged. Checkpoints up to the last "
                "one are kept. "
                'Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = "fp32".'
            )
        scores: dict[str, Any] = {"nll": nll / self.tokens}
        samples: list[str] = []
        if self.source:
            translations = _interleaved([translations for _, translations in shares])
            scores |= {"bleu_sentences": len(self.source), "bleu_of_sentences": self.lines}
            for metric in ("bleu", "chrf"):
                score = compute(metric, translations, [self.target], self.bleu)
                scores |= {metric: score.value, f"{metric}_signature": score.signature}
            samples = [
                f"    source       {source}\n    reference    {reference}\n    translation  {translation}"
                for source, reference, translation in zip(self.source, self.target, translations, strict=True)
            ]
        return scores, samples[: self.recipe.train.valid_samples]


def _interleaved(shares: Sequence[Sequence[T]]) -> list[T]:
    """Return all items in their order, where shares[rank] has every `len(shares)`-th item from item `rank` on."""
    return [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]
