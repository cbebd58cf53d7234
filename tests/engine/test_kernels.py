"""The engine's C++ kernels: the same bits with each instruction set, and the values that NumPy computes in float64."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from engine_flags import COMPILER, FLAGS, INCLUDED, SETS
from numpy.typing import NDArray

from nmt_cli.device.processor import cpu_flags
from nmt_cli.engine.library import NEEDS

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("same_bits.cpp")
HASHES = SOURCE.with_suffix(".txt")
ARM_COMPILER, ARM = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
FP32, BF16, SIGNED, OFFSET, UNSIGNED = range(5)
GELU, SILU = 1, 2
SIZES = [*range(1, 71), 128, 191, 256, 300, 512, 1024]

Array = NDArray[np.float32]
Run = Callable[..., None]
"""run(name, *arguments) calls a kernel of one library; arrays are passed by address."""


def compiled(compiler: str, name: str, path: Path, *more: str) -> Path:
    flags = [*FLAGS.split(), "-O2", *SETS[name].split(), *more, f"-I{INCLUDED}"]
    subprocess.run([*compiler.split(), *flags, str(SOURCE), "-o", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Compile the kernels for each instruction set that this processor has."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")

    def loaded(name: str) -> Run:
        library = ctypes.CDLL(str(compiled(COMPILER, name, folder / f"{name}.so", "-fPIC", "-shared")))
        return lambda kernel, *arguments: getattr(library, kernel)(*map(as_c, arguments))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(loaded, [name for name, needs in NEEDS.items() if needs <= cpu_flags()]))


def as_c(argument: object) -> object:
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    return ctypes.c_void_p(None) if argument is None else ctypes.c_int64(int(argument))  # type: ignore[call-overload]


def same_everywhere(libraries: list[Run], compute: Callable[[Run], np.ndarray]) -> np.ndarray:
    """Compute with each library; fail unless the bits are the same, and return them. All NaN are taken as one."""
    first, *others = [compute(run) for run in libraries]
    for other in others:
        assert first.dtype == other.dtype
        differing = (first.view(f"u{first.itemsize}") != other.view(f"u{first.itemsize}")) & ~(
            (first != first) & (other != other)
        )
        assert not differing.any(), (
            f"{differing.sum()} of {first.size} numbers differ, the first at {differing.argmax()}"
        )
    return first


def drawn(*shape: int, seed: int = 1, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(np.float32)


def in_bf16(x: Array) -> tuple[NDArray[np.uint16], Array]:
    """Round to bfloat16, ties to even: the stored numbers, and their values."""
    bits = x.view(np.uint32)
    stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return stored, (stored.astype(np.uint32) << 16).view(np.float32)


def units(ours: Array, exact: NDArray[np.float64]) -> float:
    """Return the largest error in units of the last place of fp32."""
    return float((np.abs(ours.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


def test_this_processor_computes_the_bits_of_every_other(libraries: list[Run], tmp_path: Path) -> None:
    """All kernels at all sizes up to 70, products of all shapes up to 70 x 70 and of the base model, 50 translations."""
    for number, run in enumerate(libraries):
        out = tmp_path / f"{number}"
        run("same_bits", bytes(out))
        assert out.read_text(encoding="ascii") == HASHES.read_text(encoding="ascii")


@pytest.mark.skipif(not ARM_COMPILER or not ARM, reason="there is no aarch64-linux-gnu-g++, or no qemu-aarch64")
@pytest.mark.parametrize(("name", "processor"), [("neon", "cortex-a72"), ("neon-dotprod", "neoverse-n1")])
def test_aarch64_computes_the_bits_of_every_other(name: str, processor: str, tmp_path: Path) -> None:
    assert ARM_COMPILER is not None
    assert ARM is not None
    program = compiled(ARM_COMPILER, name, tmp_path / name, "-static")
    subprocess.run([ARM, "-cpu", processor, program, tmp_path / "out"], check=True)
    assert (tmp_path / "out").read_text(encoding="ascii") == HASHES.read_text(encoding="ascii")


def mapped(name: str, x: Array) -> Callable[[Run], Array]:
    def compute(run: Run) -> Array:
        out = np.empty_like(x)
        run(name, x.size, x, out)
        return out

    return compute


def test_exponential(libraries: list[Run]) -> None:
    x = np.concatenate([-np.linspace(0, 87, 2_000_000), -np.geomspace(1e-38, 1, 100_000), [-0.0]]).astype(np.float32)
    out = same_everywhere(libraries, mapped("exponentials", x))
    assert units(out, np.exp(x.astype(np.float64))) < 1.5
    special = np.array(
        [0.0, -87.0, np.nextafter(np.float32(-87), np.float32(-88)), -88, -1e4, -3e38, -np.inf, np.nan], np.float32
    )
    out = same_everywhere(libraries, mapped("exponentials", special))
    assert out[0] == 1
    assert out[1] > 0
    assert not out[2:7].any()
    assert np.isnan(out[7])


def test_logarithm(libraries: list[Run]) -> None:
    x = np.concatenate([np.geomspace(1.2e-38, 3.4e38, 500_000), np.linspace(0.5, 2, 500_000)]).astype(np.float32)
    out = same_everywhere(libraries, mapped("logarithms", x))
    assert np.array_equal(out, np.log(x.astype(np.float64)).astype(np.float32))
    out = same_everywhere(libraries, mapped("logarithms", np.array([1, np.inf, np.nan], np.float32)))
    assert out[0] == 0
    assert out[1] == np.inf
    assert np.isnan(out[2])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_reductions(libraries: list[Run], scale: float) -> None:
    """The sum, the largest number, the sum of exponentials, and the logarithm of that over chunks."""
    for size in SIZES:
        x = drawn(size, scale=scale)

        def compute(run: Run, x: Array = x) -> Array:
            out = np.empty(4, np.float32)
            run("reductions", x.size, x, 16, out)
            return out

        total, largest, exponentials, logarithm = same_everywhere(libraries, compute)
        exact = x.astype(np.float64)
        assert total == pytest.approx(exact.sum(), abs=1e-6 * np.abs(exact).sum())
        assert largest == x.max()
        assert exponentials == pytest.approx(np.exp(exact - exact.max()).sum(), rel=1e-6)
        assert logarithm == pytest.approx(np.log(np.exp(exact - exact.max()).sum()) + exact.max(), rel=1e-6, abs=1e-6)


def test_logits_without_a_value(libraries: list[Run]) -> None:
    """A logit of -infinity counts 0, also in a chunk of its own; NaN, infinity, and -infinity alone give NaN."""

    def log_sum(*x: float) -> float:
        def compute(run: Run) -> Array:
            out = np.empty(4, np.float32)
            run("reductions", len(x), np.array(x, np.float32), 1, out)
            return out[3:]

        return float(same_everywhere(libraries, compute)[0])

    assert log_sum(1.0, -np.inf, 1.0) == pytest.approx(1 + np.log(2))
    assert math.isnan(log_sum(1.0, np.nan, 1.0))
    assert math.isnan(log_sum(1.0, np.inf))
    assert math.isnan(log_sum(-np.inf, -np.inf))


def written(x: Array, kind: int) -> Callable[[Run], np.ndarray]:
    """Write rows x as `kind`, in bytes, with their scales behind them."""
    width = x.shape[1] * {FP32: 4, BF16: 2}.get(kind, 1)

    def compute(run: Run) -> np.ndarray:
        out, scales = np.empty((len(x), width), np.uint8), np.zeros(len(x), np.float32)
        run("write_rows", *x.shape, x, kind, out, scales)
        return np.concatenate([out, np.nan_to_num(scales, nan=-1).view(np.uint8).reshape(-1, 4)], 1)

    return compute


def test_rows_in_fp32_and_bf16(libraries: list[Run]) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-45, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    for size in SIZES:
        x = drawn(3, size)
        x[0, : len(special)] = special[:size]
        for kind, expected in ((FP32, x.tobytes()), (BF16, in_bf16(x)[0].tobytes())):
            out = same_everywhere(libraries, written(x, kind))
            assert out[:, :-4].tobytes() == expected
    out = same_everywhere(libraries, written(np.full((1, 40), 0x7FFFFFFF, np.uint32).view(np.float32), BF16))
    assert (out[:, :-4].view(np.uint16) == 0x7FC0).all()


@pytest.mark.parametrize("grid", [SIGNED, OFFSET, UNSIGNED])
def test_rows_in_8_bits(libraries: list[Run], grid: int) -> None:
    for size in SIZES:
        x = drawn(4, size) * np.array([[1], [1e-20], [1e30], [2e-36]], np.float32)
        x = np.abs(x) if grid == UNSIGNED else x
        out = same_everywhere(libraries, written(x, grid))
        steps = np.float32(255 if grid == UNSIGNED else 127)
        largest = np.abs(x).max(1, keepdims=True)
        large = largest >= np.float32(1e-36)
        inverse = np.divide(steps, largest, out=np.zeros_like(largest), where=large)
        expected = np.rint(x * inverse).astype(np.int64) + (128 if grid == OFFSET else 0)
        assert np.array_equal(out[:, :-4], (expected & 255).astype(np.uint8))
        assert np.array_equal(out[:, -4:].copy().view(np.float32), np.where(large, largest / steps, np.float32(0)))


@pytest.mark.parametrize("grid", [SIGNED, OFFSET, UNSIGNED])
def test_rows_without_a_scale(libraries: list[Run], grid: int) -> None:
    """A row of zeros has the scale 0, one with NaN or infinity the scale NaN."""
    x = np.zeros((4, 33), np.float32)
    x[1, 32], x[2, 5], x[3, 1] = np.nan, np.inf, 1e-40
    out = same_everywhere(libraries, written(x, grid))
    assert (out[:, :-4] == (128 if grid == OFFSET else 0)).all()
    assert out[:, -4:].copy().view(np.float32).ravel().tolist() == [0, -1, -1, 0]


@pytest.mark.parametrize("activation", [GELU, SILU])
def test_activations_of_large_numbers(libraries: list[Run], activation: int) -> None:
    x = np.array([0.0, -0.0, 100, -100, 1e30, -1e30, 3e38, -3e38, np.inf, np.nan], np.float32)

    def compute(run: Run) -> Array:
        y = x.copy()
        run("activated", activation, 1, y.size, y)
        return y

    expected = np.where(x > 0, x, 0)
    expected[-1] = np.nan
    np.testing.assert_array_equal(same_everywhere(libraries, compute), expected)


def memory_of(rows: int, width: int, dtype: int) -> tuple[np.ndarray, Array]:
    """Return keys and values: as they are stored, and as fp32."""
    numbers = drawn(rows, width, seed=2)
    return in_bf16(numbers) if dtype == BF16 else (numbers, numbers)


def attention(q: Array, keys: Array, values: Array, heads: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Equation (1) in float64 of one query (H * K): the result (H * V), and the weights (H, count)."""
    count = len(keys)
    scores = np.einsum(
        "hk,chk->hc", q.astype(np.float64).reshape(heads, -1), keys.astype(np.float64).reshape(count, heads, -1)
    )
    weights = np.exp(scale * (scores - scores.max(1, keepdims=True)))
    weights /= weights.sum(1, keepdims=True)
    return np.einsum("hc,chv->hv", weights, values.astype(np.float64).reshape(count, heads, -1)).ravel(), weights


