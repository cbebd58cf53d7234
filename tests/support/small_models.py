"""Small random models, in torch and in the engine, and sentences for them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.engine.library import library
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.search.search import Search, SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence

VOCABULARY = 60
OPTIONS = SearchOptions(beam=4, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS))
SMALL: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 32,
    "d_ff": 64,
    "num_heads": 2,
    "max_positions": 71,
}

needs_engine = pytest.mark.skipif(library() is None, reason="there is no engine for this processor")


def section(**changes: Any) -> ModelSection:
    """The form of a small model."""
    return ModelSection(**{**SMALL, **changes})


def small(vocabulary: int = VOCABULARY, seed: int = 3, **changes: Any) -> Transformer:
    """A random model. No bias is 0, and no weight of a norm is 1."""
    torch.manual_seed(seed)
    model = Transformer(section(**changes), vocabulary, vocabulary).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) if parameter.dim() == 1 else 0.0)
    if model.next_word is not None:
        model.next_word.set(*(torch.rand(2, vocabulary) < 0.4))
    return model


def sources(*lengths: int, vocabulary: int = VOCABULARY, seed: int = 1) -> list[list[int]]:
    """Random sources of these lengths, without end symbols."""
    rng = random.Random(seed)
    return [[rng.randrange(4, vocabulary) for _ in range(length)] for length in lengths]


def searched(
    search: Search, sentences: Sequence[Sentence], entering: Iterable[tuple[int, Sequence[int]]] = ()
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence. `entering`: the steps at which sentences enter, and which; else all enter at once."""
    found = dict[int, list[Hypothesis]]()
    waiting = dict(entering) or {0: range(len(sentences))}
    step = 0
    while waiting or search.busy:
        if numbers := waiting.pop(step, None):
            search.add(numbers, [sentences[number] for number in numbers])
        found.update(search.step() if search.busy else [])
        step += 1
    return [found[number] for number in range(len(sentences))]
