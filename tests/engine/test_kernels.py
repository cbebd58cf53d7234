"""The engine's C++ kernels: the values that NumPy computes, and the same bits on every processor."""

import ctypes
import itertools
import math
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_flags import COMPILER, FLAGS, INCLUDED, SETS
from numpy.typing import NDArray

from nmt_cli.device.processor import cpu_flags
from nmt_cli.engine.library import NEEDS

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("same_bits.cpp")
HASHES = SOURCE.with_suffix(".txt").read_text(encoding="ascii")
ARM_COMPILER, ARM = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
HERE = [name for name, needs in NEEDS.items() if needs <= cpu_flags()]
"""The instruction sets that this processor has, the fastest first."""

Array = NDArray[Any]
Take = Callable[..., Array]
"""take(rows, columns, scale) → the next random numbers that the kernel gets."""


def compiled(compiler: str | None, name: str, path: Path, *more: str) -> Path:
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    flags = [*FLAGS.split(), "-O2", *SETS[name].split(), *more, f"-I{INCLUDED}"]
    subprocess.run([*compiler.split(), *flags, str(SOURCE), "-o", str(path)], check=True)
    return path


@pytest.mark.parametrize("name", HERE)
def test_this_processor_computes_the_bits_of_every_other(name: str, tmp_path: Path) -> None:
    """All kernels at all sizes up to 70, and at larger ones; products of all numbers of rows up to 70; 50 translations."""
    subprocess.run([compiled(COMPILER, name, tmp_path / "program"), tmp_path / "out"], check=True)
    assert (tmp_path / "out").read_text(encoding="ascii") == HASHES


@pytest.mark.skipif(not ARM_COMPILER or not ARM, reason="there is no aarch64-linux-gnu-g++, or no qemu-aarch64")
@pytest.mark.parametrize(("name", "processor"), [("neon", "cortex-a72"), ("neon-dotprod", "neoverse-n1")])
def test_aarch64_computes_the_bits_of_every_other(name: str, processor: str, tmp_path: Path) -> None:
    program = compiled(ARM_COMPILER, name, tmp_path / name, "-static")
    subprocess.run([str(ARM), "-cpu", processor, program, tmp_path / "out"], check=True)
    assert (tmp_path / "out").read_text(encoding="ascii") == HASHES


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, Array], Array]:
    """compute(kernel, size, numbers) with one library: the others have the same bits."""
    path = compiled(COMPILER, HERE[0], tmp_path_factory.mktemp("kernels") / "library.so", "-fPIC", "-shared")
    function, numbers = ctypes.CDLL(str(path)).compute, np.ctypeslib.ndpointer(np.float32, flags="C")
    function.argtypes = [ctypes.c_char_p, ctypes.c_int64, numbers, ctypes.c_int64, numbers]
    function.restype = ctypes.c_int64

    def results(kernel: str, size: int, x: Array) -> Array:
        y = np.empty(4_000_000, np.float32)
        return y[: function(kernel.encode(), size, np.ascontiguousarray(x, np.float32), x.size, y)]

    return results


def log_sum_exp(x: Array) -> Array:
    largest = x.max(-1, keepdims=True)
    found: Array = largest + np.log(np.exp(x - largest).sum(-1, keepdims=True))
    return found


def reductions(size: int, take: Take) -> Array:
    [x] = take(1, size, 20)
    return np.array([x.sum(), x.max(), np.exp(x - x.max()).sum(), log_sum_exp(x)[0]])


