"""The weights file of a model folder, read without torch: names, dtypes and shapes, and the numbers, mapped into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from ..errors import ModelError, shown, shown_name
from .contents import WEIGHTS

LARGEST_HEADER = 1 << 24
"""Largest size of the header of a weights file, in bytes; about 100 for each tensor."""
INPUT_SCALES = ".input_scale"
"""Ending of the names of numbers that int8 folders of earlier versions have. They are not used."""
Form = tuple[str, tuple[int, ...]]
"""The dtype of a tensor, by its name in safetensors, and its shape."""
DTYPES = {"F32": np.float32, "I8": np.int8}
"""The dtypes of weights files."""


def read_forms(path: Path) -> dict[str, Form]:
    """Return the forms of the tensors in a weights file. Raises ModelError for a file that is not one, OSError."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > LARGEST_HEADER:
        raise ModelError(f"its {WEIGHTS} has a header of {size:,} bytes, expected at most {LARGEST_HEADER:,}.")
    try:
        with safe_open(path, "np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            forms = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except SafetensorError as error:
        raise ModelError(
            f"its {WEIGHTS} is not a safetensors file, or a damaged one ({shown_name(str(error))})."
        ) from None
    return {name: form for name, form in forms.items() if not name.endswith(INPUT_SCALES)}


def mapped_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a weights file by name: the file's pages, read when they are used. Raises ModelError, OSError."""
    forms = read_forms(path)
    for name, (dtype, shape) in forms.items():
        where = f"the weights do not fit the recipe: {shown_name(name)} has"
        if dtype not in DTYPES:
            raise ModelError(f"{where} dtype {dtype}, expected F32 or I8.")
        if len(shape) not in (1, 2) or 0 in shape:
            raise ModelError(f"{where} shape {shown(shape)}, expected one or two dimensions, without 0.")
    block = np.memmap(path, np.uint8, "r")
    first = 8 + int.from_bytes(block[:8].tobytes(), "little")
    header = json.loads(block[8:first].tobytes())
    tensors = {}
    for name, (dtype, shape) in forms.items():
        begin, end = header[name]["data_offsets"]
        tensors[name] = block[first + begin : first + end].view(DTYPES[dtype]).reshape(shape)
    return tensors
