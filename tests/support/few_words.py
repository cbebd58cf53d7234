"""A tiny model with random weights over a few words, its tokenizer, and lines to translate: for tests of constraints."""

import random
from functools import cache

import torch
from small_models import section
from untrained import WORDS as OTHERS

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection
from nmt_cli.translation.line import Line

WORDS = [*OTHERS, "then"]
LIST = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 6)) for n in range(60)]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length)) + rng.choice([".", "!", ""])


@cache
def tokenizer(vocab_size: int = 330, seed: int = 0) -> Tokenizer:
    """With bytes from 257 subwords on."""
    rng = random.Random(seed)
    data = DataSection(generator="teaching", vocab_size=vocab_size, byte_fallback=vocab_size > 256)
    return learn_bpe([sentence(rng, rng.randint(2, 9)) for _ in range(300)], data)


@cache
def model(max_positions: int = 64, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    config = section(encoder_layers=1, max_positions=max_positions)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


@cache
def lines() -> list[Line]:
    """Some with prefixes; two with banned words in their prefix."""
    rng = random.Random(7)
    texts = [sentence(rng, rng.choice([1, 2, 3, 5, 8])) for _ in range(64)]
    return [Line(text, None if n % 4 else ["", LIST[n % 60], "the big"][n % 3]) for n, text in enumerate(texts)]
