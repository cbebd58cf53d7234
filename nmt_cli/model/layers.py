"""The encoder's and the decoder's layer (section 3.1), and the residual connection around each sub-layer.

`RESIDUALS[name]` says where LayerNorm stands. To add another: a class here and a line in the dictionary.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..recipe import ModelSection
from .attention import Cache, CrossAttention, SelfAttention
from .dropout import add_dropout
from .linear import Linear
from .packing import Packing

Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the paper's (section 3.1)."""

    final_norm = False

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(add_dropout(x, sublayer(x), self.dropout, self.training))  # type: ignore[no-any-return]


class PreNorm(nn.Module):
    """x + Dropout(Sublayer(LayerNorm(x))): steadier when deep; each stack then ends in a LayerNorm of its own."""

    final_norm = True

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return add_dropout(x, sublayer(self.norm(x)), self.dropout, self.training)


RESIDUALS: dict[str, type[PostNorm] | type[PreNorm]] = {"post": PostNorm, "pre": PreNorm}


class FeedForward(nn.Module):
    """max(0, xW1 + b1) W2 + b2 (equation 2)."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff, relu=True)
        self.outer = Linear(config.d_ff, config.d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm]
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_self_attention = residual(config)
        self.around_feed_forward = residual(config)

    def forward(self, x: Tensor, mask: Tensor | None, packing: Packing | None = None) -> Tensor:
        """x (B, S, D), mask (B, 1, 1, S) or None -> (B, S, D); with a `packing` x is (N, D)."""
        x = self.around_self_attention(x, lambda h: self.self_attention(h, mask, packing=packing))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, and feed-forward."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm]
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_self_attention = residual(config)
        self.around_cross_attention = residual(config)
        self.around_feed_forward = residual(config)

    def forward(
        self, x: Tensor, memory: tuple[Tensor, Tensor], memory_mask: Tensor | None, cache: Cache | None = None, packing: Packing | None = None
    ) -> Tensor:
        """x (B, T, D), `memory` projected by this layer's cross-attention, its mask (B, 1, 1, S) -> (B, T, D).

        With a `cache`, x is the newest position alone; with a `packing`, the target's, it is (N, D).
        """
        causal = cache is None
        x = self.around_self_attention(x, lambda h: self.self_attention(h, None, causal, cache, packing))
        x = self.around_cross_attention(x, lambda h: self.cross_attention(h, memory, memory_mask, packing))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]
