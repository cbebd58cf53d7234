"""Hard monotonic attention step by step: the encoder's state of the next word of each hypothesis (`model.monotonic`).

    B sentences   W beam   N packed source tokens   M most words of a sentence   D d_model
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..model.monotonic import NextWord


class NextWords:
    """What the hypotheses of B sentences, whose ids `sources` end with an end symbol, have written, and what they read next."""

    def __init__(self, tables: NextWord, sources: Sequence[Sequence[int]], memory: Tensor, beam: int) -> None:
        """`memory` (N, D) has the sentences one after another."""
        self.ends, self.memory = tables.ends.long(), memory
        begins, first, rows = tables.begins.tolist(), 0, list[list[int]]()
        for source in sources:
            last = first + len(source) - 1
            rows.append([*(first + position for position, token in enumerate(source[:-1]) if begins[token]), last])
            first = last + 1
        most = max(map(len, rows))
        self.rows = torch.tensor([[*own, *own[-1:] * (most - len(own))] for own in rows], device=memory.device)  # (B, M + 1)
        self.written = torch.zeros(len(sources), beam, dtype=torch.long, device=memory.device)  # (B, W) words

    def advance(self, sentences: Tensor, tokens: Tensor) -> None:
        """Count the newest tokens (b, W) of these sentences (b,)."""
        self.written[sentences] += self.ends[tokens]

    def states(self, sentence: Tensor, hypothesis: Tensor) -> Tensor:
        """Return what these hypotheses read, (n, D)."""
        word = self.written[sentence, hypothesis].clamp_max(self.rows.size(1) - 1)
        return self.memory.index_select(0, self.rows[sentence, word])

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue what was its hypothesis parents[b, w], (B, W)."""
        self.written = self.written.gather(1, parents)

    def keep(self, sentences: Tensor) -> None:
        """Keep these sentences, (b,)."""
        self.rows, self.written = self.rows[sentences], self.written[sentences]
