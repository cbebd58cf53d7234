"""The engine's decoder, as searches take it."""

from __future__ import annotations

from ..engine import model as engine
from ..search.arrays import NUMPY


class EngineDecoder(engine.EngineDecoder):
    """A `RankingDecoder` and an `AttentionDecoder` that holds no sentences at first."""

    arrays = NUMPY

    @property
    def vocabulary(self) -> int:
        """See `RankingDecoder`."""
        return self.model.vocabulary

    def record_attention(self, layer: int | None = None) -> None:
        """See `AttentionDecoder`. Without a `layer`: the one that alignments use."""
        super().record_attention(max(self.model.config.decoder_layers - 2, 0) if layer is None else layer)
