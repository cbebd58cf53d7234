"""Matrix products of a training update by registers of our own, beside torch's and the processor's peak.

    python benchmarks/products.py [--registers avx512_bf16] [--models base] [--threads 1 2] [--rounds 5]   Linux, g++

What a training step in C++ could win in its products. Ours are compiled from products.cpp for each kind of registers
that the processor has, and pack and round too. torch.mm is oneDNN's in bf16 and MKL's in fp32; the column oneDNN is
torch's operator for linear maps. The peak never leaves the registers: two threads may be those of one core.
"""

import argparse
import ctypes
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from timeit import timeit

import torch
from common import checked, print_rows, setup
from torch import Tensor

from nmt_cli.device.memory import keep_freed_memory
from nmt_cli.device.processor import cpu_flags

REGISTERS = {"fma": "haswell", "avx512bw": "skylake-avx512", "avx512_bf16": "cooperlake", "amx_bf16": "sapphirerapids"}
"""The processor's flag (`fma`: AVX2), and the compiler's name of a processor that has them."""
SIDES = ("ours", "torch.mm", "oneDNN")
MODELS = {"small": (3712, 128, 256, 10_000, 4), "base": (1856, 512, 2048, 8_000, 6)}
"""Rows, d_model, d_ff, subwords, layers of the encoder and of the decoder."""


def products(model: str, registers: str) -> Iterator[tuple[str, str, int, Tensor, Tensor]]:
    """Yield the products of each linear map: of its output, inputs and weights. Map, name, how many, factors."""
    dtype = torch.bfloat16 if "bf16" in registers else torch.float32
    rows, size, d_ff, subwords, layers = MODELS[model]
    attention = [(size, 3 * size, 2 * layers), (size, size, 4 * layers), (size, 2 * size, layers)]
    for d_in, d_out, count in [*attention, (size, d_ff, 2 * layers), (d_ff, size, 2 * layers), (size, subwords, 1)]:
        x, weights, grad = (torch.randn(shape).to(dtype) for shape in ((rows, d_in), (d_out, d_in), (rows, d_out)))
        for name, left, right in (("forward", x, weights.t()), ("inputs", grad, weights), ("weights", grad.t(), x)):
            yield f"{d_in} × {d_out}", name, count, left, right


def compiled(processor: str) -> Callable[..., None]:
    """Return what calls a function of products.cpp on torch's threads. Raises SystemExit if it does not compile."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        checked(["g++", "-O3", f"-march={processor}", "-shared", "-fPIC", "-o", file.name, f"{__file__[:-3]}.cpp"])
        library, team = ctypes.CDLL(file.name), ctypes.CDLL(torch._C.__file__).GOMP_parallel
    return lambda name, *numbers: library[name](team, *map(ctypes.c_int64, (torch.get_num_threads(), *numbers)))


def main() -> None:
    """Print the rates of all products in GFLOP/s, then the milliseconds of all that an update has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    present = [name for name in REGISTERS if name in cpu_flags()]
    parser.add_argument("--registers", nargs="+", choices=[*REGISTERS], default=present)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    setup(0)
    keep_freed_memory()
    rows = [["registers", "threads", "model", "map", "product", *SIDES, "peak", *(f"{name}, %" for name in SIDES)]]
    sums = [["registers", "threads", "model", *(f"{name}, ms" for name in SIDES), "÷ ours", "÷ ours", "error"]]
    if lacking := [name for name in options.registers if name not in present]:
        parser.error(f"this processor has no {', '.join(lacking)}: it has {', '.join(present)}.")
    for registers, threads, model in product(options.registers, options.threads, options.models):
        torch.set_num_threads(threads)
        call, side, update, errors = compiled(REGISTERS[registers]), [registers, str(threads), model], [0.0] * 3, [0.0]
        for shape, name, count, left, right in products(model, registers):
            out, expected, numbers = left @ right * 0, left @ right, [left.data_ptr(), *left.stride(), right.data_ptr()]
            operations = 2 * out.numel() * left.size(1)
            ours = partial(call, "product", *numbers, *right.stride(), out.data_ptr(), *out.shape, left.size(1))
            linear = partial(torch.ops.mkldnn._linear_pointwise, left, right.t(), None, "none", [], "")
            runs = (ours, partial(torch.mm, left, right, out=expected), linear, partial(call, "peak", operations))
            times = 1 + 1_000_000_000 // operations
            turns = [[timeit(run, number=times) / times for run in runs] for _ in range(options.rounds + 1)][1:]
            seconds = [statistics.median(turn) for turn in zip(*turns, strict=True)]
            rates = [operations / 1e9 / spent for spent in seconds]
            shares = [f"{100 * rate / rates[3]:.0f}" for rate in rates[:3]]
            rows.append([*side, shape, name, *(f"{rate:,.0f}" for rate in rates), *shares])
            update = [update[i] + count * 1000 * seconds[i] for i in range(3)]
            errors.append(float((out - expected).abs().max() / expected.abs().max()))
        cells = [*(f"{ms:,.1f}" for ms in update), *(f"{ms / update[0]:.2f}" for ms in update[1:])]
        sums.append([*side, *cells, f"{torch.tensor(errors).max():.0e}"])
    print_rows(rows, markdown=True)
    print_rows(sums, markdown=True)


if __name__ == "__main__":
    main()
