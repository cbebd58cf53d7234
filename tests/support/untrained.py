"""Model folders of tiny untrained models, and sentences in the words that their vocabularies were learned from."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from nmt_cli.data.tokenizer import learn_bpe
from nmt_cli.model.folder import weights_of, write_model
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection, ModelSection, Recipe

WORDS = ["the", "a", "small", "big", "red", "cat", "dog", "house", "sees", "likes", "finds", "under", "over", "with", "and"]


def sentence(rng: random.Random, length: int) -> str:
    """So many words and a full stop."""
    return " ".join(rng.choice(WORDS) for _ in range(length)) + "."


def write_untrained(folder: Path, seed: int = 0, text: int = 0, max_extra: int = 2, beam: int = 2, **features: Any) -> Path:
    """Make `folder` a model folder: weights drawn from `seed`, a vocabulary learned from the sentences of seed `text`."""
    rng = random.Random(text)
    values = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2, "max_positions": 64, **features}
    recipe = Recipe(data=DataSection(generator="teaching", vocab_size=330, max_length=40), model=ModelSection(**values), decode=DecodeSection(max_extra=max_extra, beam=beam))
    tokenizer = learn_bpe([sentence(rng, rng.randint(2, 9)) for _ in range(300)], recipe.data)
    torch.manual_seed(seed)
    size = tokenizer.vocab_size
    folder.mkdir(parents=True)
    write_model(folder, weights_of(Transformer(recipe.model, size, size)), recipe, (size, size), {"tokenizer.model": tokenizer.model}, {})
    return folder
