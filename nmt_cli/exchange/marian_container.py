"""Marian's binary container: `model.bin`, and the `*.intgemm*.bin` of Firefox's models.

    u64 version = 1, u64 n | n headers of 4 u64: name bytes, type, dimensions, data bytes | names | dimensions, i32 |
    u64 p, p bytes of padding | data

An array of integers is followed by one fp32, its factor: a number is integer / factor. It is stored transposed, but for
embeddings. X_QuantMultA is the factor by which Marian rounds what X multiplies; here, activations are rounded by row.
"""

from __future__ import annotations

import math
import struct
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import ModelError, shown, shown_name
from ..model.parameters import INT8_MAX
from .importer import Array, Integers, LazyArray

LONGEST_NAME, MOST_DIMENSIONS = 1000, 8
"""Largest sizes in the container, whose file may have holes of any size."""
MOST_ARRAYS = 50_000
"""Largest number of arrays: a model of 1,000 + 1,000 layers has 42,000."""
TYPES = {0x404: "<f4", 0x101: "i1", 0x204: "<u4", 0x104: "<i4"}
"""Types that are read as they are: fp32 for weights, bytes for the configuration."""
INTEGERS = {0x4101: "i1", 0x4102: "<i2", 0x10001: "i1", 0x10002: "<i2"}
"""Types of intgemm that are the same on every processor: those of Firefox's Marian, and those of Marian 1.12."""
OTHER_TYPES = {0x14000: "integers of intgemm for one kind of processor", 0x800: "the packed numbers of fbgemm"}
"""Bits of types that are not read."""
ACTIVATION_FACTOR = "_QuantMultA"
"""Ending of the names of factors that are not used."""


def container(path: Path) -> dict[str, LazyArray]:
    """Return the arrays of a binary container. Sizes are checked before what they are the size of is read.

    Raises ValueError, struct.error.
    """
    content = np.memmap(path, np.uint8, "r").data
    version, count = struct.unpack_from("<QQ", content)
    if version != 1:
        raise ValueError(f"it begins with {shown(bytes(content[:24]))}")
    check_count(count)
    headers = np.frombuffer(content, "<u8", 4 * count, 16).reshape(count, 4).tolist()
    if any(length > LONGEST_NAME or dimensions > MOST_DIMENSIONS for length, _, dimensions, _ in headers):
        raise ValueError(f"an array has a name of more than {LONGEST_NAME:,} bytes, or too many dimensions")
    at, names = 16 + 32 * count, []
    for length, *_ in headers:
        names.append(content[at : at + length].tobytes().rstrip(b"\0").decode())
        at += length
    shapes = []
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, at))
        at += 4 * dimensions
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    arrays = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        end = min(at + size, len(content))
        if kind in TYPES:
            arrays[name] = mapped(path, TYPES[kind], shape, at, end)
        elif kind not in INTEGERS:
            what = next((what for bit, what in OTHER_TYPES.items() if kind & bit), f"the type {kind:#x}")
            raise ValueError(f"{name} is in {what}, which nmt does not read: take the model that it was made from")
        elif not name.endswith(ACTIVATION_FACTOR):
            arrays[name] = _of_integers(path, name, np.dtype(INTEGERS[kind]), shape, at, end)
        at += size
    return {name: array for name, array in arrays.items() if not name.endswith(ACTIVATION_FACTOR)}


def check_count(arrays: int) -> None:
    """Raise ValueError for more arrays than a model has."""
    if arrays > MOST_ARRAYS:
        raise ValueError(f"it has {arrays:,} arrays, expected at most {MOST_ARRAYS:,}")


def mapped(path: Path, dtype: Any, shape: tuple[int, ...], at: int, end: int, fortran: bool = False) -> LazyArray:
    """Return the array at the byte `at`, whose numbers must end before the byte `end`. Raises ValueError."""
    dtype = np.dtype(dtype)
    if min(shape, default=1) < 0 or at + math.prod(shape) * dtype.itemsize > end:
        raise ValueError("it is cut: an array has fewer bytes than its form needs")
    order: Literal["C", "F"] = "F" if fortran else "C"
    return LazyArray(shape, lambda: np.memmap(path, dtype, "r", at, shape, order), dtype)


def _of_integers(path: Path, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], at: int, end: int) -> LazyArray:
    """Return the numbers of an array of integers, in fp32, with these integers. Raises ValueError."""
    is_turned = "Wemb" not in name
    stored = mapped(path, dtype, shape[::-1] if is_turned else shape, at, end - 4)
    factor = float(mapped(path, "<f4", (1,), at + math.prod(shape) * dtype.itemsize, end).read()[0])
    if not 1e-30 < factor < 1e30:
        raise ValueError(f"{name} has the factor {factor}, expected a positive number")
    integers, scale = (stored.T if is_turned else stored).then(partial(_checked, name)), np.float32(1 / factor)
    numbers = cache(lambda: integers.read() * scale)  # kept: they are read block by block
    return LazyArray(shape, numbers, integers=Integers(integers, scale))


def _checked(name: str, integers: Array) -> Array:
    if integers.dtype == np.int8 and integers.size and integers.min() < -INT8_MAX:
        raise ModelError(f"{shown_name(name)} has the integer {integers.min()}, expected at least {-INT8_MAX}.")
    return integers
