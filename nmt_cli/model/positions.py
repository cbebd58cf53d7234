"""Where a token stands: sinusoids (section 3.5) or learned rows (table 3, row E).

`POSITIONS[name](config)` is a module that gives (T, D) for positions start .. start + T - 1, or (N, D) for positions
(N,) named one by one, to be added to the scaled embeddings. To add a kind: a class here and a line in the dictionary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same; interleaved. (length, D)"""
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
        return self.table[start : start + length]  # (T, D)

    def at(self, positions: Tensor) -> Tensor:
        return self.table.index_select(0, positions)  # (N, D)


class Learned(nn.Module):
    """A trained row for each position, drawn like the embeddings they are added to after scaling."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        if not self.weight.is_meta:  # see `Transformer`
            nn.init.normal_(self.weight, std=config.d_model**-0.5)

    def forward(self, length: int, start: int = 0) -> Tensor:
        return self.weight[start : start + length]  # (T, D)

    def at(self, positions: Tensor) -> Tensor:
        return F.embedding(positions, self.weight)  # (N, D)


POSITIONS: dict[str, type[Sinusoidal] | type[Learned]] = {"sinusoidal": Sinusoidal, "learned": Learned}
