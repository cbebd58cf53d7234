"""Target tokens a second of beam-4 decoding, base model with random weights, over real sentences.

    python benchmarks/decode.py --data-dir MULTI30K [--model DIR]

With --model a trained model folder is timed instead. Random weights never choose to end, so every sentence runs to a
limit: its own length plus 5 tokens here, near to what a trained model writes; the work of a step is the same.
Sides: the cached search in fp32 and bf16, batches of up to 4,096 source tokens, and line by line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from common import alternate, settings, setup, shards, table

from nmt_cli.data.shards import valid_text
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.decoding.translator import Translator
from nmt_cli.model.folder import find_model, load_model
from nmt_cli.model.transformer import Transformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--model", type=Path, help="a trained model instead of random weights")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    recipe, folder = shards(options.data_dir, settings(options.data_dir, small=False))
    source, _ = valid_text(folder)
    if options.model:
        loaded = load_model(find_model(options.model))
        model, recipe, vocabulary = loaded.model, loaded.recipe, Vocabulary.load(loaded.folder)
        decode = recipe.decode
    else:
        vocabulary = Vocabulary.load(folder)
        torch.manual_seed(1)
        model = Transformer(recipe.model, vocabulary.source_size, vocabulary.target_size).eval()
        decode = recipe.decode.model_copy(update={"max_extra": 5})
    lines = source[: options.sentences]

    def side(precision: str, batch_tokens: int, some: list[str]) -> Callable[[int], int]:
        translator = Translator(model, vocabulary.source, vocabulary.target, decode.model_copy(update={"batch_tokens": batch_tokens}), precision=precision)
        return lambda _: sum(result.tokens for result in translator.translate(some))

    sides = {
        "bf16, batches of 4,096 tokens": side("bf16", 4096, lines),
        "fp32, batches of 4,096 tokens": side("fp32", 4096, lines),
        "fp32, one line at a time": side("fp32", 1, lines[:16]),
    }
    shape = recipe.model
    print(f"beam {decode.beam}: {shape.encoder_layers} + {shape.decoder_layers} layers, d_model {shape.d_model}, {vocabulary.target_size:,} pieces, {len(lines)} sentences; median of {options.rounds}")
    table(alternate(sides, options.rounds, 1), "target tok/s")


if __name__ == "__main__":
    main()
