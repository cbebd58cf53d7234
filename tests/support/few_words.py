"""A tiny model with random weights over a few words, its tokenizer, and lines to translate: for tests of constraints."""

from __future__ import annotations

import random
from functools import cache

import torch

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, ModelSection
from nmt_cli.translation.line_translator import Request

WORDS = [
    "the",
    "a",
    "small",
    "big",
    "red",
    "cat",
    "dog",
    "house",
    "sees",
    "likes",
    "finds",
    "under",
    "over",
    "with",
    "and",
    "then",
]
LIST = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 6)) for n in range(60)]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length)) + rng.choice([".", "!", ""])


@cache
def tokenizer() -> Tokenizer:
    rng = random.Random(0)
    return learn_bpe(
        [sentence(rng, rng.randint(2, 9)) for _ in range(300)], DataSection(generator="teaching", vocab_size=330)
    )


@cache
def model() -> Transformer:
    torch.manual_seed(0)
    config = ModelSection(encoder_layers=1, decoder_layers=2, d_model=32, d_ff=64, num_heads=2, max_positions=64)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


@cache
def lines() -> list[Request]:
    """Some with prefixes; two with banned words in their prefix."""
    rng = random.Random(7)
    texts = [sentence(rng, rng.choice([1, 2, 3, 5, 8])) for _ in range(64)]
    return [
        Request(text, {} if n % 4 else {"prefix": ["", LIST[n % 60], "the big"][n % 3]}) for n, text in enumerate(texts)
    ]
