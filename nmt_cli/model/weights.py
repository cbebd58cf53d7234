"""The weights of a model folder, without torch: checked, mapped into memory, rounded to int8, and written.

recipe ──▶ forms_of ──▶ check_weights ◀── read_forms ◀── weights file
    weights file ──▶ mapped_weights ──▶ quantize_weights ──▶ write_model
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from .. import __version__
from ..device.hardware import loading_torch
from ..errors import ModelError, shown, shown_name
from ..recipe import ModelSection, Recipe
from ..storage.files import sha256
from ..storage.sealed_json import to_json
from .folder_files import CARD, CONFIG, FORMAT_VERSION, METRICS, REMEDY, WEIGHTS, ModelConfig
from .parameters import INT8_MAX, SCALES, TABLES, Form, foreign_part, parameters

LARGEST_HEADER = 1 << 24
"""Largest size of the header of a weights file, in bytes; about 100 for each tensor."""
INPUT_SCALES = ".input_scale"
"""Ending of the names of numbers that int8 folders of earlier versions have. They are not used."""
DTYPES = {"F32": np.float32, "I8": np.int8}
"""The dtypes of weights files."""
Array = npt.NDArray[Any]


def read_forms(path: Path) -> dict[str, Form]:
    """Return the forms of the tensors in a weights file. Raises ModelError for a file that is not one, OSError."""
    return {name: form for name, (form, _) in places_in(path).items()}


def places_in(path: Path) -> dict[str, tuple[Form, slice]]:
    """Return the form of each tensor in a weights file, and the bytes of the file that are its numbers.

    Raises ModelError for a file that is not one, OSError.
    """
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > LARGEST_HEADER:
            raise ModelError(f"its {WEIGHTS} has a header of {size:,} bytes, expected at most {LARGEST_HEADER:,}.")
        header = stream.read(size)
    try:
        with safe_open(path, "np"):  # checks it
            parts = json.loads(header)
    except SafetensorError as error:
        raise ModelError(
            f"its {WEIGHTS} is not a safetensors file, or a damaged one ({shown_name(str(error))})."
        ) from None
    return {
        name: ((part["dtype"], tuple(part["shape"])), slice(*(8 + size + at for at in part["data_offsets"])))
        for name, part in parts.items()
        if name != "__metadata__" and not name.endswith(INPUT_SCALES)
    }


def mapped_weights(path: Path) -> dict[str, Array]:
    """Return the tensors of a weights file by name: the file's pages, read when they are used.

    Raises ModelError, OSError.
    """
    places = places_in(path)
    for name, ((dtype, shape), _) in places.items():
        if dtype not in DTYPES or len(shape) not in (1, 2) or 0 in shape:
            raise ModelError(
                f"the weights do not fit the recipe: {shown_name(name)} has dtype {dtype}, expected F32 or I8, and the "
                f"shape {shown(shape)}, expected one or two dimensions, without 0."
            )
    block = np.memmap(path, np.uint8, "r")
    return {name: block[place].view(DTYPES[form[0]]).reshape(form[1]) for name, (form, place) in places.items()}


def forms_of(config: ModelSection, vocabularies: tuple[int, int], precision: str = "fp32") -> dict[str, Form]:
    """Return the forms of the tensors that a folder stores of such a model.

    For a part of another package, torch builds the model without values. Raises NeedsTorch.
    """
    if foreign := foreign_part(config):
        with loading_torch(foreign):
            from .precision import forms_of_model, without_weights
        return forms_of_model(without_weights(config, *vocabularies), precision == "int8")
    forms: dict[str, Form] = {}
    for name, parameter in parameters(config, vocabularies).items():
        in_int8 = precision == "int8" and parameter.in_int8
        forms[name] = ("I8" if in_int8 else "F32", parameter.shape)
        if in_int8:
            forms[name.removesuffix(".weight") + SCALES] = ("F32", parameter.shape[:1])
    return forms


def check_weights(folder: Path, config: ModelConfig, recipe: Recipe) -> None:
    """Raise ModelError unless the names, dtypes and shapes in the weights file are those of the recipe.

    Only its header is read.
    """
    try:
        check_fit(forms_of(recipe.model, config.vocabularies, config.precision), read_forms(folder / WEIGHTS))
    except (ModelError, OSError) as error:
        raise ModelError(f"{str(folder)!r} does not load: {error} {REMEDY}") from None


def check_fit(expected: Mapping[str, Form], stored: Mapping[str, Form]) -> None:
    """Raise ModelError unless the names, dtypes and shapes are equal."""
    if expected.keys() != stored.keys():
        differing = sorted(expected.keys() ^ stored.keys())
        raise ModelError(
            f"the weights do not fit the recipe: {len(differing)} names differ, the first is {shown(differing[0])}."
        )
    for name, form in expected.items():
        for what, has, needs in zip(("dtype", "shape"), stored[name], form, strict=True):
            if has != needs:
                raise ModelError(f"the weights do not fit the recipe: {name} has {what} {has}, expected {needs}.")


def quantize_weights(
    weights: Mapping[str, Any], forms: Mapping[str, Form], known: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return what an int8 folder stores of weights in fp32; `forms` are those of the int8 folder.

    A matrix becomes integers in -127 .. 127 (N, D), and one scale per row, fp32 (N,): the value of the integer 1. All
    other parameters are unchanged. It is what `precision.integers` returns. `known`: integers and scales of matrices
    that are not rounded here.
    """
    stored: dict[str, Any] = {}
    for name, numbers in weights.items():
        if forms[name][0] != "I8" or name in known:
            stored[name] = known.get(name, numbers)
            continue
        weight = np.asarray(numbers)
        assert weight.ndim == 2
        largest = np.maximum(weight.max(1), -weight.min(1))
        scales = np.maximum(largest, np.float32(1e-12)) / np.float32(INT8_MAX)
        stored[name] = np.rint(weight / scales[:, None]).astype(np.int8)
        stored[name.removesuffix(".weight") + SCALES] = scales
    return {**stored, **known}


