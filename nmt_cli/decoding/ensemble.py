"""An ensemble: a decoder that averages the probabilities of several decoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from .protocols import AttentionDecoder, GrowingDecoder


class EnsembleDecoder:
    """A decoder that averages the probabilities of several decoders over the same sentences and vocabulary."""

    def __init__(self, members: Sequence[GrowingDecoder]) -> None:
        self.members = members

    def add(self, sources: Sequence[Sequence[int]]) -> None:
        """See `Decoder`."""
        for member in self.members:
            member.add(sources)

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """See `Decoder`; the logits are log-probabilities."""
        log_probs = [member.step(tokens, rows).float().log_softmax(-1) for member in self.members]
        return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))

    def record_attention(self) -> None:
        """See `AttentionDecoder`: the attention is the first member's, which must be an `AttentionDecoder`."""
        cast(AttentionDecoder, self.members[0]).record_attention()

    def attention(self) -> Tensor:
        """See `AttentionDecoder`."""
        return cast(AttentionDecoder, self.members[0]).attention()

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        for member in self.members:
            member.reorder(parents)

    def keep(self, sentences: Tensor) -> None:
        """See `Decoder`."""
        for member in self.members:
            member.keep(sentences)
