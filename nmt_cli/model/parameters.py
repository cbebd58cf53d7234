"""The parameters of a model: their names and shapes, in one table, without torch.

    [model], sizes of the vocabularies ──▶ `parameters` ──▶ weights.py: what a model folder stores, in fp32 or int8
                                                        ──▶ exchange/layout.py: the same for other toolkits

Tests compare the table with the modules of torch and with the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..recipe import ModelSection
from ..registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS

Form = tuple[str, tuple[int, ...]]
"""The dtype of a tensor, by its name in safetensors, and its shape."""
INT8_MAX = 127
"""The largest integer of a weight, and of a row that is multiplied with it."""
SCALES = ".scales"
"""Ending of the names under which int8 stores scales, beside the parameters."""
TABLES = "next_word."
"""The beginning of the names of tensors that are stored but not trained."""
KNOWN: tuple[tuple[str, Mapping[str, str], frozenset[str]], ...] = (
    ("norm", NORMS, frozenset({"layer", "rms"})),
    ("residual", RESIDUALS, frozenset({"post", "pre"})),
    ("activation", ACTIVATIONS, frozenset({"relu", "gelu", "silu", "swiglu"})),
    ("positions", POSITIONS, frozenset({"sinusoidal", "learned", "rotary", "marian"})),
)
"""Keys of [model], their registries, and the entries of this package, whose parameters the table has."""


class Parameter(NamedTuple):
    """A tensor of a model in fp32."""

    shape: tuple[int, ...]
    in_int8: bool = False
    """Whether an int8 folder stores integers and scales in its place."""
    parts: tuple[int, ...] = ()
    """Of a linear map: the rows of each projection that it computes in one matrix product."""
    vocabulary: str = ""
    """"source" or "target" for a tensor with a row for each token. Tied embeddings are the target's."""


def parameters(config: ModelSection, vocabularies: tuple[int, int]) -> dict[str, Parameter]:
    """Return the parameters of a model by name. `vocabularies` are the sizes of the source's and the target's."""
    size, (source, target) = config.d_model, vocabularies
    separate = {"source": (source, "source"), "target": (target, "target"), "output": (target, "target")}
    tables = {"shared": (source, "target")} if config.tie_embeddings else separate
    table = {f"embeddings.{use}": Parameter((count, size), True, (), side) for use, (count, side) in tables.items()}
    if config.output_bias:
        table["output_bias"] = Parameter((target,), vocabulary="target")
    if config.positions == "learned":
        for side in ("source", "target"):
            table[f"{side}_positions.weight"] = Parameter((config.max_positions, size))
    sublayers = {
        "encoder": ("self_attention", "feed_forward"),
        "decoder": (config.decoder, "cross_attention", "feed_forward"),
    }
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            for sublayer in sublayers[side]:
                for name, (columns, parts) in _maps(config)[sublayer].items():
                    begin, rows = f"{side}.{layer}.{sublayer}.{name}", sum(parts)
                    table[f"{begin}.weight"] = Parameter((rows, columns), True, parts)
                    if sublayer != "ssru":
                        table[f"{begin}.bias"] = Parameter((rows,), False, parts)
                if sublayer == "ssru":
                    table[f"{side}.{layer}.ssru.forget_bias"] = Parameter((size,))
                table |= _norm(f"{side}.{layer}.around_{sublayer.replace('ssru', 'self_attention')}.norm", config)
        if config.residual == "pre":
            table |= _norm(f"{side}_norm", config)
    if config.monotonic_attention:
        table |= {f"{TABLES}begins": Parameter((source,)), f"{TABLES}ends": Parameter((target,))}
    return table


def _maps(config: ModelSection) -> dict[str, dict[str, tuple[int, tuple[int, ...]]]]:
    """Return the linear maps of each sub-layer: how many numbers they read, and the sizes of their projections."""
    size, keys, values = config.d_model, config.num_heads * config.key_size, config.num_heads * config.value_size
    output = {"output": (values, (size,))}
    inner = config.d_ff * (2 if config.activation == "swiglu" else 1)
    return {
        "self_attention": {"query_key_value": (size, (keys, keys, values)), **output},
        "ssru": {"candidate_forget": (size, (size, size))},
        "cross_attention": {"query": (size, (keys,)), "key_value": (size, (keys, values)), **output},
        "feed_forward": {"inner": (size, (inner,)), "outer": (config.d_ff, (size,))},
    }


def _norm(name: str, config: ModelSection) -> dict[str, Parameter]:
    parts = ("weight", "bias") if config.norm == "layer" else ("weight",)
    return {f"{name}.{part}": Parameter((config.d_model,)) for part in parts}


def foreign_part(config: ModelSection) -> str:
    """Return the first norm, residual, activation or positions of another package, as "model.KEY = 'NAME'"; or ""."""
    for key, registry, known in KNOWN:
        name = getattr(config, key)
        if name not in known or not registry[name].startswith("nmt_cli.model."):
            return f"model.{key} = {name!r}"
    return ""


def count_numbers(shapes: Iterable[tuple[str, Sequence[int]]]) -> dict[str, int]:
    """Return how many trained numbers tensors of these names and shapes have, by part of the model and in total."""
    counts = {"embeddings": 0, "positions": 0, "encoder": 0, "decoder": 0}
    for name, shape in shapes:
        if not name.startswith(TABLES):
            part = "positions" if "positions" in name else name.split(".")[0].split("_")[0]
            counts["embeddings" if part == "output" else part] += math.prod(shape)
    return {**counts, "total": sum(counts.values())}
