"""Hard monotonic attention: the decoder reads the encoder's state of the next word (Aharoni and Goldberg 2017, section 3).

It is for targets that have a symbol for each word of the source, in order, and others between them: linearised trees
(section 6.3). Which word comes next is then known at each step: it follows from how many words the target has. Ordinary
attention must learn to find it, which takes more trees than most treebanks have.

    source ids ── begins ──▶ where each word begins          target ids ── ends ──▶ how many words it has, up to each token
                                   └────────── position of the next word's first token ──────────┘ ──▶ its memory, added to the embedding

After the last word it is the source's end symbol. `begins` and `ends` say of each token of a vocabulary whether a word
begins or ends with it; they are stored with the weights (`data.terminals` makes them).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .packing import Packing


class NextWord(nn.Module):
    """Where the next word is. Without tables no token begins or ends a word, and the next word is always the end symbol."""

    begins: Tensor
    ends: Tensor

    def __init__(self, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.register_buffer("begins", torch.zeros(source_vocab))
        self.register_buffer("ends", torch.zeros(target_vocab))

    def set(self, begins: Tensor, ends: Tensor) -> None:
        """Take the tables of the vocabularies, bool (V,)."""
        self.begins.copy_(begins)
        self.ends.copy_(ends)

    def packed(self, src: Tensor, source: Packing, tgt_in: Tensor, target: Packing) -> Tensor:
        """Return for each row of tgt_in (N',) the row of src (N,) where its next word begins, (N',)."""
        begun, ended = self._counts(self.begins, src), self._counts(self.ends, tgt_in)
        sentence = target.slots // target.longest
        src_start, tgt_start = source.starts[sentence], target.starts[sentence]
        words = ended - ended[tgt_start] + self.ends[tgt_in].long()[tgt_start]  # of the sentence, up to each token
        before = begun[src_start] - self.begins[src].long()[src_start]  # words of earlier sentences
        return torch.minimum(torch.searchsorted(begun, before + words + 1), source.starts[sentence + 1] - 1)

    def padded(self, src: Tensor, lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return for each token of tgt_in (B, T) the position in src (B, S) where its next word begins, (B, T); lengths (B,) of src."""
        begun, ended = self._counts(self.begins, src), self._counts(self.ends, tgt_in)
        position = (begun[:, None, :] <= ended[:, :, None]).sum(-1)
        return torch.minimum(position, lengths[:, None] - 1)

    def _counts(self, table: Tensor, ids: Tensor) -> Tensor:
        """Return how many of the tokens up to each one are marked in the table, int64, of the same shape as `ids`."""
        return table[ids].long().cumsum(-1)


class NextWords:
    """The same step by step, for decoders: what the hypotheses of B sentences have written, and what they read next.

    B sentences   W beam   N packed source tokens   M most words of a sentence, and the end symbol   D d_model
    """

    def __init__(self, tables: NextWord, beam: int) -> None:
        device = tables.begins.device
        self.begins, self.ends, self.beam = tables.begins.bool().tolist(), tables.ends.long(), beam
        self.states = torch.empty(0, 1, 0, device=device)  # (B, M, D), those of each sentence filled up with its last one
        self.written = torch.empty(0, beam, dtype=torch.long, device=device)  # (B, W) words

    def add(self, sources: Sequence[Sequence[int]], memory: Tensor) -> None:
        """Add sentences, whose ids end with the end symbol, behind the others; `memory` (N or more, D) has one after another."""
        rows, first = list[list[int]](), 0
        for source in sources:
            last = first + len(source) - 1
            rows.append([*(first + position for position, token in enumerate(source[:-1]) if self.begins[token]), last])
            first = last + 1
        most = max(self.states.size(1), *map(len, rows))
        new = memory[torch.tensor([[*row, *row[-1:] * (most - len(row))] for row in rows], device=memory.device)]
        if len(self.states):
            new = torch.cat([torch.cat([self.states, self.states[:, -1:].expand(-1, most - self.states.size(1), -1)], 1), new])
        self.states, self.written = new, torch.cat([self.written, self.written.new_zeros(len(sources), self.beam)])

    def read(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Count the newest tokens (B, W) of all hypotheses. Return what the open ones `rows` (n,) read, (n, D)."""
        self.written += self.ends[tokens]
        word = self.written.flatten().index_select(0, rows).clamp_max(self.states.size(1) - 1)
        return self.states[rows // self.beam, word]

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue what was its hypothesis parents[b, w], (B, W)."""
        self.written = self.written.gather(1, parents)

    def keep(self, sentences: Tensor) -> None:
        """Keep these sentences, (b,)."""
        self.states, self.written = self.states[sentences], self.written[sentences]
