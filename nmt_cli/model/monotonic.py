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
        first, own = source.starts[sentence], target.starts[sentence]
        words = ended - ended[own] + self.ends[tgt_in].long()[own]  # of the sentence, up to each token
        before = begun[first] - self.begins[src].long()[first]  # words of earlier sentences
        return torch.minimum(torch.searchsorted(begun, before + words + 1), source.starts[sentence + 1] - 1)

    def padded(self, src: Tensor, lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return for each token of tgt_in (B, T) the position in src (B, S) where its next word begins, (B, T); lengths (B,) of src."""
        begun, ended = self._counts(self.begins, src), self._counts(self.ends, tgt_in)
        position = (begun[:, None, :] <= ended[:, :, None]).sum(-1)
        return torch.minimum(position, lengths[:, None] - 1)

    def _counts(self, table: Tensor, ids: Tensor) -> Tensor:
        """Return how many of the tokens up to each one are marked in the table, int64, of the same shape as `ids`."""
        return table[ids].long().cumsum(-1)
