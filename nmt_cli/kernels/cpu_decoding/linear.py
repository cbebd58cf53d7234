"""Linear maps for decoding on an x86 CPU: compiled ones (`products`), or oneDNN's over weights in its own layout.

    replace_linear(model)   nn.Linear, Bf16Linear, Int8Linear of a converted model (model/precision.py) ──▶ the maps here
    PackedX(x)              (N, d_in) fp32 ──▶ (N, d_out) fp32, as the module that it replaces
    PackedX.matmul(rows)    rows in `input_dtype` ──▶ the dtype of the product: for the compiled decoder, which writes its rows in `input_dtype`

The processor and the map decide which of the two multiplies; the number of rows does not. The exception is int8 with AMX: there
both multiply, and give the same bits. `F.linear` uses torch's default library. This library reorders the weights in each call,
and on AMD processors leaves half of the arithmetic unused. In int8, sums are exact integers, so results are equal to those of
`Int8Linear` except for the last rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...model.activations import SwiGLU
from ...model.layers import FeedForward
from ...model.precision import Bf16Linear, Int8FeedForward, Int8Linear, quantize, replace_modules
from ...model.transformer import Transformer
from .. import onednn
from ..torch_private import has_quantize, quantize_fast
from .functions import library
from .products import Product, fp32_product, int8_product, multiplies_int8


class PackedLinear(nn.Module):
    """`nn.Linear` in fp32, followed by max(0, ·) if `relu`."""

    cache_dtype = torch.float32
    """The dtype in which a decoder with such maps keeps keys and values."""
    input_dtype = torch.float32
    """The dtype that `matmul` reads; int8: integers in units of `input_scale`."""
    input_scale = 1.0

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False) -> None:
        """Copy `weight` (d_out, d_in), and keep `bias` (d_out,)."""
        super().__init__()
        self.bias, self.relu = bias.detach() if bias is not None else None, relu
        self.product = fp32_product(weight.detach(), self.bias, relu)
        self.compiled = self.product is not None
        self.weight = None if self.compiled else onednn.reorder(weight.detach())
        self.min_rows = 1 if self.compiled else 4
        """With at least this number of rows, the result of a row does not depend on the number of rows, bit for bit."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_in) -> (…, d_out)."""
        return (
            onednn.linear(x, self.weight, self.bias, self.relu)
            if self.weight is not None
            else cast(Product, self.product)(x)
        )

    matmul = forward


