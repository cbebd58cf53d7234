"""A thousand real sentences: how they fall into batches, and in which order they come, changes no bit of what comes out."""

import gzip
import os
import random
from functools import cache
from pathlib import Path

import pytest
import torch
from in_memory import line_translator

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.engine.library import library
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection, ModelSection
from nmt_cli.translation.line import Translation
from nmt_cli.translation.translator import LineTranslator

SHARED = Path(os.environ.get("NMT_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
TEXT = SHARED / "multi30k" / "test_2016_flickr.en.gz"
BEAM = 4
LONGEST = 5
"""Tokens of an output: an untrained model does not end by itself, and the first ones see the whole source already."""

pytestmark = pytest.mark.skipif(not TEXT.is_file(), reason=f"needs Multi30k below {SHARED} (set NMT_SHARED_DATA)")


@cache
def lines() -> list[str]:
    return gzip.decompress(TEXT.read_bytes()).decode().splitlines()


@cache
def tokenizer() -> Tokenizer:
    return learn_bpe(lines(), DataSection(generator="teaching", vocab_size=1500))


@cache
def model() -> Transformer:
    """An untrained model: its distribution is nearly flat, so that a rounding error would change the choice."""
    torch.manual_seed(0)
    config = ModelSection(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=256, num_heads=4)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


@cache
def translator(precision: str, batch_tokens: int = 10**6) -> LineTranslator:
    if precision == "int8" and library() is None:
        pytest.skip("there is no engine for this processor, and int8 in torch is slow")
    made = line_translator(
        model(), tokenizer(), tokenizer(), DecodeSection(beam=BEAM, batch_tokens=batch_tokens), precision=precision
    )
    made.longest_output = LONGEST
    return made


@cache
def in_order(precision: str) -> list[Translation]:
    return list(translator(precision).translate(lines()))


@pytest.mark.parametrize(
    ("precision", "size", "count", "tokens"),
    [
        *(("fp32", size, 1000, 10**6) for size in (1, 8, 64, 256)),
        ("int8", 1, 200, 10**6),
        *(("int8", size, 1000, 10**6) for size in (8, 64, 256)),
        *((precision, 1000, 1000, 500) for precision in ("fp32", "int8")),
    ],
)
def test_the_batch_size_and_the_order_change_nothing(precision: str, size: int, count: int, tokens: int) -> None:
    """Texts, pieces, log P and scores, all equal, of sentences that are read so many at a time in a random order."""
    order, several = random.Random(1).sample(range(count), count), translator(precision, tokens)
    parts = (order[start : start + size] for start in range(0, count, size))
    found = [result for part in parts for result in several.translate([lines()[i] for i in part])]
    assert found == [in_order(precision)[i] for i in order]
