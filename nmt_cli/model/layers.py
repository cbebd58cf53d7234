"""The feed-forward network and the layers of the encoder and the decoder (sections 3.1 and 3.3).

    EncoderLayer   self-attention → feed-forward
    DecoderLayer   causal self-attention, or an SSRU → attention to the memory → feed-forward

Each sub-layer has a residual connection around it (`residuals`). All sequences are (B, T, D), or (N, D) with a packing.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..recipe import ModelSection
from ..registry import ACTIVATIONS, RESIDUALS, load
from .attention import Cache, CrossAttention, SelfAttention
from .packing import PADDED, Layout
from .residuals import Sublayer
from .ssru import SSRU


class FeedForward(nn.Module):
    """max(0, xW1 + b1) W2 + b2 (equation 2), or another activation in the place of max(0, ·).

    An activation that has an attribute `inputs` reads `inputs` * d_ff numbers.
    """

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.activation: nn.Module = load(ACTIVATIONS, config.activation, "model.activation")(config)
        self.inner = nn.Linear(config.d_model, config.d_ff * int(getattr(self.activation, "inputs", 1)))
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.activation_dropout) if config.activation_dropout else nn.Identity()
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (…, D) to (…, D)."""
        return self.outer(self.dropout(self.activation(self.inner(x))))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        residual = load(RESIDUALS, config.residual, "model.residual")
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_self_attention = residual(config)
        self.around_feed_forward = residual(config)

    def forward(self, x: Tensor, mask: Tensor | None, layout: Layout = PADDED) -> Tensor:
        """Map x (B, S, D) to (B, S, D), with mask (B, 1, 1, S) or None."""
        x = self.around_self_attention(x, lambda h: self.self_attention(h, mask, layout=layout))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention or an SSRU (`model.decoder`), attention to the memory, and feed-forward."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        residual = load(RESIDUALS, config.residual, "model.residual")
        if config.decoder == "ssru":
            self.ssru = SSRU(config)
        else:
            self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_self_attention = residual(config)
        self.around_cross_attention = residual(config)
        self.around_feed_forward = residual(config)

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        memory_mask: Tensor | None,
        cache: Cache | None = None,
        layout: Layout = PADDED,
        memory_layout: Layout = PADDED,
        start: int = 0,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D).

        `memory` was projected by this layer's cross-attention; its mask is (B, 1, 1, S) or None.

        With a `cache`, x is only the newest position, `start`, which attends to all cached ones. `layout` is the
        target's, `memory_layout` the source's.
        """

        def own(h: Tensor) -> Tensor:
            if isinstance(unit := getattr(self, "ssru", None), SSRU):
                return unit(h, cache, layout)  # type: ignore[no-any-return]
            return self.self_attention(h, None, cache is None, cache, layout, start)  # type: ignore[no-any-return]

        return self.sublayers(x, own, lambda h: self.cross_attention(h, memory, memory_mask, layout, memory_layout))

    def sublayers(self, x: Tensor, own: Sublayer, cross_attention: Sublayer) -> Tensor:
        """Apply the three sub-layers to x (…, D): what reads the `own` sequence first.

        Return (…, D). A decoder with its own caches passes its own two functions.
        """
        x = self.around_self_attention(x, own)
        x = self.around_cross_attention(x, cross_attention)
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]
