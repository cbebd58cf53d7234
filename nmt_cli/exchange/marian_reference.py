"""Marian's transformer in NumPy, in float64, from Marian's own arrays: what an imported or exported model is compared
with.

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

from ..data.tokenizer import BOS, EOS, PAD
from .exporter import Output
from .importer import Array, LazyArray
from .preprocess import MOSES, Rule, Step, effect_of, rules_of

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: torch.nn.functional.gelu(torch.from_numpy(x)).numpy(),
}
ROWS = 128
"""About so many rows are multiplied with the vocabulary at a time."""
BLOCK = 2048
"""Tokens of the vocabulary that are in memory in float64 at a time."""


class MarianReader:
    """A model of Marian's. `vocabularies`: piece → Marian's id, of source and target; `models`: SentencePiece's."""

    def __init__(
        self,
        arrays: Mapping[str, LazyArray],
        section: Mapping[str, Any],
        ties: Mapping[str, bool],
        orders: Mapping[str, Array],
        models: Sequence[bytes],
        vocabularies: Sequence[Mapping[str, int]],
        steps: Sequence[Step],
    ) -> None:
        import sentencepiece

        self.arrays, self.section, self.orders = arrays, section, orders
        self.steps = [(effect_of(step), rules_of(step) or []) for step in steps]
        names = ("encoder_Wemb", "decoder_Wemb") if "Wemb" not in arrays else ("Wemb", "Wemb")
        self.tables = {"source": names[0], "target": names[1]}
        self.tied_output = ties["tied-embeddings"] or ties["tied-embeddings-all"]
        self.tokenizers = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        self.vocabularies = vocabularies
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
        self.padding: dict[str, Any] = {}
        """The output row and bias of padding, if it has a probability."""

    def array(self, name: str) -> Array:
        """Return an array of Marian's in float64. It is read each time: only one layer is in memory."""
        return self.arrays[name].read().astype(np.float64)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids, ours = self.vocabularies[0], self.ours["source"]
        pieces = [self.tokenizers[0].encode(self._preprocessed(text), out_type=str) for text in texts]
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
        kept = [[pieces[int(order[i])] for i in row if i not in (PAD, BOS, EOS)] for row in rows]
        return ["".join(row).replace("▁", " ").strip() for row in kept]  # postprocess.sh

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> Iterator[Output]:
        """See `Reader`. Greedy search follows `targets` as long as each of their tokens is the most likely one."""
        states = self.states(sources)
        hidden = self.hidden(states, [target[:-1] for target in targets])
        ends = np.cumsum([len(rows) for rows in hidden])
        for _, group in groupby(range(len(targets)), lambda number: ends[number] // ROWS):
            numbers = list(group)
            scored = self.logits([hidden[number] for number in numbers])
            for number in numbers:
                yield self._output(targets[number], *scored.pop(0), states[number], limit)

    def _output(self, target: list[int], logits: Array, totals: Array, states: Array, limit: int) -> Output:
        """Return an output for its logits (T, V), fp32, and the logarithms of the sums of their exponentials (T,)."""
        best = EOS + logits[:, EOS:].argmax(-1)  # the tokens before it are those that search never generates
        differing = np.flatnonzero(best != np.array(target))
        tokens = [*target[: differing[0]], int(best[differing[0]])] if len(differing) else list(target)
        of_target = logits[np.arange(len(target)), target] - totals
        numbers = (torch.from_numpy(one.astype(np.float32)) for one in (of_target, states[:, self.features]))
        return Output(tokens[:limit], torch.from_numpy(logits), *numbers)

    def states(self, sources: Sequence[Sequence[int]]) -> list[Array]:
        """Return the encoder's states (S, D) of each source, which has its end symbol."""
        x, ends = self._embedded("source", sources)
        for layer in range(1, self.section["encoder_layers"] + 1):
            x = self._attention(f"encoder_l{layer}_self", x, ends, x, ends, False)
            x = self._feed_forward(f"encoder_l{layer}_ffn", x)
        return np.split(x, ends)

    def hidden(self, states: Sequence[Array], targets: Sequence[Sequence[int]]) -> list[Array]:
        """Return the decoder's states (T + 1, D) after each beginning of each target, without its end symbol.

        The first input of the decoder is a zero vector.
        """
        memory, ends_of_memory = _joined(states)
        y, ends = self._embedded("target", targets, first=True)
        for layer in range(1, self.section["decoder_layers"] + 1):
            y = self._attention(f"decoder_l{layer}_self", y, ends, y, ends, True)
            y = self._attention(f"decoder_l{layer}_context", y, ends, memory, ends_of_memory, False)
            y = self._feed_forward(f"decoder_l{layer}_ffn", y)
        return np.split(y, ends)

    def logits(self, hidden: Sequence[Array]) -> list[tuple[Array, Array]]:
        """Return for each of `hidden` (T, D) the scores (T, V) of all tokens, in fp32, and the logarithms (T,) of the
        sums of their exponentials. They are computed by blocks of the vocabulary.
        """
        order, older = self.orders["target"], "decoder_ff_logit_out_W"
        turned = not self.tied_output and older in self.arrays
        name = older if turned else self.tables["target"] if self.tied_output else f"{older}t"
        bias = self.array("decoder_ff_logit_out_b").ravel()
        joined, ends = _joined(hidden)
        logits = [np.empty((len(rows), len(order)), np.float32) for rows in hidden]
        block = np.empty((BLOCK, joined.shape[1]))
        largest, sums = np.full((len(joined), 1), -np.inf), np.zeros((len(joined), 1))
        for begin in range(0, len(order), BLOCK):
            ids = order[begin : begin + BLOCK]
            kept = np.maximum(ids, 0)
            matrix = self.arrays[name].read()  # each time: no more of its pages than these are in memory
            rows = block[: len(ids)]
            rows[:] = matrix[:, kept].T if turned else matrix[kept]
            scores = joined @ rows.T + bias[kept]
            scores[:, ids < 0] = -1e9
            if self.padding and begin == 0:
                scores[:, PAD] = joined @ self.padding["row"] + self.padding["bias"]
            for whole, part in zip(logits, np.split(scores, ends), strict=True):
                whole[:, begin : begin + BLOCK] = part
            before, largest = largest, np.maximum(largest, scores.max(1, keepdims=True))
            scores -= largest
            sums = sums * np.exp(before - largest) + np.exp(scores, out=scores).sum(1, keepdims=True)
        return list(zip(logits, np.split((largest + np.log(sums))[:, 0], ends), strict=True))

    def _embedded(self, side: str, rows: Sequence[Sequence[int]], first: bool = False) -> tuple[Array, Array]:
        """Return embeddings * sqrt(D) + positions of all rows, one after another, and where each but the last ends.

        Each begins with the decoder's `start` if it is its `first` input.
        """
        width, table, order = self.section["d_model"], self.arrays[self.tables[side]], self.orders[side]
        begin = [self.start] if first else []
        embedded = [
            np.array([*begin, *table.read()[order[np.array(row, np.int64)]].astype(np.float64)]) * np.sqrt(width)
            + self.positions(len(begin) + len(row))
            for row in rows
        ]
        return _joined(embedded)

    def positions(self, length: int) -> Array:
        """Return sinusoids (length, D)."""
        half = self.section["d_model"] // 2
        angles = np.arange(length)[:, None] * 10_000.0 ** (-np.arange(half) / (half - (self.exponents == "marian")))
        return np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def _norm(self, x: Array, name: str) -> Array:
        scale, bias = (self.array(f"{name}_ln_{part}").ravel() for part in ("scale", "bias"))
        epsilon = self.section["norm_epsilon"] or 1e-5
        normed: Array = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * scale + bias
        return normed

    def _map(self, x: Array, name: str, part: str) -> Array:
        return x @ self.array(f"{name}_W{part}") + self.array(f"{name}_b{part}").ravel()

    def _attention(self, name: str, x: Array, ends: Array, memory: Array, ends_of_memory: Array, causal: bool) -> Array:
        q = np.split(self._map(x, name, "q"), ends)
        k, v = (np.split(self._map(memory, name, part), ends_of_memory) for part in "kv")
        mixed = np.concatenate([self._mixed(*one, causal) for one in zip(q, k, v, strict=True)])
        return self._norm(x + self._map(mixed, name, "o"), f"{name}_Wo")

    def _mixed(self, q: Array, k: Array, v: Array, causal: bool) -> Array:
        """Return the attention of a sentence: q (T, D) to k and v (S, D)."""
        heads = self.section["num_heads"]
        q, k, v = (one.reshape(len(one), heads, -1).transpose(1, 0, 2) for one in (q, k, v))  # (H, T, K)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed: Array = weights / weights.sum(-1, keepdims=True) @ v
        return mixed.transpose(1, 0, 2).reshape(q.shape[1], -1)

    def _feed_forward(self, name: str, x: Array) -> Array:
        hidden = self._map(x, name, "1")
        for begin in range(0, len(x), ROWS):  # the activation needs memory for several copies
            hidden[begin : begin + ROWS] = ACTIVATIONS[self.section["activation"]](hidden[begin : begin + ROWS])
        return self._norm(x + self._map(hidden, name, "2"), f"{name}_ffn")


def _joined(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Return arrays (n, D) as one, and where each but the last ends in it."""
    return np.concatenate(parts), np.cumsum([len(part) for part in parts])[:-1]
