"""A model as the compiled functions read it, written to the cache folder: `stored` reads it back, without torch.

    WholeSteps ──▶ store ──▶ CACHE/ready/KEY-SHA256.safetensors: every array as bytes, and a description of every structure

In the structures (`functions`: Map, Norm, Sublayer, Stack), the address of an array becomes the array's name.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ...model.contents import ModelConfig
from .stored import ALIGNMENT, FILES, key_of
from .whole_steps import WholeSteps


def store(steps: WholeSteps, config: ModelConfig, is_fastest: bool) -> None:
    """Keep a model in int8, if it is not kept already. `is_fastest`: int8 is the fastest precision of this processor."""
    key = key_of(config)
    if not steps.output.is_int8 or steps.model.model.next_word is not None or FILES.has(key):
        return
    arrays, description = _description(steps)
    description["is_fastest"] = is_fastest
    FILES.write(
        key, save({name: _bytes(tensor) for name, tensor in arrays.items()}, {"model": json.dumps(description)})
    )


def _description(steps: WholeSteps) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the arrays by name, and the structures with these names in the place of addresses."""
    model, arrays, names = steps.model, dict[str, Tensor](), dict[int, str]()

    def known(name: str, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.data_ptr() not in names:
            names[tensor.data_ptr()], arrays[name] = name, tensor.detach()

    for number, product in enumerate(steps.products):
        names[product.address] = f"map.{number}"
        for part, tensor in zip(("weight", "sums", "scales", "bias"), product.kept, strict=True):
            known(f"map.{number}.{part}", tensor)
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, norm in enumerate(layers.norms):
            known(f"{side}.norm.{number}.weight", getattr(norm, "weight", None))
            known(f"{side}.norm.{number}.bias", getattr(norm, "bias", None))
    for side, (table, scales), positions in zip(("encoder", "decoder"), model.tables, model.positions, strict=True):
        known(f"{side}.table", table)
        known(f"{side}.table_scales", scales)
        known(f"{side}.positions", positions)
    known("rotations", model.rotations)

    def described(structure: ctypes.Structure) -> dict[str, Any]:
        """Return the fields by name. The field of an address has the name of its array, or None."""
        values = {name: getattr(structure, name) for name, _ in structure._fields_}  # type: ignore[misc]
        addresses = {name for name, kind in structure._fields_ if kind is ctypes.c_void_p}  # type: ignore[misc]
        return {
            name: value if name not in addresses or value is None else names[value]
            for name, value in values.items()
            if name not in ("sublayers", "norms")
        }

    def stack_of(layers: Any) -> dict[str, Any]:
        sublayers, norms = layers.arrays
        return {
            "stack": described(layers.stack),
            "sublayers": [described(each) for each in sublayers],
            "norms": [described(each) for each in norms],
        }

    return arrays, {
        "maps": [described(product.map) for product in steps.products],
        "encoder": stack_of(steps.encoder),
        "decoder": stack_of(steps.decoder),
        "memory_maps": [names[address] for address in steps.memory_maps if address],
        "width": model.width,
        "cache_bytes": model.cache_dtype.itemsize,
        "max_positions": model.model.config.max_positions,
    }


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, and zeros up to a multiple of ALIGNMENT: then every array of the file begins at such a multiple."""
    data = tensor.contiguous().flatten().view(torch.uint8)
    missing = -len(data) % ALIGNMENT
    return torch.nn.functional.pad(data, (0, missing)) if missing else data