HEADS = [(64, 64), (32, 32), (128, 128), (8, 24), (5, 7), (16, 40), (70, 33)]


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize(("key", "value"), HEADS)
def test_attention_over_slots(libraries: list[Run], key: int, value: int, dtype: int) -> None:
    """Rows share slots or have their own: a row's result depends neither on the others nor on the way of computing."""
    heads, scale, rng = 2, key**-0.5, np.random.default_rng(1)
    stored, memory = memory_of(90, heads * (key + value), dtype)
    for count in [1, 2, 3, 4, 5, 15, 16, 17, 64, 70]:
        for rows in range(1, 5):
            queries = drawn(rows, heads * key)
            slots = np.tile(rng.permutation(90)[:count], (rows, 1)).astype(np.int32)
            slots[:, count // 2 :] = rng.integers(0, 90, (rows, count - count // 2))

            def compute(
                run: Run, as_written: bool = False, queries: Array = queries, slots: np.ndarray = slots
            ) -> Array:
                out = np.empty((len(queries), heads * value), np.float32)
                values = stored.reshape(-1)[heads * key :]
                sizes, inputs = (len(queries), heads, key, value, scale), (queries, stored, values, dtype, slots)
                run("attended_slots", *sizes, *inputs, slots.shape[1], as_written, out)
                return out

            out = same_everywhere(libraries, compute)
            assert np.array_equal(out, compute(libraries[0], as_written=True))
            for r in range(rows):
                assert np.array_equal(
                    out[r : r + 1], compute(libraries[0], queries=queries[r : r + 1], slots=slots[r : r + 1])
                )
                mixed, _ = attention(
                    queries[r], memory[slots[r], : heads * key], memory[slots[r], heads * key :], heads, scale
                )
                np.testing.assert_allclose(out[r], mixed, rtol=1e-5, atol=2e-6)
