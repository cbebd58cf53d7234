"""What the forms of a model cost: norms, residuals, activations, positions and dropouts, beside the paper's.

    python benchmarks/forms.py [--rounds 7] [--threads N] [--markdown]

4 + 4 layers, d_model 256, d_ff 1,024, the embedded corpus. Training is one update of 2,048 tokens in bf16 where the processor is fast in it; decoding is
64 lines, beam 4, int8, by a model that is not trained: every output has 24 tokens. All forms take turns, and each
figure is the median of its rounds over that of the paper's form. The last column is what trains as plain torch. Parity with the
modules of torch and transformers is tested, not measured here: tests/model/, tests/kernels/test_parity.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from common import alternate, print_rows, setup, shards
from plain import ours

from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.hardware import Hardware, keep_freed_memory
from nmt_cli.kernels.choice import summary
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.translation.line_translator import LineTranslator

SIZES = [
    "model.encoder_layers=4",
    "model.decoder_layers=4",
    "model.d_model=256",
    "model.d_ff=1024",
    "model.num_heads=4",
    "train.batch_tokens=2048",
]
FORMS = {
    "the paper's": "",
    "residual pre": 'model.residual="pre"',
    "norm rms": 'model.norm="rms"',
    "activation gelu": 'model.activation="gelu"',
    "activation silu": 'model.activation="silu"',
    "activation swiglu": 'model.activation="swiglu"',
    "positions learned": 'model.positions="learned"',
    "positions rotary": 'model.positions="rotary"',
    "activation_dropout 0.1": "model.activation_dropout=0.1",
    "attention_dropout 0.1": "model.attention_dropout=0.1",
}
LINES, LENGTH = 64, 24
"""Of the text that is decoded, and tokens of each output."""


@dataclass(frozen=True)
class Form:
    """A form with what takes its turns."""

    update: Callable[[int], int]
    """Train the batch of a round; target tokens."""
    decode: Callable[[int], int]
    """Translate the lines; target tokens."""
    plain: str
    """What has no kernel in training."""


def form_of(recipe: Recipe, folder: Path, rounds: int, precision: str) -> Form:
    """Return the form of a recipe."""
    trainer = ours(recipe, folder, precision)
    stream = rank_batches(trainer.text, 0, 0, trainer.micro_batch_tokens, ProcessGroup(), trainer.hardware)
    batches = [next(stream) for _ in range(rounds)]

    def update(number: int) -> int:
        trainer.updater(batches[number], number + 1)
        return batches[number].target_tokens

    vocabulary: Vocabulary = trainer.vocabulary
    torch.manual_seed(1)
    model = Transformer(recipe.model, vocabulary.source_size, vocabulary.target_size).eval()
    decode = recipe.decode.model_copy(
        update={"beam": 4, "alpha": 0.6, "min_length": LENGTH, "max_len_ratio": 0.0, "max_extra": LENGTH}
    )
    translator = LineTranslator(model, vocabulary.source, vocabulary.target, decode, precision="int8")
    pairs = [trainer.corpus.pair(index) for index in range(LINES)]
    lines = vocabulary.source.decode([source.tolist()[:LENGTH] for source, _ in pairs])

    def run(number: int) -> int:
        return sum(result.length for result in translator.translate(lines))

    _, _, plain = summary(recipe.model, "cpu", trainer.hardware.dtype).partition("plain torch: ")
    return Form(update, run, plain)


def main() -> None:
    """Measure all forms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    setup(options.threads)
    keep_freed_memory()
    _, folder = shards(None, SIZES)
    precision = Hardware.find("cpu", "auto").precision
    total = options.rounds + 2
    forms = {
        what: form_of(
            load_recipe("demo", [*SIZES, 'model.residual="post"', *([change] if change else [])]),
            folder,
            total,
            precision,
        )
        for what, change in FORMS.items()
    }
    training = alternate({what: form.update for what, form in forms.items()}, options.rounds, 2)
    decoding = alternate({what: form.decode for what, form in forms.items()}, options.rounds, 2)
    paper = next(iter(FORMS))
    rows = [
        [what, f"{training[what] / training[paper]:.2f}", f"{decoding[what] / decoding[paper]:.2f}", form.plain or "-"]
        for what, form in forms.items()
    ]
    print(
        f"{paper}: training {training[paper]:,.0f} target tok/s in {precision}, decoding {decoding[paper]:,.0f} in int8"
    )
    print_rows([["form", "training", "decoding", "plain torch"], *rows], options.markdown)


if __name__ == "__main__":
    main()
