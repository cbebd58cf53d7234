"""The parameters of a model under the names and in the layout of other toolkits.

    model/parameters.py: ours ──▶ PARTS: theirs ──▶ importers, exporters

Where one of our matrix products computes several projections, other toolkits have a matrix for each.

    D d_model   H heads   K d_k   W d_v
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..model.parameters import Parameter
from .importer import Array


class Theirs(NamedTuple):
    """The names of a part of a layer in other toolkits."""

    transformers: tuple[str, ...]
    marian: tuple[str, ...]
    """`?` stands for W or b, of a norm for scale or bias."""
    ctranslate2: str
    """The attribute of a layer's specification, by its path."""


PARTS = {
    "self_attention.query_key_value": Theirs(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ("self_?q", "self_?k", "self_?v"),
        "self_attention.linear.0",
    ),
    "self_attention.output": Theirs(("self_attn.out_proj",), ("self_?o",), "self_attention.linear.1"),
    "around_self_attention.norm": Theirs(("self_attn_layer_norm",), ("self_Wo_ln_?",), "self_attention.layer_norm"),
    "ssru.candidate_forget": Theirs((), ("rnn_?", "rnn_?f"), ""),
    "ssru.forget": Theirs((), ("rnn_?f",), ""),
    "cross_attention.query": Theirs(("encoder_attn.q_proj",), ("context_?q",), "attention.linear.0"),
    "cross_attention.key_value": Theirs(
        ("encoder_attn.k_proj", "encoder_attn.v_proj"), ("context_?k", "context_?v"), "attention.linear.1"
    ),
    "cross_attention.output": Theirs(("encoder_attn.out_proj",), ("context_?o",), "attention.linear.2"),
    "around_cross_attention.norm": Theirs(("encoder_attn_layer_norm",), ("context_Wo_ln_?",), "attention.layer_norm"),
    "feed_forward.inner": Theirs(("fc1",), ("ffn_?1",), "ffn.linear_0"),
    "feed_forward.outer": Theirs(("fc2",), ("ffn_?2",), "ffn.linear_1"),
    "around_feed_forward.norm": Theirs(("final_layer_norm",), ("ffn_ffn_ln_?",), "ffn.layer_norm"),
}
"""The parts of a layer by our names: encoder.LAYER.PART.weight, and so on."""


class Sizes(NamedTuple):
    """The options of other toolkits that are a key of [model]; all of `transformers` have the same value."""

    transformers: tuple[str, ...]
    marian: str


SIZES = {
    "d_model": Sizes(("d_model",), "dim-emb"),
    "encoder_layers": Sizes(("encoder_layers",), "enc-depth"),
    "decoder_layers": Sizes(("decoder_layers",), "dec-depth"),
    "num_heads": Sizes(("encoder_attention_heads", "decoder_attention_heads"), "transformer-heads"),
    "d_ff": Sizes(("encoder_ffn_dim", "decoder_ffn_dim"), "transformer-dim-ffn"),
}
LAYERED = re.compile(r"(encoder|decoder)\.(\d+)\.(.+)[._](weight|bias)")


class Place(NamedTuple):
    """The place of a parameter: `part` is a key of PARTS, `kind` is "weight" or "bias"."""

    side: str
    layer: int
    part: str
    kind: str

    @property
    def transformers(self) -> list[str]:
        """The names in transformers of the parameter's projections."""
        names = PARTS[self.part].transformers
        return [f"{self.side}.layers.{self.layer}.{theirs}.{self.kind}" for theirs in names]

    @property
    def marian(self) -> list[str]:
        """The names in Marian of the parameter's projections."""
        weight, bias = ("scale", "bias") if self.part.endswith(".norm") else ("W", "b")
        letter = weight if self.kind == "weight" else bias
        return [f"{self.side}_l{self.layer + 1}_{one.replace('?', letter)}" for one in PARTS[self.part].marian]


def place_of(name: str) -> Place | None:
    """Return the place of a parameter in a layer; None if it is in no layer."""
    found = LAYERED.fullmatch(name)
    return Place(found[1], int(found[2]), found[3], found[4]) if found else None


def projections(
    weights: Mapping[str, Array], table: Mapping[str, Parameter], heads: int, head_size: int
) -> Iterator[tuple[Place, list[Array]]]:
    """Yield the place of each parameter of the layers, with its projections. `table` is that of the model.

    Heads are padded with zeros up to `head_size`. This changes neither q k^T nor the output; the scale 1 / sqrt(d_k)
    must still use the model's own key size.
    """
    for name, array in weights.items():
        if not (place := place_of(name)):
            continue
        parts = np.split(array, np.cumsum(table[name].parts)[:-1])
        if place.part.endswith("_attention.output"):
            parts = [padded(array.T, heads, head_size).T] if place.kind == "weight" else parts
        elif place.part.startswith(("self_attention", "cross_attention")):
            parts = [padded(one, heads, head_size) for one in parts]
        yield place, parts


def padded(rows: Array, heads: int, head_size: int) -> Array:
    """Return the rows of each head, followed by rows of zeros: (H * K, …) → (H * head_size, …)."""
    apart = rows.reshape(heads, len(rows) // heads, -1)  # (H, K, …)
    fill = [(0, 0), (0, head_size - apart.shape[1]), (0, 0)]
    return np.pad(apart, fill).reshape(heads * head_size, *rows.shape[1:])


def reordered(name: str, array: Array, order: Array | Sequence[int]) -> Array:
    """Return a parameter with its features of d_model in another order (D,)."""
    part = name.split(".")[-2] if "." in name else ""
    if part in ("output", "outer") or part.endswith("norm"):
        return array[order]
    return np.ascontiguousarray(array[:, order]) if array.ndim == 2 else array
