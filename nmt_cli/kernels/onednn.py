"""oneDNN's linear maps, as torch's own compiler calls them. These operators are private to torch: only this file uses them.

Each `has_…` function calls its operators once on small numbers and compares the result with plain torch. It returns False
where an operator is missing, refuses this processor, or computes something else; the kernels then decline.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..hardware import cpu_flags

X86 = ("x86_64", "AMD64")
UNSIGNED_ZERO = 128
"""The uint8 number for 0 in int8: n in int8 becomes n + 128 in uint8. Only the highest bit changes."""
UNUSABLE = (RuntimeError, AttributeError, NotImplementedError, TypeError)
"""Errors from a call of an operator that is missing, has changed, or refuses the processor."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return x W^T + b, followed by max(0, ·) if `relu`, in fp32 or bf16. `weight` may come from `reorder`."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], ""))


def reorder(weight: Tensor) -> Tensor:
    """Return a copy of a weight (d_out, d_in) in oneDNN's own memory layout."""
    return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight))


def int8_reorder(weight: Tensor) -> Tensor:
    """Return an int8 weight (d_out, d_in) in the layout of `int8_linear`."""
    operators: Any = torch.ops.onednn
    return cast(Tensor, operators.qlinear_prepack(weight, None))


def int8_linear(
    rows: Tensor,
    input_scale: float,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor,
    bias: Tensor | None,
    relu: bool,
    output_scale: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return rows W^T + b for rows (N, d_in) in int8 or uint8, in `dtype` and in units of `output_scale`; `weight` from `int8_reorder`."""
    operators: Any = torch.ops.onednn
    after, zero = "relu" if relu else "none", 0
    if rows.dtype == torch.int8 and multiplies_unsigned_only():
        rows, zero = rows.view(torch.uint8) ^ UNSIGNED_ZERO, UNSIGNED_ZERO
    return cast(
        Tensor,
        operators.qlinear_pointwise.default(
            rows, input_scale, zero, weight, scales, zeros, bias, output_scale, 0, dtype, after, [], ""
        ),
    )


@cache
def multiplies_unsigned_only() -> bool:
    """Return whether this processor needs unsigned rows for 8-bit products: VNNI without AMX. With signed rows, oneDNN then uses its slow reference loop."""
    flags = cpu_flags()
    return bool(flags & {"avx512_vnni", "avx_vnni"}) and "amx_int8" not in flags


def _here() -> bool:
    return platform.machine() in X86 and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def _numbers(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(
        1
    )  # a separate one: a running training depends on the state of the default generator
    return [torch.randn(shape, generator=generator) for shape in shapes]


@cache
def has_fp32_linear() -> bool:
    """Return whether `linear` and `reorder` work in fp32."""
    if not _here():
        return False
    x, weight, bias = _numbers((5, 24), (40, 24), (40,))
    try:
        ours = linear(x, reorder(weight), bias)
    except UNUSABLE:
        return False
    return torch.allclose(ours, F.linear(x, weight, bias), atol=1e-4)


@cache
def has_bf16_reorder() -> bool:
    """Return whether `reorder` supports bf16; it does not without AVX-512."""
    if not has_fp32_linear():
        return False
    try:
        reorder(torch.zeros(40, 24, dtype=torch.bfloat16))
    except UNUSABLE:
        return False
    return True


@cache
def has_fused_linear() -> bool:
    """Return whether `linear` works in bf16 on a weight that is not reordered, with max(0, ·)."""
    x, weight, bias = (part.bfloat16() for part in _numbers((5, 24), (40, 24), (40,)))
    try:
        ours = linear(x, weight, bias, relu=True)
    except UNUSABLE:
        return False
    return torch.allclose(ours.float(), F.relu(F.linear(x.float(), weight.float(), bias.float())), atol=0.1, rtol=0.05)


@cache
def has_int8_linear() -> bool:
    """Return whether `int8_linear` and `int8_reorder` work, and their sums are exact."""
    if not _here():
        return False
    x, weight, bias = _numbers((5, 24), (40, 24), (40,))
    scale, scales = float(x.abs().max()) / 127, weight.abs().amax(1) / 127
    rows, integers = (x / scale).round().to(torch.int8), (weight / scales[:, None]).round().to(torch.int8)
    try:
        ours = int8_linear(
            rows,
            scale,
            int8_reorder(integers),
            scales,
            torch.zeros(40, dtype=torch.int64),
            bias,
            False,
            1.0,
            torch.float32,
        )
    except UNUSABLE:
        return False
    return torch.allclose(ours, F.linear(rows.float(), integers.float()) * (scale * scales) + bias, atol=1e-4)
