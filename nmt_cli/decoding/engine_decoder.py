"""The engine's decoder for searches over torch's tensors: they share their memory with NumPy's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..engine.model import EngineModel


class EngineDecoder:
    """A `RankingDecoder` and an `AttentionDecoder` that holds no sentences at first."""

    def __init__(self, model: EngineModel, beam: int) -> None:
        self.model, self.decoder = model, model.decoder(beam)

    @property
    def vocabulary(self) -> int:
        """See `RankingDecoder`."""
        return self.model.vocabulary

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """See `Decoder`."""
        self.decoder.add(sources)

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`."""
        return torch.from_numpy(self.decoder.step(tokens.numpy(), rows.numpy()))

    def best(
        self,
        tokens: Tensor,
        rows: Tensor,
        log_probs: Tensor,
        count: int,
        banned_tokens: Sequence[int],
        only: Tensor | None,
        banned_counts: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """See `RankingDecoder`."""
        limits: list[Any] = [None if values is None else values.numpy() for values in (only, banned_counts)]
        values, flat = self.decoder.best(tokens.numpy(), rows.numpy(), log_probs.numpy(), count, banned_tokens, *limits)
        return torch.from_numpy(values), torch.from_numpy(flat)

    def record_attention(self) -> None:
        """See `AttentionDecoder`."""
        self.decoder.record_attention(max(self.model.config.decoder_layers - 2, 0))

    def attention(self) -> Tensor:
        """See `AttentionDecoder`."""
        return torch.from_numpy(self.decoder.attention())

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        self.decoder.reorder(parents.numpy())

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        self.decoder.keep(sentences.numpy())
