"""The files of a Marian model: weights, configuration, vocabularies, decoder.yml.

    model.npz, or Marian's binary container in fp32 ──▶ `weights_in` ──▶ arrays by name, special:model.yml
    vocab.yml ──▶ piece → id

YAML is read with PyYAML's BaseLoader, which leaves every scalar a string: else `no`, `y` and `~` would not be pieces.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelError, UsageError, install_command, shown_name
from .importer import UNREADABLE, Array, SourceFiles

DAMAGED = (*UNREADABLE, ValueError, KeyError, OverflowError, MemoryError, struct.error)
"""What NumPy and struct raise for what is not a model."""
CONFIG = "special:model.yml"
"""The name of the configuration among the arrays."""
TYPES = {0x404: "<f4", 0x101: "i1", 0x204: "<u4", 0x104: "<i4"}
"""Types of the binary container that are read: fp32 for weights, bytes for the configuration."""
OTHER_TYPES = {0x10000: "int8 of intgemm", 0x800: "the packed numbers of fbgemm"}
"""Bits of types that are not."""


def yaml_values(content: bytes | str, name: str) -> Any:
    """Return YAML with every scalar as a string. Raises ModelError, UsageError if PyYAML is not installed."""
    try:
        import yaml
    except ImportError as error:
        raise UsageError(f"nmt import needs the extra package pyyaml ({error}): {install_command('marian')}.") from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.load(content, Loader=loader)
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
        raise ModelError(f"{shown_name(name)} is not YAML: {shown_name(first)}.") from None


def weights_in(files: SourceFiles, name: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of a model file, fp32, and its configuration. Raises ModelError."""
    content = files.read(name)
    try:
        arrays = _npz(content) if content[:2] == b"PK" else _container(content)
    except DAMAGED as error:
        raise ModelError(
            f"{shown_name(name)} is neither an .npz nor a binary container of Marian's in fp32: "
            f"{shown_name(str(error))}."
        ) from None
    if CONFIG not in arrays:
        raise ModelError(f"{shown_name(name)} has no {CONFIG}: it is not a model that Marian saved.")
    config = yaml_values(arrays.pop(CONFIG).tobytes().split(b"\0")[0], CONFIG)
    if not isinstance(config, dict):
        raise ModelError(f"the {CONFIG} of {shown_name(name)} is not a list of options.")
    for key, array in arrays.items():
        if array.dtype != np.float32:
            raise ModelError(f"{shown_name(key)} has the dtype {array.dtype}, expected fp32: take the original model.")
        if not np.isfinite(array).all():
            raise ModelError(f"{shown_name(key)} has numbers that are not finite.")
    return arrays, config


def _npz(content: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if left := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{left[0]} in it is no array")
    return arrays


def _container(content: bytes) -> dict[str, Array]:
    """Return the arrays of Marian's binary container.

    u64 version = 1, u64 n | n headers of 4 u64: name bytes, type, dimensions, data bytes | names | dimensions, i32 |
    u64 p, p bytes of padding | data. Raises ValueError.
    """
    version, count = struct.unpack_from("<QQ", content)
    if version != 1 or count > len(content) // 32:
        raise ValueError(f"it begins with the number {version}, expected 1")
    headers = np.frombuffer(content, "<u8", 4 * count, 16).reshape(count, 4).tolist()
    at, names = 16 + 32 * count, []
    for length, *_ in headers:
        names.append(content[at : at + length].rstrip(b"\0").decode())
        at += length
    shapes = []
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, at))
        at += 4 * dimensions
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    arrays = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        if kind not in TYPES:
            what = next((what for bit, what in OTHER_TYPES.items() if kind & bit), f"the type {kind:#x}")
            raise ValueError(f"{name} is in {what}, and nmt reads fp32: take the model that it was converted from")
        arrays[name] = np.frombuffer(content, TYPES[kind], int(np.prod(shape)), at).reshape(shape)
        at += size
    return arrays


def vocabulary_in(files: SourceFiles, name: str) -> dict[str, int]:
    """Return the id of each piece of a vocabulary, .yml or one piece in each line. Raises ModelError."""
    if name.endswith((".yml", ".yaml", ".json")):
        values = yaml_values(files.read(name), name)
    else:
        values = {line: str(number) for number, line in enumerate(files.text(name).removesuffix("\n").split("\n"))}
    try:
        ids = {str(piece): int(number) for piece, number in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise ModelError(
            f"{shown_name(name)} is not a vocabulary: expected a piece and its number in each line."
        ) from None
    if sorted(ids.values()) != list(range(len(ids))):
        raise ModelError(f"the numbers in {shown_name(name)} are not those from 0 to {len(ids) - 1}, each once.")
    for special in ("</s>", "<unk>"):
        if special not in ids:
            raise ModelError(f"{shown_name(name)} has no {special}.")
    return ids


def decoding_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of [decode] for the values of a decoder.yml. Raises ModelError."""
    try:
        beam, exponent = int(values.get("beam-size", 12)), float(values.get("normalize", 0))
        penalty = float(values.get("word-penalty", 0))
    except (TypeError, ValueError):
        raise ModelError("decoder.yml: beam-size, normalize and word-penalty are not numbers.") from None
    if penalty:
        raise ModelError(f"decoder.yml has word-penalty = {penalty:g}, which nmt does not have: set it to 0.")
    return decoding(beam, exponent)


def decoding(beam: int, exponent: float) -> dict[str, Any]:
    """Return the keys of [decode] for a search that divides log P by |Y| ** exponent."""
    penalty = {"length_penalty": "power", "alpha": exponent} if exponent else {"length_penalty": "none"}
    return {"beam": beam, **penalty}
