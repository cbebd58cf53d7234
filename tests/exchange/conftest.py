"""Small models to export: of every kind with random weights, and one that was trained."""

import functools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.data.tokenizer import Tokenizer, Vocabulary, learn_bpe
from nmt_cli.exchange import importing, sentences, verification
from nmt_cli.model.folder import weights_of
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import write_model
from nmt_cli.recipe import Recipe

os.environ["HF_HUB_OFFLINE"] = "1"
with warnings.catch_warnings():  # what these libraries warn of when they are loaded is theirs
    warnings.simplefilter("ignore")
    import ctranslate2  # noqa: F401
    import transformers  # noqa: F401

SIZES = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 4, "max_positions": 90}
Made = Callable[..., Path]


@functools.cache
def pairs() -> list[tuple[str, str]]:
    return demo_pairs(train=1500, valid=0, test=0)["train"]


@functools.cache
def tokenizer(side: int | None, vocab_size: int, byte_fallback: bool = True) -> Tokenizer:
    """Learned from one side of the teaching corpus, or from both."""
    data = Recipe.from_dict(
        {"data": {"generator": "teaching", "vocab_size": vocab_size, "byte_fallback": byte_fallback}}, "test"
    ).data
    return learn_bpe([text for pair in pairs() for text in (pair if side is None else pair[side : side + 1])], data)


def recipe_of(joint: bool = True, **model: Any) -> Recipe:
    data = {"generator": "teaching", "max_length": 60, "joint_vocab": joint}
    return Recipe.from_dict(
        {"name": "tiny", "data": data, "model": {**SIZES, **model}, "decode": {"max_extra": 12}}, "test"
    )


def vocabulary_of(joint: bool) -> Vocabulary:
    if joint:
        return Vocabulary(tokenizer(None, 800), tokenizer(None, 800))
    return Vocabulary(tokenizer(0, 400), tokenizer(1, 430, byte_fallback=False))


def shaken(model: Transformer) -> Transformer:
    """Weights that leave nothing at 0 or 1, so that no bias or norm may get lost, and outputs that differ."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
            elif parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
            elif not name.startswith("embeddings"):
                parameter.mul_(1.5)
    return model.eval()


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """made(joint=..., **model section) -> a model folder with random weights."""

    def make(joint: bool = True, **changes: Any) -> Path:
        recipe, vocabulary = recipe_of(joint, **changes), vocabulary_of(joint)
        torch.manual_seed(3)
        model = shaken(Transformer(recipe.model, vocabulary.source_size, vocabulary.target_size))
        files = {name: part.model for name, part in vocabulary.files.items()}
        (tmp_path / "model").mkdir()
        sizes = vocabulary.source_size, vocabulary.target_size
        write_model(tmp_path / "model", weights_of(model), recipe, sizes, files, {})
        return tmp_path / "model"

    return make


@pytest.fixture(scope="session")
def trained() -> Path:
    """A model of number words: it speaks, ends its sentences, and is sure of itself."""
    return Path(__file__).parents[1] / "fixtures/format_1/model"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify on few and short outputs: models with random weights do not end their sentences."""
    monkeypatch.setattr(verification, "LONGEST_OUTPUT", 16)
    monkeypatch.setattr(sentences, "GENERATED", 16)


@pytest.fixture
def few_lines(monkeypatch: pytest.MonkeyPatch, short: None) -> None:
    """Compare tokenizers on few lines, and models as `short` does."""
    monkeypatch.setattr(importing, "LINES", 300)
