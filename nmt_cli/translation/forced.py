"""Forced passes: a model runs over given pairs of sources and translations, all tokens at once (teacher forcing).

    sources, targets ──▶ ForcedModel.forced ──▶ log P of given tokens, and the weights of attention

`engine.model.EngineModel` is such a model on a CPU, `torch_forced.TorchForced` on other devices and for what the
engine declines. `scoring`, `attention_maps` and `alignment` read their numbers here. This file does not load torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..recipe import ModelSection

Array = npt.NDArray[np.float32]


class ForcedModel(Protocol):
    """A model that runs over given translations."""

    @property
    def config(self) -> ModelSection:
        """The sizes of the model."""

    def forced(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        following: Sequence[Sequence[int]] = (),
        *,
        attention: Sequence[str] = (),
    ) -> tuple[list[Any], dict[str, Any]]:
        """Run over pairs of sources (S,) and targets (T,): a source ends with the end symbol, a target begins with BOS.

        Return log P of each token of `following` (T,), the tokens that come after those of the targets, an array (T,)
        for each pair; and the weights of each kind of `attention`: "encoder" (layers, H, S, S), "decoder" (layers, H,
        T, T) and "cross" (layers, H, T, S), of a single pair. A row of weights is a query, a column a key; a row sums
        to 1. All arrays are in fp32. The numbers of a pair do not depend, in fp32 and int8 on a CPU, on the other
        pairs.
        """
