"""Embeddings of a model in int8. All other models have a parameter (V, D) in their place.

ids (…,) ──▶ Int8Embedding ──▶ (…, D) fp32: the integers of the ids' rows, each times the scale of its row
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Int8Embedding(nn.Module):
    """Embeddings whose integers (V, D) become fp32 when a row is read. They need a quarter of the memory of fp32."""

    weight: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, scales: Tensor) -> None:
        """Take `weight` (V, D) and `scales` (V,), the value of 1 in each row, as `precision.rounded` returns them."""
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("scales", scales, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of ids (…,), (…, D), fp32."""
        return F.embedding(ids, self.weight).float() * self.scales[ids, None]

    def matrix(self) -> Tensor:
        """Return all embeddings in fp32, (V, D)."""
        return self.weight.float().mul_(self.scales[:, None])


Embedding = nn.Parameter | Int8Embedding
"""An entry of `Transformer.embeddings`."""
