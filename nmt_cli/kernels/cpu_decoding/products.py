"""Matrix products of this project's own, compiled: sources/matmul.hpp.

    fp32_product, int8_product ──▶ a Product, or None where the processor has no such, or another library is faster
    Product(rows)              rows (N, d_in) ──▶ (N, d_out)

They need AVX2 or AVX-512. They start without the work by which oneDNN begins each product: they are faster for few rows, and for many
where oneDNN has no better instructions. Where it has (AMX), wide maps in int8 are multiplied here for few rows only, and the bits
are checked to be the same. Without VNNI, oneDNN's sums of 8-bit numbers are not exact; these are. They use as many threads as torch does, for products that are worth it, and divide the outputs among them:
that changes no bit.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from ...hardware import cpu_flags
from .. import onednn
from .functions import INPUT_DTYPES, Map, library

LANES = 16
"""Outputs of a panel: d_out is filled up to a multiple of it."""
FEW_ROWS = 8
"""Rows up to which products in int8 are faster here than in oneDNN with AMX."""
NARROW = 256
"""The smaller of d_in and d_out up to which AMX is left unused: it needs larger products than such a map's."""
LEAST_SHARED = 32
"""d_in from which on oneDNN gives the same bits in int8."""


class Product:
    """max(0, W x + b) for a packed weight, the maximum where `relu`. It may serve several threads."""

    def __init__(self, shape: tuple[int, int], weight: Tensor, bias: Tensor | None, relu: bool, *, sums: Tensor | None = None, scales: Tensor | None = None, input_scale: float = 1.0) -> None:
        """`shape` is (d_out, d_in); `weight` and `sums` are packed; `scales` (d_out,) are what one step of an int8 sum is worth."""
        self.d_out, d_in = shape
        self.most_rows = FEW_ROWS if scales is not None and onednn_is_better(*shape) else 0
        """Rows that are multiplied here at most; 0: any number."""
        self.kept = [weight, sums, *(None if values is None else _filled(values) for values in (scales, bias))]  # their addresses are used
        self.map = Map(d_in, self.d_out, *(None if values is None else values.data_ptr() for values in self.kept), input_scale, relu)
        self.address = ctypes.addressof(self.map)
        self.multiply = _functions().nmt_multiply

    def takes(self, rows: Tensor) -> bool:
        """Whether rows are multiplied here."""
        return not self.most_rows or (rows.dim() == 2 and len(rows) <= self.most_rows)

    def __call__(self, rows: Tensor, output_scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """rows (…, d_in) fp32, int8 or uint8 -> (…, d_out) in fp32, or of int8 in uint8 in units of `output_scale`."""
        rows = rows.contiguous()
        out = torch.empty(*rows.shape[:-1], self.d_out, dtype=dtype)
        if self.d_out:
            factor = float(1.0 / torch.tensor(output_scale)) if dtype == torch.uint8 else 1.0
            self.multiply(self.address, out.numel() // self.d_out, rows.data_ptr(), INPUT_DTYPES[rows.dtype], torch.get_num_threads(), out.data_ptr(), dtype == torch.uint8, factor)
        return out


def fp32_product(weight: Tensor, bias: Tensor | None, relu: bool) -> Product | None:
    """Return the product with a weight (d_out, d_in); None where there is none."""
    if not multiplies(torch.float32):
        return None
    d_out, d_in = weight.shape
    weight, packed = weight.float().contiguous(), torch.empty(-(-d_out // LANES) * LANES, d_in)
    _functions().nmt_pack_fp32(d_out, d_in, weight.data_ptr(), packed.data_ptr())
    return Product((d_out, d_in), packed, bias, relu)


def int8_product(weight: Tensor, scales: Tensor, bias: Tensor | None, input_scale: float, relu: bool) -> Product | None:
    """Return the product with an int8 weight (d_out, d_in), one step of which is worth `scales` (d_out,), and one of the input `input_scale`."""
    d_out, d_in = weight.shape
    if (onednn_is_better(d_out, d_in) and d_in < LEAST_SHARED) or not multiplies_int8(d_in):
        return None
    outputs = -(-d_out // LANES) * LANES
    weight, packed, sums = weight.contiguous(), torch.empty(outputs, d_in, dtype=torch.int8), torch.empty(outputs, dtype=torch.int32)
    _functions().nmt_pack_int8(d_out, d_in, weight.data_ptr(), packed.data_ptr(), sums.data_ptr())
    return Product((d_out, d_in), packed, bias, relu, sums=sums, scales=torch.tensor(input_scale) * scales, input_scale=input_scale)


def onednn_is_better(d_out: int, d_in: int) -> bool:
    """Whether oneDNN multiplies many rows of int8 faster."""
    return has_amx() and min(d_out, d_in) > NARROW


def has_amx() -> bool:
    """Whether oneDNN has instructions for products of 8-bit numbers that are not used here."""
    return "amx_int8" in cpu_flags()


def multiplies_int8(d_in: int) -> bool:
    """Whether there are products in int8 of this width."""
    return d_in % 4 == 0 and multiplies(torch.int8)


def multiplies(dtype: torch.dtype) -> bool:
    """Whether there are products in fp32 or int8, and they give the right numbers."""
    if dtype == torch.int8 and "avx_vnni" in cpu_flags() and "avx512_vnni" not in cpu_flags():
        return False  # oneDNN has VNNI in the registers of AVX2; the sources do not
    functions = library()
    return functions is not None and bool(functions.nmt_multiplies()) and _right(functions, dtype)


@cache
def _right(functions: ctypes.CDLL, dtype: torch.dtype) -> bool:
    """Whether products have the numbers of plain torch, and with AMX the bits of oneDNN, which multiplies many rows there."""
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
        theirs = onednn.int8_linear(rows, 0.02, onednn.int8_reorder(integers), scales, torch.zeros(67, dtype=torch.int64), bias, False, 1.0, torch.float32)
    return torch.equal(ours, theirs)


def _filled(values: Tensor) -> Tensor:
    """Return values (d_out,) with zeros up to whole panels."""
    return torch.nn.functional.pad(values.detach().float(), (0, -len(values) % LANES))


def _functions() -> ctypes.CDLL:
    functions = library()
    assert functions is not None
    return functions
