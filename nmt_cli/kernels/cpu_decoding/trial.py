"""Test whether a library that was just compiled works on this machine: `python -I trial.py LIBRARY FUNCTION…`, a separate program.

If a wrong flag compiled the library for another processor, the first call of a function ends the process by a signal. So this
program makes the first calls: LayerNorm and attention, which are vectorised. It compares them with the same computed in Python.
It imports neither torch nor the package, and takes a few hundredths of a second. It exits with status 0, or with an error.
"""

from __future__ import annotations

import ctypes
import math
import random
import sys

FP32, INT8 = 0, 2


def floats(values: list[float]) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * len(values))(*values)


def close(name: str, ours: list[float], theirs: list[float]) -> None:
    """Exit with an error unless both lists have the same numbers, within 1e-4. NaN is an error too."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not abs(a - b) <= 1e-4:
            sys.exit(f"error: {name} computes {a!r} at position {i}, expected {b!r}")


def try_norm(library: ctypes.CDLL, rng: random.Random, size: int) -> None:
    x, weight, bias = ([rng.gauss(0, 1) for _ in range(size)] for _ in range(3))
    mean = sum(x) / size
    factor = 1 / math.sqrt(sum((value - mean) ** 2 for value in x) / size + 1e-5)
    normed = [(value - mean) * factor * w + b for value, w, b in zip(x, weight, bias, strict=True)]
    library.nmt_norm.restype = None
    for kind, out in ((FP32, (ctypes.c_float * size)()), (INT8, (ctypes.c_int8 * size)())):
        step, row = 0.05, floats(x)
        library.nmt_norm(
            ctypes.c_int64(1),
            ctypes.c_int64(size),
            row,
            None,
            0,
            floats(weight),
            floats(bias),
            ctypes.c_float(1e-5),
            0,
            out,
            kind,
            ctypes.c_float(step),
        )
        if kind == FP32:
            close("nmt_norm", list(out), normed)
        elif any(
            abs(value * step - y) > 0.51 * step + 1e-4
            for value, y in zip(out, normed, strict=True)
            if abs(y) < 127 * step
        ):
            sys.exit("error: nmt_norm rounds wrongly")


def try_attention(library: ctypes.CDLL, rng: random.Random, size: int, count: int) -> None:
    """Try attention with one head, in which each of `count` rows attends to all rows."""
    rows = [[rng.gauss(0, 1) for _ in range(3 * size)] for _ in range(count)]
    queries, keys, values = ([row[part * size : (part + 1) * size] for row in rows] for part in range(3))
    expected: list[float] = []
    for query in queries:
        scores = [math.exp(sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(size)) for key in keys]
        expected += [
            sum(score * value[i] for score, value in zip(scores, values, strict=True)) / sum(scores)
            for i in range(size)
        ]
    flat, out = floats([value for row in rows for value in row]), (ctypes.c_float * (count * size))()
    first, counts = (ctypes.c_int64 * count)(*[0] * count), (ctypes.c_int64 * count)(*[count] * count)
    at, number, width = ctypes.addressof(flat), ctypes.c_int64, ctypes.c_int64(3 * size)
    library.nmt_attend_range.restype = None
    library.nmt_attend_range(
        number(count),
        number(1),
        number(size),
        number(size),
        ctypes.c_float(size**-0.5),
        *(ctypes.c_void_p(at + 4 * part * size) for part in range(3)),
        FP32,
        width,
        width,
        first,
        counts,
        out,
        FP32,
        ctypes.c_float(1.0),
    )
    close("nmt_attend_range", list(out), expected)


def main(path: str, names: list[str]) -> None:
    library, rng = ctypes.CDLL(path), random.Random(1)
    for name in names:
        if not hasattr(library, name):
            sys.exit(f"error: the library lacks {name}")
    for size in (24, 64, 100):
        try_norm(library, rng, size)
    for size in (5, 32, 64):
        try_attention(library, rng, size, 19)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
