"""Small random models, in torch and in the engine, and sentences for them."""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.engine.library import library
from nmt_cli.model.packing import Packing
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS
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

FORMS: list[dict[str, Any]] = [
    dict(zip(("norm", "residual", "activation", "positions"), names, strict=True))
    for names in itertools.product(NORMS, RESIDUALS, ACTIVATIONS, POSITIONS)
]
"""Every norm with every residual, activation and kind of positions."""

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


def random_sources(count: int, longest: int, vocabulary: int) -> list[list[int]]:
    """Random sources of 1 to `longest` tokens and an end symbol."""
    rng = random.Random(1)
    return [[*(rng.randrange(4, vocabulary) for _ in range(rng.randint(1, longest))), EOS] for _ in range(count)]


def packed_gradients(model: Any, spare: int = 0) -> tuple[Tensor, list[Tensor]]:
    """The hidden states of the real tokens of a packed batch, and all gradients; spare rows have the ids + `spare`."""
    source, target = Packing(torch.tensor([6, 3, 4])), Packing(torch.tensor([5, 7, 2]))
    generator = torch.Generator().manual_seed(4)
    src, tgt = (torch.randint(4, VOCABULARY, (side.size,), generator=generator) for side in (source, target))
    src[source.tokens :] = (src[source.tokens :] + spare) % VOCABULARY
    hidden = model.forward_packed(src, source, tgt, target)[: target.tokens]
    direction = torch.randn(hidden.shape, generator=generator)
    return hidden, list(torch.autograd.grad((hidden.float() * direction).sum(), list(model.parameters())))


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
