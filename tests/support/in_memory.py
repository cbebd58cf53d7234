"""A translator over a model in memory."""

from collections.abc import Sequence
from typing import Any

import torch

from nmt_cli.data.tokenizer import Tokenizer, Vocabulary
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection
from nmt_cli.translation.models import Models, models_of
from nmt_cli.translation.options import TranslationOptions
from nmt_cli.translation.translator import LineTranslator


def line_translator(
    model: Transformer | Sequence[Transformer] | Models,
    source: Tokenizer,
    target: Tokenizer,
    decode: DecodeSection,
    *,
    precision: str = "fp32",
    workers: int = 1,
    search: str = "",
    **more: Any,
) -> LineTranslator:
    """`more`: what else `TranslationOptions` have; None is what they have by default."""
    if not isinstance(model, Models):
        models = list(model) if isinstance(model, Sequence) else [model]
        model = models_of(models, precision, workers, max(workers, torch.get_num_threads()))
    section = decode.model_copy(update={"search": search}) if search else decode
    given = {name: value for name, value in more.items() if value is not None}
    return LineTranslator(model, Vocabulary(source, target), TranslationOptions(decode=section, **given))