class PackedBf16Linear(nn.Module):
    """`Bf16Linear`, followed by max(0, ·) if `relu`."""

    compiled = False
    cache_dtype = input_dtype = torch.bfloat16
    attention_dtype = Bf16Linear.attention_dtype
    min_rows = 1
    input_scale = 1.0

    def __init__(self, linear: Bf16Linear, relu: bool = False) -> None:
        super().__init__()
        self.packed, self.relu = onednn.has_bf16_reorder(), relu
        self.weight, self.bias = onednn.reorder(linear.weight) if self.packed else linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_in) -> (…, d_out), fp32."""
        return self.matmul(x.bfloat16()).float()

    def matmul(self, rows: Tensor) -> Tensor:
        """rows (N, d_in) bf16 -> (N, d_out) bf16."""
        if self.packed:
            return onednn.linear(rows, self.weight, self.bias, self.relu)
        y = F.linear(rows, self.weight, self.bias)
        return F.relu(y, inplace=True) if self.relu else y


class PackedInt8Linear(nn.Module):
    """`Int8Linear`, followed by max(0, ·) if `relu`."""

    cache_dtype, input_dtype = torch.bfloat16, torch.int8
    attention_dtype = Int8Linear.attention_dtype

    def __init__(self, linear: Int8Linear, relu: bool = False) -> None:
        super().__init__()
        self.scales, self.bias, self.relu, self.input_scale = linear.scales, linear.bias, relu, linear.input_scale
        self.product = int8_product(linear.weight, linear.scales, linear.bias, linear.input_scale, relu)
        self.compiled = self.product is not None and not self.product.most_rows
        """Whether `product` multiplies any number of rows."""
        self.weight = None if self.compiled else onednn.int8_reorder(linear.weight)
        self.zeros = torch.zeros(len(linear.scales), dtype=torch.int64)
        self.min_rows = 1 if self.compiled else 16
        """oneDNN computes results of at most 256 numbers in another way, in which the last bits differ."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d_in) -> (…, d_out), fp32."""
        return self.matmul(quantized(x, self.input_scale))

    def matmul(self, rows: Tensor, output_scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """rows (N, d_in) int8 or uint8 -> (N, d_out) in `dtype`, in units of `output_scale`."""
        if self.product is not None and self.product.takes(rows):
            return self.product(rows, output_scale, dtype)
        return onednn.int8_linear(
            rows,
            self.input_scale,
            cast(Tensor, self.weight),
            self.scales,
            self.zeros,
            self.bias,
            self.relu,
            output_scale,
            dtype,
        )


class PackedFeedForward(nn.Module):
    """`FeedForward` with ReLU, in fp32 or bf16."""

    def __init__(self, inner: PackedLinear | PackedBf16Linear, outer: PackedLinear | PackedBf16Linear) -> None:
        super().__init__()
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        return self.outer(self.inner(x))  # type: ignore[no-any-return]

    def matmul(self, rows: Tensor) -> Tensor:
        """Rows that `inner` reads (N, D) -> (N, D)."""
        return self.outer.matmul(self.inner.matmul(rows))


class PackedInt8FeedForward(nn.Module):
    """`Int8FeedForward`: the inner result goes to the outer map in uint8, without a pass over memory between them."""

    def __init__(self, inner: PackedInt8Linear, outer: PackedInt8Linear) -> None:
        super().__init__()
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        return self.matmul(quantized(x, self.inner.input_scale))

    def matmul(self, rows: Tensor) -> Tensor:
        """rows (N, D) int8 -> (N, D) fp32."""
        return self.outer.matmul(self.inner.matmul(rows, self.outer.input_scale, torch.uint8))


class ActivatedFeedForward(nn.Module):
    """`FeedForward` with another activation than ReLU. The linear maps may have any precision.

    The activation is compiled, in fp32, so that a row's result does not depend on the row's position.
    """

    def __init__(
        self,
        inner: PackedLinear | PackedBf16Linear | PackedInt8Linear,
        activation: nn.Module,
        outer: PackedLinear | PackedBf16Linear | PackedInt8Linear,
    ) -> None:
        super().__init__()
        self.inner, self.activation, self.outer = inner, activation, outer

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        return self.outer(self._activated(self.inner(x)))  # type: ignore[no-any-return]

    def matmul(self, rows: Tensor) -> Tensor:
        """Rows that `inner` reads (N, D) -> (N, D) fp32."""
        return self.outer(self._activated(self.inner.matmul(rows).float()))  # type: ignore[no-any-return]

    def _activated(self, x: Tensor) -> Tensor:
        """Return the activation of fp32 numbers x, (…, d_ff), or (…, 2 * d_ff) with a gate -> (…, d_ff). `x` is overwritten."""
        functions, inputs = library(), int(getattr(self.activation, "inputs", 1))
        if functions is None:
            return cast(Tensor, self.activation(x))
        x, size = x.contiguous(), x.size(-1) // inputs
        rows = x.numel() // x.size(-1)
        functions.nmt_activate(ACTIVATIONS[type(self.activation)], rows, size, x.data_ptr())
        return x.flatten()[: rows * size].view(*x.shape[:-1], size)


KernelLinear = PackedLinear | PackedBf16Linear | PackedInt8Linear
KernelFeedForward = PackedFeedForward | PackedInt8FeedForward | ActivatedFeedForward
ACTIVATIONS: dict[type[nn.Module], int] = {nn.GELU: 1, nn.SiLU: 2, SwiGLU: 3}
"""The activations of an `ActivatedFeedForward`, and their numbers in the sources."""


LINEAR = (nn.Linear, Bf16Linear, Int8Linear)
"""Linear maps that this file can replace."""


def name_of(module: KernelLinear) -> str:
    """Return the name of a map for users: the library that multiplies many rows, and the precision."""
    precision = (
        "bf16" if isinstance(module, PackedBf16Linear) else "fp32" if isinstance(module, PackedLinear) else "int8"
    )
    return f"{'compiled' if module.compiled else 'oneDNN'} {precision} linear maps"


def supports(module: nn.Module, device: torch.device) -> str:
    """Return "" if a map of this file can replace `module` on this device, else the reason why not."""
    if device.type != "cpu":
        return f"device {device.type!r} has no kernel"
    if type(module) is FeedForward and (
        type(module.activation) not in (nn.ReLU, *ACTIVATIONS)
        or getattr(module.activation, "approximate", "none") != "none"
    ):
        return f"activation {type(module.activation).__name__!r} has no kernel"
    if type(module) in (nn.Linear, FeedForward):
        return "" if onednn.has_fp32_linear() else "oneDNN has no fp32 linear map for this processor"
    if type(module) is Bf16Linear:
        return ""
    if type(module) in (Int8Linear, Int8FeedForward):
        widths = [part.weight.size(1) for part in module.modules() if isinstance(part, Int8Linear)]
        return (
            ""
            if onednn.has_int8_linear() or all(map(multiplies_int8, widths))
            else "there is no int8 linear map for this processor"
        )
    return f"linear map {type(module).__name__!r} has no kernel"


@torch.inference_mode(False)
@torch.no_grad()
def replace_linear(model: Transformer, release: bool = False) -> Transformer:
    """Return a copy of a converted model in which the maps of this file replace all linear maps that they support.

    With `release`, a map of `model` in fp32 or int8 loses its weight as soon as it is replaced. So two copies of all weights are never in memory.
    """
    device, pack = model.device, partial(packed, release=release)

    def rule(module: nn.Module, name: str) -> nn.Module | None:
        if type(module) not in (*LINEAR, FeedForward, Int8FeedForward) or supports(module, device):
            return None
        if isinstance(module, Int8FeedForward):
            return PackedInt8FeedForward(pack(module.inner, relu=True), pack(module.outer))
        return _packed_network(module, device, pack) if isinstance(module, FeedForward) else pack(module)

    new = cast(Transformer, replace_modules(model, rule))
    if new.output_projection is None and not supports(nn.Linear(1, 1), device):
        new.output_projection = PackedLinear(model.output_weight, None)
    return new


def _packed_network(module: FeedForward, device: torch.device, pack: Callable[..., Any]) -> nn.Module | None:
    """Return the feed-forward network that replaces `module`, or None; `pack` is `packed`."""
    inner, outer = cast(nn.Module, module.inner), cast(nn.Module, module.outer)
    if any(type(linear) not in LINEAR or supports(linear, device) for linear in (inner, outer)):
        return None
    if type(module.activation) in ACTIVATIONS:
        return ActivatedFeedForward(pack(inner), module.activation, pack(outer))
    if type(inner) is type(outer) and type(inner) is not Int8Linear:
        return PackedFeedForward(pack(inner, relu=True), pack(outer))
    return None


def packed(linear: nn.Module, relu: bool = False, release: bool = False) -> Any:
    """Return the `KernelLinear` that replaces a supported linear map, followed by max(0, ·) if `relu`. `release`: see `replace_linear`."""
    if isinstance(linear, Bf16Linear):
        return PackedBf16Linear(linear, relu)
    if isinstance(linear, Int8Linear):
        int8 = PackedInt8Linear(linear, relu)
        if release:
            linear.weight = linear.weight.new_empty(0)
        return int8
    plain = cast(nn.Linear, linear)
    fp32 = PackedLinear(plain.weight, plain.bias, relu)
    if release:
        plain.weight = nn.Parameter(plain.weight.new_empty(0))
    return fp32


def quantized(x: Tensor, scale: float) -> Tensor:
    """Return x / scale as int8: `model.precision.quantize`, in one pass over memory where torch can."""
    return quantize_fast(x, scale) if has_quantize() else quantize(x, scale)
