"""Positional encodings: sinusoids (section 3.5) or learned vectors (table 3, row E). Registered in registry.POSITIONS.

An encoding is built from the config. Called with a length it gives (T, D) for positions start .. start + T - 1; `at`
gives (N, D) for positions (N,) named one by one. The result is added to the scaled embeddings.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same; interleaved. (length, D)."""
    with torch.device("cpu"):  # also where modules are made without memory
        position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
        table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table.to(torch.get_default_dtype())


class Sinusoidal(nn.Module):
    """The paper's fixed sinusoids; they have no parameters and are not saved."""

    table: Tensor

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", sinusoids(config.max_positions, config.d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Return the encodings of positions `start` to `start` + `length` - 1, (T, D)."""
        return self.table[start : start + length]

    def at(self, positions: Tensor) -> Tensor:
        """Return the encodings of `positions` (N,), (N, D)."""
        return self.table.index_select(0, positions)


class Learned(nn.Module):
    """A trained vector for each position, initialised like the embeddings that they are added to after scaling."""

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
