"""Marian's transformer in plain torch, in float64, from Marian's own arrays: what an imported or exported model is
compared with.

    texts ──▶ preprocess.sh, SentencePiece, vocab.yml ──▶ ids ──▶ encoder, decoder ──▶ logits (T, V)

It shares no code with the import: no array is renamed, transposed or joined. Its ids are those of the model folder, and
`orders` translates them.

A batch runs through one layer after another, each target as a whole: the state after each of its beginnings is that of
a search that has generated this beginning. So if the most likely token at each step is the target's, the target is the
output of greedy search; no step is generated twice. Sentences are not padded: their rows follow one another.

    N rows of all sentences   S source length   T target length   D d_model   V vocabulary
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.sentencepiece_model import bytes_of
from ..data.tokenizer import BOS, EOS, PAD
from .exporter import Output
from .importer import Array, LazyArray
from .preprocess import MOSES, Rule, Step, effect_of, rules_of

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "silu": F.silu, "gelu": F.gelu}
ROWS = 128
"""About so many rows are multiplied with the vocabulary at a time."""
BLOCK = 2048
"""Tokens of the vocabulary that are in memory in float64 at a time."""


class MarianReader:
    """A model of Marian's. `vocabularies`: piece → Marian's id, of source and target; `models`: SentencePiece's;
    `own_ids`: whether their own ids are Marian's.
    """

    def __init__(
        self,
        arrays: Mapping[str, LazyArray],
        section: Mapping[str, Any],
        ties: Mapping[str, bool],
        orders: Mapping[str, Array],
        models: Sequence[bytes],
        vocabularies: Sequence[Mapping[str, int]],
        steps: Sequence[Step],
        own_ids: Sequence[bool] = (False, False),
    ) -> None:
        import sentencepiece

        self.arrays, self.section, self.orders = arrays, section, orders
        self.steps = [(effect_of(step), rules_of(step) or []) for step in steps]
        names = ("encoder_Wemb", "decoder_Wemb") if "Wemb" not in arrays else ("Wemb", "Wemb")
        self.tables = {"source": names[0], "target": names[1]}
        self.tied_output = ties["tied-embeddings"] or ties["tied-embeddings-all"]
        self.tokenizers = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        self.vocabularies, self.own_ids = vocabularies, own_ids
        self.ids = {piece: number for piece, number in vocabularies[0].items() if bytes_of(piece) == piece.encode()}
        self.ours = {
            side: {int(theirs): ours for ours, theirs in enumerate(order) if theirs >= 0}
            for side, order in orders.items()
        }
        self.start = np.zeros(section["d_model"])
        """The decoder's first input, (D,)."""
        self.exponents = "marian"
        """Whose positions: "marian" or "huggingface"."""
        self.features: Array | slice = slice(None)
        """The index of each of the model folder's features among ours."""
        self.padding: tuple[Array, float] | None = None
        """The output row and bias of padding, if it has a probability."""

    def tensor(self, name: str) -> Tensor:
        """Return an array of Marian's in float64. It is read each time: only one layer is in memory."""
        return torch.tensor(self.arrays[name].read(), dtype=torch.float64)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids, ours = self.ids, self.ours["source"]
        lines = [self._preprocessed(text) for text in texts]
        if self.own_ids[0]:
            return [[*(ours[number] for number in row), EOS] for row in self.tokenizers[0].encode(lines)]
        pieces = self.tokenizers[0].encode(lines, out_type=str)
        return [[*(ours[ids.get(piece, ids["<unk>"])] for piece in row), EOS] for row in pieces]

    def _preprocessed(self, text: str) -> str:
        """Return a text after the steps of preprocess.sh, one after another."""
        for effect, rules in self.steps:
            if effect == "punctuation":
                rules = [Rule(old[0], len(old) > 1, new) for old, new in MOSES.items()]
            for old, spaces, new in rules:
                if old in text:
                    text = re.sub(re.escape(old) + " *" * spaces, new.replace("\\", r"\\"), text)
            if effect == "controls":
                text = "".join(" " if unicodedata.category(one).startswith("C") else one for one in text)
        return text

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        pieces = {number: piece for piece, number in self.vocabularies[1].items()}
        order = self.orders["target"]
        kept = [[int(order[i]) for i in row if i not in (PAD, BOS, EOS)] for row in rows]
        if self.own_ids[1]:
            return [self.tokenizers[1].decode(row) for row in kept]
        spelled = [[bytes_of(pieces[number]).decode("utf-8", "surrogateescape") for number in row] for row in kept]
        texts = ["".join(self._parts(row)) for row in spelled]
        return [
            text.replace("▁", " ").strip().encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            for text in texts
        ]  # spm_decode

    def _parts(self, pieces: Sequence[str]) -> Iterator[str]:
        """Yield the texts of pieces, and of several that are bytes together. Control pieces have none."""
        processor = self.tokenizers[1]
        numbers = [processor.piece_to_id(piece.encode("utf-8", "replace").decode()) for piece in pieces]
        of_bytes = map(processor.is_byte, numbers)
        for is_byte, run in groupby(zip(of_bytes, numbers, pieces, strict=True), lambda one: one[0]):
            kept = [piece for _, number, piece in run if not processor.is_control(number)]
            yield str(processor.decode_pieces(kept)) if is_byte else "".join(kept)

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> Iterator[Output]:
        """See `Reader`. Greedy search follows `targets` as long as each of their tokens is the most likely one."""
        states = self.states(sources)
        hidden = self.hidden(states, [target[:-1] for target in targets])
        ends = np.cumsum([len(rows) for rows in hidden])
        for _, group in groupby(range(len(targets)), lambda number: ends[number] // ROWS):
            numbers = list(group)
            lengths = [len(hidden[number]) for number in numbers]
            logits, totals = self.logits(torch.cat([hidden[number] for number in numbers]))
            scored = zip(numbers, torch.split(logits, lengths), torch.split(totals, lengths), strict=True)
            for number, scores, total in scored:
                yield self._output(targets[number], scores, total, states[number], limit)

    def _output(self, target: list[int], logits: Tensor, totals: Tensor, states: Tensor, limit: int) -> Output:
        """Return an output for its logits (T, V), and the logarithms of the sums of their exponentials (T,)."""
        expected = torch.tensor(target)
        best = EOS + logits[:, EOS:].argmax(-1)  # the tokens before it are those that search never generates
        same = int((best == expected).long().cumprod(0).sum())
        of_target = logits.gather(1, expected[:, None])[:, 0] - totals
        tokens = [*target[:same], *best[same : same + 1].tolist()]
        return Output(tokens[:limit], logits, of_target.float(), states[:, self.features].float())

    def states(self, sources: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the encoder's states (S, D) of each source, which has its end symbol."""
        x, lengths = self._embedded("source", sources)
        for layer in range(1, self.section["encoder_layers"] + 1):
            x = self._attention(f"encoder_l{layer}_self", x, lengths, x, lengths)
            x = self._feed_forward(f"encoder_l{layer}_ffn", x)
        return torch.split(x, lengths)

    def hidden(self, states: Sequence[Tensor], targets: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the decoder's states (T + 1, D) after each beginning of each target, without its end symbol.

        The first input of the decoder is `start`.
        """
        memory, of_memory = torch.cat([*states]), [len(rows) for rows in states]
        y, lengths = self._embedded("target", targets)
        for layer in range(1, self.section["decoder_layers"] + 1):
            if self.section.get("decoder") == "ssru":
                y = self._ssru(f"decoder_l{layer}_rnn", y, lengths)
            else:
                y = self._attention(f"decoder_l{layer}_self", y, lengths, y, lengths, causal=True)
            y = self._attention(f"decoder_l{layer}_context", y, lengths, memory, of_memory)
            y = self._feed_forward(f"decoder_l{layer}_ffn", y)
        return torch.split(y, lengths)

    def logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return for `hidden` (N, D) the scores (N, V) of all tokens, in fp32, and the logarithms (N,) of the sums of
        their exponentials. They are computed by blocks of the vocabulary.
        """
        order, older = self.orders["target"], "decoder_ff_logit_out_W"
        turned = not self.tied_output and older in self.arrays
        name = older if turned else self.tables["target"] if self.tied_output else f"{older}t"
        bias = self.tensor("decoder_ff_logit_out_b").ravel()
        logits = torch.empty(len(hidden), len(order))
        totals = torch.full((len(hidden),), -torch.inf, dtype=torch.float64)
        for begin in range(0, len(order), BLOCK):
            ids = order[begin : begin + BLOCK]
            kept = np.maximum(ids, 0)
            matrix = self.arrays[name].read()  # each time: no more of its pages than these are in memory
            rows = torch.tensor(matrix[:, kept].T if turned else matrix[kept], dtype=torch.float64)
            scores = hidden @ rows.T + bias[kept]
            scores[:, ids < 0] = -1e9
            if self.padding and begin == 0:
                scores[:, PAD] = hidden @ torch.tensor(self.padding[0], dtype=torch.float64) + self.padding[1]
            logits[:, begin : begin + BLOCK] = scores
            totals = torch.logaddexp(totals, scores.logsumexp(1))
        return logits, totals

    def _embedded(self, side: str, sentences: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
        """Return embeddings * sqrt(D) + positions of all sentences, one after another, and how many rows each has.

        Those of the target begin with the decoder's `start`.
        """
        table, order = self.arrays[self.tables[side]], self.orders[side]
        begin, matrix = [self.start[None]] if side == "target" else [], table.read()
        embedded = [
            torch.tensor(np.concatenate([*begin, matrix[order[np.array(row, np.int64)]]]), dtype=torch.float64)
            for row in sentences
        ]
        scale = self.section["d_model"] ** 0.5
        return torch.cat([x * scale + self.positions(len(x)) for x in embedded]), [len(x) for x in embedded]

    def positions(self, length: int) -> Tensor:
        """Return sinusoids (length, D)."""
        half = self.section["d_model"] // 2
        powers = torch.arange(half, dtype=torch.float64) / (half - (self.exponents == "marian"))
        angles = torch.arange(length)[:, None] * 10_000.0**-powers
        return torch.cat([angles.sin(), angles.cos()], 1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale, bias = (self.tensor(f"{name}_ln_{part}").ravel() for part in ("scale", "bias"))
        return F.layer_norm(x, scale.shape, scale, bias, self.section["norm_epsilon"] or 1e-5)

    def _map(self, x: Tensor, name: str, part: str) -> Tensor:
        return x @ self.tensor(f"{name}_W{part}") + self.tensor(f"{name}_b{part}").ravel()

    def _attention(
        self, name: str, x: Tensor, lengths: list[int], memory: Tensor, of_memory: list[int], causal: bool = False
    ) -> Tensor:
        sources = ((x, "q", lengths), (memory, "k", of_memory), (memory, "v", of_memory))
        heads = [
            torch.split(self._map(rows, name, part).view(len(rows), self.section["num_heads"], -1), sizes)
            for rows, part, sizes in sources
        ]  # each (T, H, K) or (S, H, K), by sentence
        mixed = [self._mixed(q, k, v, causal) for q, k, v in zip(*heads, strict=True)]
        return self._norm(x + self._map(torch.cat(mixed), name, "o"), f"{name}_Wo")

    def _ssru(self, name: str, x: Tensor, lengths: list[int]) -> Tensor:
        forget = torch.sigmoid(x @ self.tensor(f"{name}_Wf") + self.tensor(f"{name}_bf").ravel())
        added = (1 - forget) * (x @ self.tensor(f"{name}_W"))
        cells = []
        for gates, rows in zip(torch.split(forget, lengths), torch.split(added, lengths), strict=True):
            cell = torch.zeros(x.size(1), dtype=torch.float64)
            for gate, row in zip(gates, rows, strict=True):
                cell = gate * cell + row
                cells.append(cell)
        return self._norm(x + torch.stack(cells).relu(), f"{name}_ffn")

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        """Return the attention (T, H * K) of a sentence: q (T, H, K) to k and v (S, H, K)."""
        q, k, v = (one.transpose(0, 1) for one in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1).flatten(1)

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        hidden = ACTIVATIONS[self.section["activation"]](self._map(x, name, "1"))
        return self._norm(x + self._map(hidden, name, "2"), f"{name}_ffn")
