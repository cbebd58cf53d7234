"""Coverage penalty (Wu et al. 2016, equation 14): outputs that leave parts of the source untranslated get lower scores.

    cp(X; Y) = β Σ_i log(min(Σ_j p_ij, 1))        score(Y) = log P(Y) / lp(Y) + cp(X; Y)

p_ij is the attention of step j to source token i: the mean over the heads of one decoder layer (`alignment_layer`), as
the decoder reports it (`AttentionDecoder`). i runs over the tokens of the source's text: the end symbol and the tag of
a language do not count, because they have no content to translate. They keep their share of the attention. j runs over
all steps of the output, the step of its end symbol included. cp is at most 0, and it is 0 when each source token has
received an attention of 1.

Sums over steps are fp64, one step after the other. The logarithms are summed one hypothesis at a time. So the result
does not depend on the length to which the other sentences of the batch pad the source.

    B sentences   W hypotheses per sentence   N open hypotheses   C candidates   S source tokens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from .arrays import Array, Arrays, arrays_of, merged
from .search_state import Rows
from .sentence import Sentence

LEAST = 1e-30
"""The smallest attention of a token, so that the logarithm stays finite."""


@dataclass
class Coverage(Rows):
    """The coverage state of B sentences."""

    sums: Array  # (B, W, S) fp64: the attention to the source so far; beyond the source's tokens it means nothing
    sources: Array  # (B, 2) the first token of the source's text, and the end symbol after it

    @classmethod
    def start(cls, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Self:
        """Return the state of new sentences."""
        sources = [(sentence.first, len(sentence.tokens)) for sentence in sentences]
        sums = arrays.zeros((len(sources), width, max(end for _, end in sources)), arrays.widest)
        return cls(sums, arrays.array(sources, arrays.int64))

    def add(self, rows: Array, attention: Array) -> None:
        """Add the attention (N, S or another length) of a step to the hypotheses `rows` (N,), which are numbers b * W +
        w; in place.
        """
        size = min(self.sums.shape[2], attention.shape[1])
        merged(self.sums)[rows, :size] += attention[:, :size]

    def log_coverage(self, parents: Array, wanted: Array) -> Array:
        """Return Σ_i log(min(Σ_j p_ij, 1)) of the hypotheses `parents` (B, C) where `wanted`, elsewhere 0: (B, C)
        fp32.
        """
        arrays = arrays_of(parents)
        sentence, candidate = arrays.nonzero(wanted)
        sums = self.sums[sentence, parents[sentence, candidate]].tolist()
        sources = self.sources[sentence].tolist()
        values = [
            math.fsum(math.log(min(max(value, LEAST), 1.0)) for value in row[first:end])
            for row, (first, end) in zip(sums, sources, strict=True)
        ]
        result = arrays.zeros(parents.shape, arrays.float32)
        result[sentence, candidate] = arrays.array(values, arrays.float32)
        return result
