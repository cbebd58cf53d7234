"""Coverage penalty (Wu et al. 2016, equation 14): outputs that leave parts of the source untranslated get lower scores.

    cp(X; Y) = β Σ_i log(min(Σ_j p_ij, 1))        score(Y) = log P(Y) / lp(Y) + cp(X; Y)

p_ij is the attention of step j to source token i: the mean over the heads of one decoder layer (`alignment_layer`), as
the decoder reports it (`AttentionDecoder`). i runs over the source's tokens: the end symbol does not
count, because it has no content to translate. It keeps its share of the attention. j runs over all steps of the output,
the step of its end symbol included. cp is at most 0, and it is 0 when each source token has received an attention of 1.

Sums over steps are fp64, one step after the other. The logarithms are summed one hypothesis at a time. So the result does
not depend on the length to which the other sentences of the batch pad the source.

    B sentences   W hypotheses per sentence   N open hypotheses   C candidates   S source tokens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..device import widest_float
from .search_state import OfHypotheses, Rows
from .sentence import Sentence

LEAST = 1e-30
"""The smallest attention of a token, so that the logarithm stays finite."""


@dataclass
class Attended(OfHypotheses):
    """The attention that each hypothesis has paid to the source so far."""

    sums: Tensor  # (B, W, S) fp64; beyond the source's own tokens the values mean nothing


@dataclass
class Coverage(Rows):
    """The coverage state of B sentences."""

    attended: Attended
    sources: Tensor  # (B,) number of source tokens, end symbol not counted

    @classmethod
    def start(cls, sentences: Sequence[Sentence], width: int, device: torch.device) -> Self:
        """Return the state of new sentences."""
        sources = [len(sentence.tokens) for sentence in sentences]
        return cls(
            Attended(torch.zeros(len(sources), width, max(sources), dtype=widest_float(device), device=device)),
            torch.tensor(sources, device=device),
        )

    def add(self, rows: Tensor, attention: Tensor) -> None:
        """Add the attention (N, S or another length) of a step to the hypotheses `rows` (N,), which are numbers b * W + w; in place."""
        sums = self.attended.sums.flatten(0, 1)
        size = min(sums.size(1), attention.size(1))
        sums[rows, :size] += attention[:, :size]
        self.attended = Attended(sums.view(self.attended.sums.shape))

    def log_coverage(self, parents: Tensor, wanted: Tensor) -> Tensor:
        """Return Σ_i log(min(Σ_j p_ij, 1)) of the hypotheses `parents` (B, C) where `wanted`, elsewhere 0: (B, C) fp32."""
        sentence, candidate = wanted.nonzero().unbind(1)
        sums = self.attended.sums[sentence, parents[sentence, candidate]].tolist()
        sources = self.sources[sentence].tolist()
        values = [
            math.fsum(math.log(min(max(value, LEAST), 1.0)) for value in row[:size])
            for row, size in zip(sums, sources, strict=True)
        ]
        result = torch.zeros(parents.shape, device=parents.device)
        result[sentence, candidate] = torch.tensor(values, device=parents.device)
        return result