def in_fp32(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights as a folder in fp32 has them: integers are multiplied by the scales of their rows.

    The weights, and what is returned, are arrays or torch's tensors.
    """
    scales = {name: weights.get(name.removesuffix(".weight") + SCALES) for name in weights}
    return {
        name: value if (of_rows := scales[name]) is None else value * of_rows[:, None]
        for name, value in weights.items()
        if not name.endswith(SCALES)
    }


def _save(weights: Mapping[str, Any], path: Path) -> None:
    """Write a weights file as safetensors does: in the order of dtypes and names. Raises OSError."""
    kinds = {str(np.dtype(dtype)): (name, np.dtype(dtype).itemsize) for name, dtype in DTYPES.items()}
    entries, end = {}, 0
    for name in sorted(weights, key=lambda name: (str(weights[name].dtype).endswith("int8"), name)):
        kind, size = kinds[str(weights[name].dtype).removeprefix("torch.")]
        begin, end = end, end + size * math.prod(weights[name].shape)
        entries[name] = {"dtype": kind, "shape": list(weights[name].shape), "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in entries:
            file.write(np.ascontiguousarray(weights[name]).data)


def write_model(
    folder: Path,
    weights: Mapping[str, Any],
    recipe: Recipe,
    vocabularies: tuple[int, int],
    tokenizers: Mapping[str, bytes],
    metrics: Mapping[str, Any],
    precision: Literal["fp32", "int8"] = "fp32",
    safe_length: int | None = None,
    card: bytes = b"",
) -> None:
    """Write a model into `folder`. `vocabularies` are their sizes, `tokenizers` maps file names to bytes.

    `weights` are arrays, or torch's tensors on the CPU, from `folder.weights_of`, or for int8 from `quantize_weights`;
    or what `np.asarray` makes an array of, one at a time. `safe_length`: see `ModelConfig`; `card`: README.md.

    Raises OSError.
    """
    _save(weights, folder / WEIGHTS)
    for name, content in {**tokenizers, **({CARD: card} if card else {})}.items():
        (folder / name).write_bytes(content)
    (folder / METRICS).write_text(
        json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    config = ModelConfig(
        format_version=FORMAT_VERSION,
        package_version=__version__,
        parameters=sum(
            math.prod(array.shape)
            for name, array in weights.items()
            if not name.endswith(SCALES) and not name.startswith(TABLES)
        ),
        source_vocab=vocabularies[0],
        target_vocab=vocabularies[1],
        sha256={name: sha256(folder / name) for name in (WEIGHTS, METRICS, *tokenizers)},
        recipe=recipe.to_dict(),
        precision=precision,
        safe_length=safe_length,
    )
    (folder / CONFIG).write_bytes(to_json(config))
