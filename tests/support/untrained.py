"""Model folders of tiny untrained models, and sentences in the words that their vocabularies were learned from."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from small_models import SMALL

from nmt_cli.data.tokenizer import TARGET, Tokenizer, _bpe, _learn_exactly, learn_bpe, learn_symbols
from nmt_cli.model.folder import weights_of
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import DataSection, DecodeSection, ModelSection, Recipe

SMALLEST: dict[str, Any] = {**SMALL, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 64}
SYMBOLS = {
    "xx": ["XX"],
    "tags": ["DT", "NN", "VBZ", "."],
    "words": ["the", "cat", "sees", "."],
    "both": ["the", "cat", ".", "/DT", "/NN", "/."],
}
"""Terminals of untrained parsers, by kind."""
NAMES = ["the", "a", "small", "big", "red", "cat", "dog", "house"]
WORDS = [*NAMES, "sees", "likes", "finds", "under", "over", "with", "and"]


def sentence(rng: random.Random, length: int) -> str:
    """So many words and a full stop."""
    return " ".join(rng.choice(WORDS) for _ in range(length)) + "."


def write_untrained(
    folder: Path,
    seed: int = 0,
    text: int = 0,
    max_extra: int = 2,
    beam: int = 2,
    pair: tuple[str, str] = ("en", "de"),
    tags: Sequence[str] = (),
    **features: Any,
) -> Path:
    """Make `folder` a model folder: weights drawn from `seed`, a vocabulary learned from the sentences of seed `text`; `pair`: its languages; `tags`: those of its vocabulary, which change its output much."""
    languages: dict[str, Any] = {"source_language": pair[0], "target_language": pair[1]}
    recipe = Recipe(
        data=DataSection(generator="teaching", vocab_size=330, max_length=40, **languages),
        model=ModelSection(**{**SMALLEST, **features}),
        decode=DecodeSection(max_extra=max_extra, beam=beam),
    )
    tokenizer = vocabulary(text, tuple(tags))
    torch.manual_seed(seed)
    size = tokenizer.vocab_size
    folder.mkdir(parents=True)
    model = Transformer(recipe.model, size, size)
    with torch.no_grad():
        for number in tokenizer.tags.values():
            model.matrix("source")[number] *= 8
    write_model(folder, weights_of(model), recipe, (size, size), {"tokenizer.model": tokenizer.model}, {})
    return folder


@cache
def vocabulary(text: int, tags: tuple[str, ...]) -> Tokenizer:
    """Learned from the sentences of seed `text`; with control tokens >>TAG<<."""
    rng, data = random.Random(text), DataSection(generator="teaching", vocab_size=330, max_length=40)
    texts = [sentence(rng, rng.randint(2, 9)) for _ in range(300)]
    if not tags:
        return learn_bpe(texts, data)
    options = _bpe(data, Counter(word for text in texts for word in text.split()).items())
    symbols = [f">>{tag}<<" for tag in tags]
    return _learn_exactly(texts, data.vocab_size, {**options, "control_symbols": symbols})


def write_untrained_parser(folder: Path, terminals: str, max_length: int = 40, quotes: bool = False) -> Path:
    """Make `folder` a model folder whose target is linearised trees; with `quotes` its source has treebank quotes."""
    rng = random.Random(0)
    symbols = {"joint_vocab": False, "target_vocab_size": 40, "target_tokenization": "words", "terminals": terminals}
    data = DataSection(generator="teaching", vocab_size=330, max_length=max_length, **symbols)  # type: ignore[arg-type]
    model = ModelSection(**SMALLEST, tie_embeddings=False)
    recipe = Recipe(data=data, model=model, decode=DecodeSection(max_extra=10, beam=2))
    source = learn_bpe([f"`` {sentence(rng, 5)} ''" if quotes else sentence(rng, 5) for _ in range(300)], data)
    target = learn_symbols(
        [(symbol, 9) for symbol in ["(S", ")S", "(NP", ")NP", "(VP", ")VP", *SYMBOLS[terminals or "xx"]]], data, TARGET
    )
    torch.manual_seed(0)
    sizes = source.vocab_size, target.vocab_size
    folder.mkdir(parents=True)
    tokenizers = {"tokenizer.source.model": source.model, "tokenizer.target.model": target.model}
    write_model(folder, weights_of(Transformer(recipe.model, *sizes)), recipe, sizes, tokenizers, {})
    return folder
