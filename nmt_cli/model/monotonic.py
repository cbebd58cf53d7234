"""Hard monotonic attention: the decoder reads the encoder's state of the next word (Aharoni and Goldberg 2017, section
3).

This attention is for targets that have one symbol per source word, in the order of the words, and other symbols between
them: linearised trees (section 6.3). At each step, the number of words in the target so far determines the next source
word. Ordinary attention must learn to find this word, and most treebanks have too few trees for that.

    source ids ── begins ──▶ where each word begins    target ids ── ends ──▶ its words up to each token
                                   └────────── position of the next word's first token ──────────┘
                                                ──▶ its memory, added to the embedding

After the last word, the next word is the source's end symbol. The tables `begins` and `ends` mark the tokens of a
vocabulary with which a word begins or ends. A function of `registry.TREES` computes them; they are stored with the
weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .packing import Packing


class NextWord(nn.Module):
    """The tables, and the positions of next words.

    While the tables are zero, the next word is always the end symbol.
    """

    begins: Tensor
    ends: Tensor

    def __init__(self, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.register_buffer("begins", torch.zeros(source_vocab))
        self.register_buffer("ends", torch.zeros(target_vocab))

    def set(self, begins: Tensor, ends: Tensor) -> None:
        """Set the tables of the source and the target vocabulary, each bool (V,)."""
        self.begins.copy_(begins)
        self.ends.copy_(ends)

    def packed(self, src: Tensor, source: Packing, tgt_in: Tensor, target: Packing) -> Tensor:
        """Return for each row of tgt_in (N',) the row of src (N,) where its next word begins, (N',)."""
        begun, ended = self._counts(self.begins, src), self._counts(self.ends, tgt_in)
        sentence = target.slots // target.longest
        src_start, tgt_start = source.starts[sentence], target.starts[sentence]
        words = ended - ended[tgt_start] + self.ends[tgt_in].long()[tgt_start]  # of the sentence up to each token
        before = begun[src_start] - self.begins[src].long()[src_start]  # words of earlier sentences
        return torch.minimum(torch.searchsorted(begun, before + words + 1), source.starts[sentence + 1] - 1)

    def padded(self, src: Tensor, lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return for each token of tgt_in (B, T) the position in src (B, S) where its next word begins, (B, T).

        `lengths` (B,) are those of src.
        """
        begun, ended = self._counts(self.begins, src), self._counts(self.ends, tgt_in)
        position = (begun[:, None, :] <= ended[:, :, None]).sum(-1)
        return torch.minimum(position, lengths[:, None] - 1)

    def _counts(self, table: Tensor, ids: Tensor) -> Tensor:
        """Return for each token the number of marked tokens up to it, itself included; int64, in the shape of `ids`."""
        return table[ids].long().cumsum(-1)


class NextWords:
    """`NextWord` step by step, for decoders: counts the words in the hypotheses of B sentences, and returns the states
    they read next.

    B sentences   W beam   N packed source tokens   D d_model
    M largest number of words in a sentence, plus the end symbol
    """

    def __init__(self, tables: NextWord, beam: int) -> None:
        device = tables.begins.device
        self.begins, self.ends, self.beam = tables.begins.bool().tolist(), tables.ends.long(), beam
        self.states = torch.empty(0, 1, 0, device=device)  # (B, M, D), padded with each sentence's last state
        self.written = torch.empty(0, beam, dtype=torch.long, device=device)  # (B, W) words

    def add(self, sources: Sequence[Sequence[int]], memory: Tensor) -> None:
        """Add sentences after the present ones.

        Their ids end with the end symbol; `memory` (N or more, D) holds their states, one sentence after another.
        """
        rows, first = list[list[int]](), 0
        for source in sources:
            last = first + len(source) - 1
            rows.append([*(first + position for position, token in enumerate(source[:-1]) if self.begins[token]), last])
            first = last + 1
        most = max(self.states.size(1), *map(len, rows))
        new = memory[torch.tensor([[*row, *row[-1:] * (most - len(row))] for row in rows], device=memory.device)]
        if len(self.states):
            new = torch.cat(
                [torch.cat([self.states, self.states[:, -1:].expand(-1, most - self.states.size(1), -1)], 1), new]
            )
        self.states, self.written = new, torch.cat([self.written, self.written.new_zeros(len(sources), self.beam)])

    def read(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """Count the words in the newest tokens (B, W) of all hypotheses.

        Return the states (n, D) that the open hypotheses `rows` (n,) read.
        """
        self.written += self.ends[tokens]
        word = self.written.flatten().index_select(0, rows).clamp_max(self.states.size(1) - 1)
        return self.states[rows // self.beam, word]

    def reorder(self, parents: Tensor) -> None:
        """Reorder hypotheses by `parents` (B, W): hypothesis w of sentence b continues the former parents[b, w]."""
        self.written = self.written.gather(1, parents)

    def keep(self, sentences: Tensor) -> None:
        """Keep only the sentences with these indices, (b,)."""
        self.states, self.written = self.states[sentences], self.written[sentences]
