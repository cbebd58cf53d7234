"""The attention of a translation that is known: which tokens of the source the decoder looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .translator import Translation, Translator


def cross_attention_of(translator: Translator, translation: Translation) -> list[list[float]]:
    """Return the weights of encoder-decoder attention, a list per token of the translation with a weight per token of the source.

    They are the mean over the heads of the last decoder layer but one, in one pass in fp32 over the sentence and its translation. The weight of the source's end symbol is left out, so a row sums to at most 1. The
    list is empty where the line is blank or was translated in parts. Of an ensemble the first model is read.
    """
    from ..data.tokenizer import BOS, EOS
    from ..decoding.alignment import cross_attention

    loaded = translator._models()
    [source] = loaded.vocabulary.source.encode([translation.source])
    numbers = {piece: number for number, piece in enumerate(loaded.vocabulary.target.table)}
    target = [numbers[piece] for piece in translation.tokens]
    model = loaded.models[0]
    if not source or not target or max(len(source) + 1, len(target) + 1) > model.config.max_positions or len(source) > loaded.recipe.data.max_length:
        return []
    weights: list[list[float]] = cross_attention(model, [*source, EOS], [BOS, *target[:-1]])[:, :-1].tolist()
    return weights
