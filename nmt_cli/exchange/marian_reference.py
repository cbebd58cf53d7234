"""Marian's transformer in NumPy, in float64, from Marian's own arrays: what an imported or exported model is compared
with.

    texts ──▶ preprocess.sh, SentencePiece, vocab.yml ──▶ ids ──▶ encoder, decoder ──▶ logits (T, V)

It shares no code with the import: no array is renamed, transposed or joined. Its ids are those of the model folder, and
`orders` translates them.

    S source length   T target length   D d_model   V vocabulary
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..data.tokenizer import BOS, EOS, PAD, UNK
from .exporter import Output
from .importer import Array
from .preprocess import MOSES, Rule, Step, effect_of, rules_of

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: torch.nn.functional.gelu(torch.from_numpy(x)).numpy(),
}
Decoding = Callable[[Array], Array]


class MarianReader:
    """A model of Marian's. `vocabularies`: piece → Marian's id, of source and target; `models`: SentencePiece's."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        section: Mapping[str, Any],
        ties: Mapping[str, bool],
        orders: Mapping[str, Array],
        models: Sequence[bytes],
        vocabularies: Sequence[Mapping[str, int]],
        steps: Sequence[Step],
    ) -> None:
        import sentencepiece

        self.arrays, self.section, self.orders, self.steps = arrays, section, orders, steps
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
        self._arrays64: dict[str, Array] = {}

    def array(self, name: str) -> Array:
        """Return an array of Marian's in float64."""
        if name not in self._arrays64:
            self._arrays64[name] = np.asarray(self.arrays[name], np.float64)
        return self._arrays64[name]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids, ours = self.vocabularies[0], self.ours["source"]
        pieces = [self.tokenizers[0].encode(self._preprocessed(text), out_type=str) for text in texts]
        return [[*(ours[ids.get(piece, ids["<unk>"])] for piece in row), EOS] for row in pieces]

    def _preprocessed(self, text: str) -> str:
        """Return a text after the steps of preprocess.sh, one after another."""
        for step in self.steps:
            effect, rules = effect_of(step), rules_of(step) or []
            if effect == "punctuation":
                rules = [Rule(old[0], len(old) > 1, new) for old, new in MOSES.items()]
            for old, spaces, new in rules:
                text = re.sub(re.escape(old) + " *" * spaces, new.replace("\\", r"\\"), text)
            if effect == "controls":
                text = "".join(" " if unicodedata.category(one).startswith("C") else one for one in text)
        return text

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        pieces = {number: piece for piece, number in self.vocabularies[1].items()}
        order = self.orders["target"]
        kept = [[pieces[int(order[i])] for i in row if i not in (PAD, BOS, EOS)] for row in rows]
        return ["".join(row).replace("▁", " ").strip() for row in kept]  # postprocess.sh

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> list[Output]:
        """See `Reader`. Greedy search follows `targets` as long as each of their tokens is the most likely one."""
        outputs = []
        for source, target in zip(sources, targets, strict=True):
            states = self.states(source)
            logits = self.logits(states, target[:-1])
            allowed = logits.copy()
            allowed[:, [PAD, UNK, BOS]] = -np.inf
            best = allowed.argmax(-1)
            differing = np.flatnonzero(best != np.array(target))
            tokens = [*target[: differing[0]], int(best[differing[0]])] if len(differing) else list(target)
            log_probs = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
            of_target = log_probs[np.arange(len(target)), target]
            numbers = (
                torch.from_numpy(one.astype(np.float32)) for one in (logits, of_target, states[:, self.features])
            )
            outputs.append(Output(tokens[:limit], *numbers))
        return outputs

    def states(self, source: Sequence[int]) -> Array:
        """Return the encoder's states (S, D) of a source with its end symbol."""
        x = self._embedded("source", source)
        for layer in range(1, self.section["encoder_layers"] + 1):
            x = self._attention(f"encoder_l{layer}_self", x, None, False)
            x = self._feed_forward(f"encoder_l{layer}_ffn", x)
        return x

    def logits(self, states: Array, target: Sequence[int]) -> Array:
        """Return the scores (T + 1, V) of the tokens that follow each beginning of `target`, without an end symbol.

        The first input of the decoder is a zero vector.
        """
        y = self._embedded("target", target, first=True)
        for layer in range(1, self.section["decoder_layers"] + 1):
            y = self._attention(f"decoder_l{layer}_self", y, None, True)
            y = self._attention(f"decoder_l{layer}_context", y, states, False)
            y = self._feed_forward(f"decoder_l{layer}_ffn", y)
        if self.tied_output or "decoder_ff_logit_out_W" not in self.arrays:
            output = self.array(self.tables["target"] if self.tied_output else "decoder_ff_logit_out_Wt").T
        else:
            output = self.array("decoder_ff_logit_out_W")
        scores = y @ output + self.array("decoder_ff_logit_out_b").ravel()
        order = self.orders["target"]
        ours: Array = scores[:, np.maximum(order, 0)]
        ours[:, order < 0] = -1e9
        if self.padding:
            ours[:, PAD] = y @ self.padding["row"] + self.padding["bias"]
        return ours

    def _embedded(self, side: str, ids: Sequence[int], first: bool = False) -> Array:
        """Return embeddings * sqrt(D) + positions, after a zero vector if it is the decoder's `first`."""
        width = self.section["d_model"]
        x = self.array(self.tables[side])[self.orders[side][np.array(ids, np.int64)]] * np.sqrt(width)
        x = np.concatenate([self.start[None] * np.sqrt(width), x]) if first else x
        return x + self.positions(len(x))

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

    def _around(self, x: Array, name: str, sublayer: Decoding) -> Array:
        return self._norm(x + sublayer(x), name)

    def _map(self, x: Array, name: str, part: str) -> Array:
        return x @ self.array(f"{name}_W{part}") + self.array(f"{name}_b{part}").ravel()

    def _attention(self, name: str, x: Array, memory: Array | None, causal: bool) -> Array:
        heads = self.section["num_heads"]

        def sublayer(rows: Array) -> Array:
            read = rows if memory is None else memory
            q, k, v = (
                self._map(of, name, part).reshape(len(of), heads, -1).transpose(1, 0, 2)
                for of, part in ((rows, "q"), (read, "k"), (read, "v"))
            )
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
            if causal:
                scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = weights / weights.sum(-1, keepdims=True) @ v
            return self._map(mixed.transpose(1, 0, 2).reshape(len(rows), -1), name, "o")

        return self._around(x, f"{name}_Wo", sublayer)

    def _feed_forward(self, name: str, x: Array) -> Array:
        def sublayer(rows: Array) -> Array:
            hidden = self._map(rows, name, "1")
            return self._map(ACTIVATIONS[self.section["activation"]](hidden), name, "2")

        return self._around(x, f"{name}_ffn", sublayer)
