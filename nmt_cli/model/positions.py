"""Positional encodings: sinusoids (section 3.5), learned vectors (table 3, row E), or rotations.

Registered in registry.POSITIONS.

An encoding is built from the config. A call with a length T returns (T, D) for positions start .. start + T - 1; `at`
returns (N, D) for a list of positions (N,). The result is added to the scaled embeddings. If `rotates` is true,
self-attention rotates its queries and keys too (`rotated`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same: (length, D)."""
    with torch.device("cpu"):  # the same numbers for every device
        position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


def marian_sinusoids(length: int, d_model: int) -> Tensor:
    """Return Marian's sinusoids (length, D): all sines, then all cosines, with frequencies 10000^(-i / (D / 2 - 1)).

    The paper's exponent is -i / (D / 2). Tensor2tensor has Marian's.
    """
    with torch.device("cpu"):
        position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        i = torch.arange(d_model // 2, dtype=torch.float64)
    angles = position * 10_000.0 ** (-i / (d_model // 2 - 1))
    return torch.cat((angles.sin(), angles.cos()), 1).float()


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Return x (…, K) with each pair of numbers 2i, 2i + 1 rotated by position / 10000^(2i / K) (Su et al. 2021,
    equation 34), in x's dtype.

    `positions` (…,) are broadcast to the dimensions before K. K is even. Because of the rotation, the product of a
    query and a key depends on their positions only by the distance between them.
    """
    frequency = 10_000.0 ** (-torch.arange(0, x.size(-1), 2, device=x.device) / x.size(-1))
    angles = positions[..., None].float() * frequency
    sin, cos = angles.sin(), angles.cos()
    even, odd = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2).to(x.dtype)


class Sinusoidal(nn.Module):
    """The paper's fixed sinusoids; they have no parameters and are not saved."""

    rotates = False
    sinusoids = staticmethod(sinusoids)
    table: Tensor

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", torch.empty(config.max_positions, config.d_model), persistent=False)
        if not self.table.is_meta:  # a model without values may not fit into memory
            self.fill()

    def fill(self) -> None:
        """Compute the table."""
        self.table = self.sinusoids(self.config.max_positions, self.config.d_model)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Return the encodings of positions `start` to `start` + `length` - 1, (T, D)."""
        return self.table[start : start + length]

    def at(self, positions: Tensor) -> Tensor:
        """Return the encodings of `positions` (N,), (N, D)."""
        return self.table.index_select(0, positions)


class Marian(Sinusoidal):
    """Marian's sinusoids."""

    sinusoids = staticmethod(marian_sinusoids)


class Learned(nn.Module):
    """A trained vector for each position, initialised like the embeddings. It is added to the scaled embeddings."""

    rotates = False

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        if not self.weight.is_meta:  # see `Transformer`
            nn.init.normal_(self.weight, std=config.d_model**-0.5)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Return the encodings of positions `start` to `start` + `length` - 1, (T, D)."""
        return self.weight[start : start + length]

    def at(self, positions: Tensor) -> Tensor:
        """Return the encodings of `positions` (N,), (N, D)."""
        return F.embedding(positions, self.weight)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021): embeddings stay as they are; self-attention rotates its queries and keys."""

    rotates = True
    nothing: Tensor

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        with torch.device("cpu"):  # also if the model is built on the meta device
            self.register_buffer("nothing", torch.zeros(()), persistent=False)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Return 0, a scalar."""
        return self.nothing

    def at(self, positions: Tensor) -> Tensor:
        """Return 0."""
        return self.nothing
