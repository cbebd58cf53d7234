"""The sides of train.py that run in one process, batch by batch: ours, and torch's own nn.Transformer."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.data.batches import Batch
from nmt_cli.hardware import Hardware
from nmt_cli.model.positions import sinusoids
from nmt_cli.recipe import Recipe
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer


class Plain(nn.Module):
    """nn.Transformer with tied embeddings, as the tutorials have it."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        m = recipe.model
        self.scale = math.sqrt(m.d_model)
        self.embedding = nn.Embedding(vocabulary, m.d_model)
        self.transformer = nn.Transformer(
            m.d_model, m.num_heads, m.encoder_layers, m.decoder_layers, m.d_ff, m.dropout, batch_first=True
        )
        self.dropout = nn.Dropout(m.dropout)
        self.register_buffer("table", sinusoids(m.max_positions, m.d_model))

    def embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(ids) * self.scale + self.table[: ids.size(1)])  # type: ignore[index]
        return x

    def forward(self, batch: Batch) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt_in.size(1))
        hidden = self.transformer(
            self.embed(batch.src),
            self.embed(batch.tgt_in),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=(batch.src == 0).float() * -1e9,
            memory_key_padding_mask=(batch.src == 0).float() * -1e9,
        )
        logits = F.linear(hidden, self.embedding.weight)
        return F.cross_entropy(
            logits.float().flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
        )


class PlainSide:
    """Trains a `Plain`; `autocast` in bf16."""

    def __init__(self, plain: Plain, autocast: bool) -> None:
        self.model, self.autocast = plain.train(), autocast
        self.adam = torch.optim.Adam(plain.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def __call__(self, parts: Sequence[Batch], target_tokens: int) -> int:
        self.adam.zero_grad()
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                loss = self.model(part)
            (loss / target_tokens).backward()
        self.adam.step()
        return target_tokens


def ours(recipe: Recipe, folder: Path, precision: str) -> Trainer:
    """A trainer as `nmt train` makes it."""
    hardware = Hardware.find("cpu", precision)
    return Trainer(recipe, folder, Path(tempfile.mkdtemp(prefix="nmt-bench-")) / "run", hardware, ProcessGroup())


def steps(recipe: Recipe, folder: Path, rounds: int) -> dict[str, Callable[[int], int]]:
    """The sides: a function of each that trains the batches of a round and counts their target tokens."""
    trainers = {f"nmt train, {precision}": ours(recipe, folder, precision) for precision in ("bf16", "fp32")}
    first = next(iter(trainers.values()))
    stream = rank_batches(first.text, 0, 0, first.micro_batch_tokens, ProcessGroup(), first.hardware)
    batches = [next(stream) for _ in range(rounds)]
    padded = [[micro_batch.padded() for micro_batch in batch.micro_batches] for batch in batches]
    plain = Plain(recipe, first.vocabulary.target_size)
    plain_sides = {
        "nn.Transformer, bf16 autocast": PlainSide(copy.deepcopy(plain), True),
        "nn.Transformer, fp32": PlainSide(plain, False),
    }

    def step(trainer: Trainer, number: int) -> int:
        trainer.updater(batches[number], number + 1)
        return batches[number].target_tokens

    def plain_step(side: PlainSide, number: int) -> int:
        return side(padded[number], batches[number].target_tokens)

    sides: dict[str, Callable[[int], int]] = {name: partial(step, trainer) for name, trainer in trainers.items()}
    return sides | {name: partial(plain_step, side) for name, side in plain_sides.items()}
