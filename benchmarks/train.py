"""Target tokens a second of a training step, beside torch's own nn.Transformer on the same batches, alternated.

    python benchmarks/train.py --data-dir MULTI30K            base: 6 + 6 layers, d_model 512, 8,000 pieces, 2,048-token updates
    python benchmarks/train.py --data-dir MULTI30K --small    4 + 4 layers, d_model 128, d_ff 256, 10,000 pieces, 4,096-token updates

Without --data-dir the embedded corpus is used. The plain sides are nn.Transformer, F.cross_entropy with label
smoothing and torch.optim.Adam, in fp32 and under bf16 autocast: what a user would write down first.
"""

from __future__ import annotations

import argparse
import copy
import math
import tempfile
from pathlib import Path

import torch
from common import BASE, alternate, setup, shards, table
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.data.batches import Batch
from nmt_cli.hardware import Hardware
from nmt_cli.model.positions import sinusoids
from nmt_cli.recipe import Recipe
from nmt_cli.training.ranks import Ranks
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.update import Share, feed

SMALL = ["model.dropout=0.3", "data.vocab_size=10000", "train.batch_tokens=4096"]


class Plain(nn.Module):
    """nn.Transformer with tied embeddings, as the tutorials have it."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        m = recipe.model
        self.scale = math.sqrt(m.d_model)
        self.embedding = nn.Embedding(vocabulary, m.d_model)
        self.transformer = nn.Transformer(m.d_model, m.num_heads, m.encoder_layers, m.decoder_layers, m.d_ff, m.dropout, batch_first=True)
        self.dropout = nn.Dropout(m.dropout)
        self.register_buffer("table", sinusoids(m.max_positions, m.d_model))

    def embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(ids) * self.scale + self.table[: ids.size(1)])  # type: ignore[index]
        return x

    def forward(self, batch: Batch) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt_in.size(1))
        hidden = self.transformer(
            self.embed(batch.src), self.embed(batch.tgt_in), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=(batch.src == 0).float() * -1e9, memory_key_padding_mask=(batch.src == 0).float() * -1e9,
        )  # fmt: skip
        logits = F.linear(hidden, self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum")


class PlainSide:
    """Trains a `Plain`; `autocast` in bf16."""

    def __init__(self, plain: Plain, autocast: bool) -> None:
        self.model, self.autocast = plain.train(), autocast
        self.adam = torch.optim.Adam(plain.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def __call__(self, share: Share) -> int:
        self.adam.zero_grad()
        for batch, _ in share.micro_batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                loss = self.model(batch)
            (loss / share.target_tokens).backward()
        self.adam.step()
        return share.target_tokens


def ours(recipe: Recipe, folder: Path, precision: str) -> Trainer:
    """A trainer as `nmt train` makes it."""
    hardware = Hardware.find("cpu", precision)
    return Trainer(recipe, folder, Path(tempfile.mkdtemp(prefix="nmt-bench-")) / "run", hardware, Ranks())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    base = [*BASE, "train.batch_tokens=2048", *(["data.vocab_size=8000"] if options.data_dir else [])]
    recipe, folder = shards(options.data_dir, SMALL if options.small and options.data_dir else [] if options.small else base)
    trainers = {f"nmt train, {precision}": ours(recipe, folder, precision) for precision in ("bf16", "fp32")}
    first = next(iter(trainers.values()))
    stream = feed(first.corpus, first.plan, 0, 0, first.micro_batch_tokens, Ranks(), first.hardware)
    rounds = [next(stream) for _ in range(options.rounds + 2)]
    plain = Plain(recipe, first.sizes[1])
    plain_sides = {"nn.Transformer, bf16 autocast": PlainSide(copy.deepcopy(plain), True), "nn.Transformer, fp32": PlainSide(plain, False)}

    def step(trainer: Trainer, share: Share, number: int) -> int:
        trainer.updater.accumulate(share)
        trainer.updater.step(number + 1)
        return share.target_tokens

    sides = {name: (lambda n, t=trainer: step(t, rounds[n], n)) for name, trainer in trainers.items()}
    sides |= {name: (lambda n, s=side: s(rounds[n])) for name, side in plain_sides.items()}
    model = recipe.model
    print(f"training step: {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, {first.sizes[1]:,} pieces, {recipe.train.batch_tokens:,}-token updates; median of {options.rounds}")
    table(alternate(sides, options.rounds, 2), "target tok/s")


if __name__ == "__main__":
    main()
