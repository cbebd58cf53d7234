"""The project's own compiled matrix products: sources/matmul.hpp.

    fp32_product, int8_product ──▶ a Product, or None where the processor cannot run it, or another library is faster
    Product(rows)              rows (N, d_in) ──▶ (N, d_out)

They need AVX2 or AVX-512. oneDNN does some preparation at the beginning of each product, and these products do not. So they are faster
for few rows, and also for many rows where oneDNN has no better instructions. Where oneDNN has better ones (AMX), wide maps in int8 are
multiplied here for few rows only, and a check ensures that both libraries give the same bits. Without VNNI, oneDNN's sums of 8-bit
numbers are not exact; these are. Large products use as many threads as torch does, and divide the outputs among the threads. This
changes no bit.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from ...hardware import cpu_flags
from .. import onednn
from .functions import Map, library
from .on_tensors import INPUT_DTYPES

LANES = 16
"""Outputs of a panel: d_out is padded to a multiple of this number."""
FEW_ROWS = 8
"""Number of rows up to which products in int8 are faster here than in oneDNN with AMX."""
NARROW = 256
"""AMX is not used if d_in or d_out is at most this number: it needs larger products."""
LEAST_SHARED = 32
"""oneDNN gives the same bits in int8 if d_in is at least this number."""


class Product:
    """W x + b for a packed weight W, followed by max(0, ·) if `relu`. Several threads may use it at the same time."""

    def __init__(
        self,
        shape: tuple[int, int],
        weight: Tensor,
        bias: Tensor | None,
        relu: bool,
        *,
        sums: Tensor | None = None,
        scales: Tensor | None = None,
        input_scale: float = 1.0,
    ) -> None:
        """`shape` is (d_out, d_in); `weight` and `sums` are packed; `scales` (d_out,): the value of 1 in an int8 sum."""
        self.d_out, d_in = shape
        self.most_rows = FEW_ROWS if scales is not None and onednn_is_better(*shape) else 0
        """Maximum number of rows that are multiplied here; 0: any number."""
        self.kept = [
            weight,
            sums,
            *(None if values is None else _filled(values) for values in (scales, bias)),
        ]  # kept alive, because their addresses are used
        self.map = Map(
            d_in,
            self.d_out,
            *(None if values is None else values.data_ptr() for values in self.kept),
            input_scale,
            relu,
        )
        self.address = ctypes.addressof(self.map)
        self.multiply = _functions().nmt_multiply

    @property
    def is_int8(self) -> bool:
        """Whether the weight is in int8."""
        return self.map.scales is not None

    def takes(self, rows: Tensor) -> bool:
        """Return whether this product multiplies `rows`; else oneDNN does."""
        return not self.most_rows or (rows.dim() == 2 and len(rows) <= self.most_rows)

    def __call__(self, rows: Tensor, output_scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """rows (…, d_in) fp32, int8 or uint8 -> (…, d_out) in fp32. With int8 weights, `dtype` may be uint8, in units of `output_scale`."""
        rows = rows.contiguous()
        out = torch.empty(*rows.shape[:-1], self.d_out, dtype=dtype)
        if self.d_out:
            factor = float(1.0 / torch.tensor(output_scale)) if dtype == torch.uint8 else 1.0
            self.multiply(
                self.address,
                out.numel() // self.d_out,
                rows.data_ptr(),
                INPUT_DTYPES[rows.dtype],
                torch.get_num_threads(),
                out.data_ptr(),
                dtype == torch.uint8,
                factor,
            )
        return out


def fp32_product(weight: Tensor, bias: Tensor | None, relu: bool) -> Product | None:
    """Return the product with a weight (d_out, d_in); None if the processor cannot run it."""
    if not multiplies(torch.float32):
        return None
    d_out, d_in = weight.shape
    weight, packed = weight.float().contiguous(), torch.empty(-(-d_out // LANES) * LANES, d_in)
    _functions().nmt_pack_fp32(d_out, d_in, weight.data_ptr(), packed.data_ptr())
    return Product((d_out, d_in), packed, bias, relu)


def int8_product(weight: Tensor, scales: Tensor, bias: Tensor | None, input_scale: float, relu: bool) -> Product | None:
    """Return the product with an int8 weight (d_out, d_in); None if the processor cannot run it, or oneDNN must do it.

    `scales` (d_out,): the value of 1 in the weight; `input_scale`: the value of 1 in the input.
    """
    d_out, d_in = weight.shape
    if (onednn_is_better(d_out, d_in) and d_in < LEAST_SHARED) or not multiplies_int8(d_in):
        return None
    outputs = -(-d_out // LANES) * LANES
    weight, packed, sums = (
        weight.contiguous(),
        torch.empty(outputs, d_in, dtype=torch.int8),
        torch.empty(outputs, dtype=torch.int32),
    )
    _functions().nmt_pack_int8(d_out, d_in, weight.data_ptr(), packed.data_ptr(), sums.data_ptr())
    return Product(
        (d_out, d_in), packed, bias, relu, sums=sums, scales=torch.tensor(input_scale) * scales, input_scale=input_scale
    )


def onednn_is_better(d_out: int, d_in: int) -> bool:
    """Return whether oneDNN multiplies many rows of int8 faster."""
    return has_amx() and min(d_out, d_in) > NARROW


def has_amx() -> bool:
    """Return whether the processor has AMX for 8-bit numbers: oneDNN uses these instructions, our products do not."""
    return "amx_int8" in cpu_flags()


def multiplies_int8(d_in: int) -> bool:
    """Return whether there are int8 products for weights with this d_in."""
    return d_in % 4 == 0 and multiplies(torch.int8)


def multiplies(dtype: torch.dtype) -> bool:
    """Return whether there are products in `dtype`, fp32 or int8, and they compute the right numbers."""
    if dtype == torch.int8 and "avx_vnni" in cpu_flags() and "avx512_vnni" not in cpu_flags():
        return False  # oneDNN has VNNI in the registers of AVX2; the sources do not
    functions = library()
    return functions is not None and bool(functions.nmt_multiplies()) and _right(functions, dtype)


@cache
def _right(functions: ctypes.CDLL, dtype: torch.dtype) -> bool:
    """Return whether products agree with plain torch; in int8 with AMX, with oneDNN bit for bit, because it multiplies many rows there."""
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((21, 132), (67, 132), (67,)))
    if dtype == torch.float32:
        packed = torch.empty(80, 132)
        functions.nmt_pack_fp32(67, 132, weight.data_ptr(), packed.data_ptr())
        return torch.allclose(Product((67, 132), packed, bias, True)(x), torch.relu(x @ weight.T + bias), atol=1e-4)
    rows, integers = ((20 * values).round().to(torch.int8) for values in (x, weight))
    packed, sums = torch.empty(80, 132, dtype=torch.int8), torch.empty(80, dtype=torch.int32)
    functions.nmt_pack_int8(67, 132, integers.data_ptr(), packed.data_ptr(), sums.data_ptr())
    scales = torch.rand(67, generator=generator)
    factors = torch.tensor(0.02) * scales
    ours = Product((67, 132), packed, bias, False, sums=sums, scales=factors)(rows)
    theirs = rows.float() @ integers.float().T * factors + bias
    if has_amx():
        theirs = onednn.int8_linear(
            rows,
            0.02,
            onednn.int8_reorder(integers),
            scales,
            torch.zeros(67, dtype=torch.int64),
            bias,
            False,
            1.0,
            torch.float32,
        )
    return torch.equal(ours, theirs)


def _filled(values: Tensor) -> Tensor:
    """Return values (d_out,), padded with zeros to whole panels."""
    return torch.nn.functional.pad(values.detach().float(), (0, -len(values) % LANES))


def _functions() -> ctypes.CDLL:
    functions = library()
    assert functions is not None
    return functions