def bf16(x: Array) -> Array:
    """Rounded to bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def in_8_bits(x: Array, steps: int) -> tuple[Array, Array]:
    """The scales (N, 1) and the integers of rows."""
    x = x.astype(np.float32)
    largest = np.abs(x).max(1, keepdims=True)
    large = largest >= np.float32(1e-36)
    inverse = np.divide(np.float32(steps), largest, out=np.zeros_like(largest), where=large)
    return np.where(large, largest / np.float32(steps), 0), np.rint(x * inverse)


def rows(kind: str, size: int, take: Take) -> Array:
    """Of which the last is the first one made tiny: its scale is 0."""
    x = take(3, size, 5).astype(np.float32)
    x = np.concatenate([x, x[:1] * np.float32(1e-38)])
    if kind == "in bf16":
        return np.concatenate([np.zeros(4), bf16(x).ravel()])
    unsigned = kind == "unsigned"
    scales, integers = in_8_bits(np.abs(x) if unsigned else x, 255 if unsigned else 127)
    return np.concatenate([scales.ravel(), integers.ravel() + 128 * (kind == "with an offset")])


def norm(kind: int, post: bool, size: int, take: Take) -> Array:
    """The residual, and what the next sub-layer reads. `kind`: LayerNorm, RMSNorm, none."""
    x, weight, bias = take(3, size, 3) + take(3, size), take(1, size), take(1, size)
    centered = x - x.mean(1, keepdims=True) * (kind == 0)
    normed = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * weight + bias * (kind == 0)
    normed = x if kind == 2 else normed
    return np.concatenate([normed if post else x, normed])


def activation(kind: int, size: int, take: Take) -> Array:
    x = take(6, size, 8)
    gelu, silu = x[:3] * (1 + np.vectorize(math.erf)(x[:3] / 2**0.5)) / 2, x / (1 + np.exp(-x))
    found: Array = (gelu, silu[:3], silu[::2] * x[1::2])[kind - 1]
    return found


def rotations(size: int, take: Take) -> Array:
    """Rotated rows of two heads at three positions, and the table of 18 sinusoids."""
    x = take(6, 2 * size).reshape(3, 2, size, 2)
    angles = np.arange(18)[:, None] / 10_000 ** (np.arange(size) / size)
    turned = x.view(np.complex128)[..., 0] * np.exp(1j * angles[[0, 5, 17], None])
    return np.concatenate([turned.view(np.float64).ravel(), np.stack([np.sin(angles), np.cos(angles)], 2).ravel()])


def embeddings(size: int, take: Take) -> Array:
    table, positions = take(4, size, 30), take(2, size)
    return 1.5 * np.concatenate([table[[3, 0, 2]] + positions[[1, 0, 1]] / 1.5, np.trunc(4 * table[[3, 0, 2]]) / 4])


def log_softmax(size: int, take: Take) -> Array:
    x = take(3, size, 9)
    return x - log_sum_exp(x)


def ranks(size: int, take: Take) -> Array:
    """Hypothesis 0 of the second sentence is closed. There is a tie: the first one wins."""
    logits, so_far, count = take(3, size, 9), take(1, 4).ravel(), min(8, size)
    logits[0, size // 2] = logits[0, 0]
    log_probs = logits - log_sum_exp(logits) + so_far[[0, 1, 3], None]
    found = [log_probs[:2].ravel(), np.concatenate([np.full(size, -np.inf), log_probs[2]])]
    best = [np.argsort(-one, kind="stable")[:count] for one in found]
    return np.concatenate([*(one[order] for one, order in zip(found, best, strict=True)), *best])


def attention(key: int, value: int, dtype: str, count: int, take: Take) -> Array:
    """Equation (1) of rows with the same keys and values: results and weights; and of rows with slots, in two ways."""
    number = 1 + count % 4
    q, memory = take(number, 2 * key).reshape(number, 2, key), take(count + 1, 2 * (key + value))
    memory = memory if dtype == "fp32" else bf16(memory).astype(np.float64)

    def attend(slots: Array) -> tuple[Array, Array]:  # (N, count)
        keys, values = memory[slots, : 2 * key], memory[slots, 2 * key :]
        scores = 0.125 * np.einsum("nhk,nchk->nhc", q, keys.reshape(number, count, 2, key))
        weights = np.exp(scores - log_sum_exp(scores))
        return np.einsum("nhc,nchv->nhv", weights, values.reshape(number, count, 2, value)).ravel(), weights.ravel()

    at, row = np.arange(count), np.arange(number)[:, None]
    apart = attend(np.where(at < count // 2, at, (7 * at + 3 * row) % count))[0]
    return np.concatenate([*attend(at + 0 * row), apart, apart])


def products(kind: str, size: int, take: Take) -> Array:
    """The products of 1, 2, … rows with a matrix, and ReLU of every second one."""
    small, relu = kind.startswith("small"), kind.endswith("ReLU")
    fours = 8 if small else 4
    d_in, most = (-(-size // fours) * fours, 70) if size <= 70 else (512, 16)
    matrix, bias, x = take(size, d_in).astype(np.float32), take(1, size), take(most, d_in)
    matrix = matrix * matrix * matrix if small else matrix
    x = np.maximum(x, 0) if relu else x
    if kind != "fp32":
        scales, x = in_8_bits(x, 255 if relu else 127)
        steps = abs(matrix).max(1, keepdims=True) / np.float32(127)
        x, matrix = scales * x, steps.astype(np.float64) * np.rint(matrix / steps)
    found = x.astype(np.float64) @ matrix.T + bias
    return np.concatenate([found[:n] if n % 2 else np.maximum(found[:n], 0) for n in range(1, most + 1)])


def ssru(size: int, take: Take) -> Array:
    candidate, gate = take(1, 2 * size, 8).reshape(2, size)
    forget = 1 / (1 + np.exp(-gate))
    after = forget * take(1, size, 3)[0] + (1 - forget) * candidate
    return np.concatenate([after, np.maximum(after, 0)])


# The name of each kernel in same_bits.cpp → its values (size, take), and how far its numbers may be from them.
HEADS = [(64, 64), (32, 32), (128, 128), (20, 20), (5, 7), (16, 40), (70, 33)]
ROWS = ("in bf16", "signed", "with an offset", "unsigned")
KERNELS: dict[str, tuple[Callable[..., Array], float]] = {
    "exponentials": (lambda size, take: np.exp(-abs(take(1, size, 80))), 1e-7),
    "logarithms": (lambda size, take: np.log(abs(take(1, size, 1000))), 1e-7),
    "reductions": (reductions, 1e-6),
    "log-softmax": (log_softmax, 1e-6),
    "ranks": (ranks, 1e-6),
    "embeddings": (embeddings, 1e-6),
    "rotations": (rotations, 2e-6),
}
KERNELS |= {f"activation {kind}": (partial(activation, kind), 1e-6) for kind in (1, 2, 3)}
KERNELS |= {f"rows {kind}": (partial(rows, kind), 0) for kind in ROWS}
PRODUCTS = ("fp32", "int8", "int8 after ReLU", "small int8", "small int8 after ReLU")
KERNELS |= {f"products {kind}": (partial(products, kind), 2e-5) for kind in PRODUCTS}
KERNELS["ssru"] = ssru, 1e-6
for kind, post in itertools.product((0, 1, 2), (False, True)):
    KERNELS[f"{'post' if post else 'pre'}-norm {kind}"] = partial(norm, kind, post), 1e-4
for (key, value), dtype in itertools.product(HEADS, ("fp32", "bf16")):
    KERNELS[f"attention {key} {value} {dtype}"] = partial(attention, key, value, dtype), 2e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_values(kernel: str, compute: Callable[..., Array]) -> None:
    expected, tolerance = KERNELS[kernel]
    rng = np.random.default_rng(1)
    for size in [*range(1, 71), 128, 191, 300, 1024]:
        given = list[Array]()

        def take(rows: int, columns: int, scale: float = 1, given: list[Array] = given) -> Array:
            given.append(rng.uniform(-scale, scale, (rows, columns)).astype(np.float32))
            return given[-1].astype(np.float64)

        values = expected(size, take).ravel()
        found = compute(kernel, size, np.concatenate([one.ravel() for one in given]))
        np.testing.assert_allclose(found, values, rtol=tolerance, atol=tolerance, err_msg=f"size {size}")


def test_every_kernel_has_values() -> None:
    named = {line.partition(":")[0] for line in HASHES.splitlines()}
    assert {name for name in named if not name.startswith("translations")} == set(KERNELS)


NAN, INF, HALF = math.nan, math.inf, -math.log(2)
LARGE = [0, -0.0, 100, -100, 1e30, -1e30, 3e38, -3e38, INF, NAN, 0, 0]
GONE = [0, 1e-40, NAN, 0, 0, INF]  # rows without a scale
LIMITS: list[tuple[str, int, list[float], list[float]]] = [
    ("exponentials", 7, [0, 87, -87.00001, 1e4, 3e38, INF, NAN], [1, math.exp(-87), 0, 0, 0, 0, NAN]),
    ("logarithms", 3, [1, INF, NAN], [0, INF, NAN]),
    ("log-softmax", 3, [1, -INF, 1] * 3, [HALF, -INF, HALF] * 3),
    ("log-softmax", 33, [1, *31 * [-INF], 1] * 3, [HALF, *31 * [-INF], HALF] * 3),  # of sixteen each is -infinity
    ("log-softmax", 2, [NAN, 1, INF, 1, -INF, -INF], [NAN] * 6),
    *((f"activation {kind}", 4, LARGE * 2, [0, 0, 100, 0, 1e30, 0, 3e38, 0, INF, NAN, 0, 0]) for kind in (1, 2)),
    (
        "rows in bf16",
        2,
        [INF, -INF, NAN, 3.4e38, 1e-40, 1 + 3 / 256],
        [*4 * [0], INF, -INF, NAN, INF, 2**-133, 1 + 2**-6, INF, -INF],
    ),
    *((f"rows {kind}", 2, GONE, [0, NAN, NAN, 0, *8 * [128 * (kind == "with an offset")]]) for kind in ROWS[1:]),
]


@pytest.mark.parametrize(("kernel", "size", "given", "expected"), LIMITS)
def test_numbers_at_the_limits(
    kernel: str, size: int, given: list[float], expected: list[float], compute: Callable[..., Array]
) -> None:
    np.testing.assert_allclose(compute(kernel, size, np.array(given)), np.array(expected, np.float32), rtol=1e-6)


def test_exponentials_and_logarithms_are_rounded_well(compute: Callable[..., Array]) -> None:
    x = np.concatenate([np.linspace(0, 87, 2_000_000), np.geomspace(1e-38, 1, 100_000)]).astype(np.float32)
    exact = np.exp(-x.astype(np.float64))
    units = np.abs(compute("exponentials", x.size, x) - exact) / np.spacing(exact.astype(np.float32))
    assert units.max() < 1.5
    x = np.concatenate([np.geomspace(1.2e-38, 3.4e38, 500_000), np.linspace(0.5, 2, 500_000)]).astype(np.float32)
    assert np.array_equal(compute("logarithms", x.size, x), np.log(x.astype(np.float64)).astype(np.float32))
