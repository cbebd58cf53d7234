"""The paper's model made of torch's own stacks, with the weights of one of ours."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.transformer import Transformer


def wave(position: int, column: int, width: int) -> float:
    """Section 3.5, as printed."""
    angle = position / 10_000 ** ((column - column % 2) / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


def waves(positions: int, width: int) -> Tensor:
    return torch.tensor([[wave(position, column, width) for column in range(width)] for position in range(positions)])


class TorchStacks(nn.Module):
    """It is in training mode without dropout, which keeps torch off its inference path."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        sizes, pre = (config.d_model, config.num_heads, config.d_ff), config.residual == "pre"
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
        first, second = (nn.LayerNorm(config.d_model) if pre else None for _ in range(2))
        layer = nn.TransformerEncoderLayer(*sizes, **options)
        self.encoder = nn.TransformerEncoder(layer, config.encoder_layers, first, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, **options), config.decoder_layers, second
        )
        self.embedding = nn.Parameter(torch.empty_like(ours.output_weight))
        with torch.no_grad():
            for theirs, parts in counterparts(self, ours):
                theirs.copy_(torch.cat(parts))
        self.train()

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        padding = None if src_mask is None else ~src_mask[:, 0, 0]
        memory = self.encoder(self.embed(src), src_key_padding_mask=padding)
        future = torch.ones(tgt_in.size(1), tgt_in.size(1), dtype=torch.bool).triu(1)
        return self.decoder(self.embed(tgt_in), memory, tgt_mask=future, memory_key_padding_mask=padding)  # type: ignore[no-any-return]

    def embed(self, ids: Tensor) -> Tensor:
        width = self.embedding.size(1)
        return F.embedding(ids, self.embedding) * math.sqrt(width) + waves(ids.size(1), width)


def counterparts(theirs: TorchStacks, ours: Any) -> list[tuple[Tensor, list[Tensor]]]:
    """Each of torch's parameters with the parts of ours that make it up."""
    pairs: list[tuple[Tensor, list[Tensor]]] = [(theirs.embedding, [ours.output_weight])]

    def same(a: Any, *b: Any) -> None:
        pairs.extend([(a.weight, [part.weight for part in b]), (a.bias, [part.bias for part in b])])

    def attention(a: Any, b: Any, *joined: Any) -> None:
        pairs.extend([(a.in_proj_weight, [part.weight for part in joined])])
        pairs.extend([(a.in_proj_bias, [part.bias for part in joined])])
        same(a.out_proj, b.output)

    for a, b in zip([*theirs.encoder.layers, *theirs.decoder.layers], [*ours.encoder, *ours.decoder], strict=True):
        norms = [b.around_self_attention.norm, b.around_feed_forward.norm]
        attention(a.self_attn, b.self_attention, b.self_attention.query_key_value)
        if hasattr(b, "cross_attention"):
            attention(a.multihead_attn, b.cross_attention, b.cross_attention.query, b.cross_attention.key_value)
            norms.insert(1, b.around_cross_attention.norm)
        for number, norm in enumerate(norms, start=1):
            same(getattr(a, f"norm{number}"), norm)
        same(a.linear1, b.feed_forward.inner)
        same(a.linear2, b.feed_forward.outer)
    if ours.config.residual == "pre":
        same(theirs.encoder.norm, ours.encoder_norm)
        same(theirs.decoder.norm, ours.decoder_norm)
    return pairs
