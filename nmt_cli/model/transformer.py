"""The Transformer (figure 1): embeddings, the two stacks, the output projection.

    src (B, S) ──▶ encode ──▶ memory (B, S, D) ──▶ project_memory ──▶ keys and values, a pair a decoder layer
    tgt_in (B, T) ────────────────▶ decode ──▶ hidden (B, T, D) ──▶ logits (B, T, V)

Training takes `packed`, the same over rows without padding; it ends at `hidden`, as `forward` does: the loss applies the
output projection itself, in pieces, so that (B, T, V) never has to exist. `decode` goes step by step
with caches, plainly; fast search (decoding/fast.py) calls `encode_rows` once and then takes the layers one by one.
Masks are boolean, True = may attend. Padding stands at the end of a row: causal self-attention never sees it, so the
target needs no mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection
from .attention import Cache
from .dropout import dropout
from .layers import RESIDUALS, DecoderLayer, EncoderLayer
from .packing import Packing
from .positions import POSITIONS

KeysValues = tuple[Tensor, Tensor]


def attention_mask(lengths: Tensor, size: int) -> Tensor | None:
    """(B,) lengths -> (B, 1, 1, size), True where a token stands; None when every row is full."""
    if int(lengths.min()) == size:
        return None
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None, None, :]


class Transformer(nn.Module):
    """Encoder and decoder of `config`, over vocabularies of the given sizes.

    Embeddings are drawn from N(0, 1 / d_model) and multiplied by sqrt(d_model) at the input (section 3.4); with
    `tie_embeddings` one matrix serves source, target and output. Raises nothing of its own.
    """

    def __init__(self, config: ModelSection, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        sizes = {"shared": source_vocab} if config.tie_embeddings else {"source": source_vocab, "target": target_vocab, "output": target_vocab}
        self.embeddings = nn.ParameterDict({name: self._embedding(size) for name, size in sizes.items()})
        self.source_positions = POSITIONS[config.positions](config)
        self.target_positions = POSITIONS[config.positions](config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        final = RESIDUALS[config.norm].final_norm
        self.encoder_norm = nn.LayerNorm(config.d_model) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if final else nn.Identity()

    def _embedding(self, size: int) -> nn.Parameter:
        weight = torch.empty(size, self.config.d_model)
        if not weight.is_meta:  # there is nothing to draw there, and torch would load its compiler to draw it: a second
            weight = torch.randn(size, self.config.d_model) * self.config.d_model**-0.5
        return nn.Parameter(weight)

    def matrix(self, use: str) -> Tensor:
        """The embedding matrix for "source", "target" or "output", (V, D); one and the same where they are tied."""
        matrix: Tensor = self.embeddings["shared" if self.config.tie_embeddings else use]
        return matrix

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the output projection."""
        return self.matrix("output")

    @property
    def target_vocab(self) -> int:
        """V, the size of the target vocabulary."""
        return self.output_weight.size(0)

    def embed(self, ids: Tensor, weight: Tensor, positions: nn.Module, start: int) -> Tensor:
        """ids (B, T) -> dropout(embedding * sqrt(d_model) + positions from `start` on), (B, T, D)."""
        x = F.embedding(ids, weight) * math.sqrt(self.config.d_model) + positions(ids.size(1), start)
        return dropout(x, self.config.dropout, self.training)

    def embed_rows(self, ids: Tensor, weight: Tensor, positions: nn.Module, at: Tensor) -> Tensor:
        """`embed` for rows: ids (N,) at positions (N,) -> (N, D)."""
        x = F.embedding(ids, weight) * math.sqrt(self.config.d_model) + positions.at(at)  # type: ignore[operator]
        return dropout(x, self.config.dropout, self.training)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """src (B, S) ids, src_mask from `attention_mask` -> memory (B, S, D)."""
        x = self.embed(src, self.matrix("source"), self.source_positions, 0)
        for layer in self.encoder:
            x = layer(x, src_mask)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def encode_rows(self, src: Tensor, source: Packing) -> Tensor:
        """`encode` without padding: src (N,) ids as the packing says -> memory (N, D)."""
        x = self.embed_rows(src, self.matrix("source"), self.source_positions, source.positions)
        for layer in self.encoder:
            x = layer(x, source.mask, source)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def project_memory(self, memory: Tensor) -> list[KeysValues]:
        """memory (B, S, D) -> for each decoder layer its keys (B, H, S, K) and values (B, H, S, W)."""
        return [layer.cross_attention.project(memory) for layer in self.decoder]  # type: ignore[operator, union-attr]

    def decode(
        self,
        tgt_in: Tensor,
        memory: Sequence[KeysValues],
        memory_mask: Tensor | None,
        caches: Sequence[Cache] | None = None,
        start: int = 0,
    ) -> Tensor:
        """tgt_in (B, T) ids -> hidden (B, T, D).

        With `caches` (one a layer) tgt_in is (B, 1), the token at position `start`; the caches hold those before it.
        """
        x = self.embed(tgt_in, self.matrix("target"), self.target_positions, start)
        for index, layer in enumerate(self.decoder):
            x = layer(x, memory[index], memory_mask, caches[index] if caches is not None else None)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): before the softmax."""
        return F.linear(hidden, self.output_weight)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """src (B, S), its mask, tgt_in (B, T) -> hidden (B, T, D), to be given to the loss or to `logits`."""
        return self.decode(tgt_in, self.project_memory(self.encode(src, src_mask)), src_mask)

    def packed(self, src: Tensor, source: Packing, tgt_in: Tensor, target: Packing) -> Tensor:
        """`forward` without padding: src (N,) and tgt_in (N',) ids as their packings say -> hidden (N', D).

        Only the first `target.tokens` rows mean something.
        """
        memory = self.encode_rows(src, source)
        x = self.embed_rows(tgt_in, self.matrix("target"), self.target_positions, target.positions)
        for layer in self.decoder:
            projected = layer.cross_attention.project(memory, source)  # type: ignore[operator, union-attr]
            x = layer(x, projected, source.mask, None, target)
        return self.decoder_norm(x)  # type: ignore[no-any-return]


def count_parameters(model: Transformer) -> dict[str, int]:
    """Trained parameters by part, and in total; a matrix that is shared counts once."""
    parts = {"embeddings": 0, "positions": 0, "encoder": 0, "decoder": 0}
    for name, parameter in model.named_parameters():
        part = "positions" if "positions" in name else name.split(".")[0].split("_")[0]
        parts[part] += parameter.numel()
    return {**parts, "total": sum(parts.values())}
