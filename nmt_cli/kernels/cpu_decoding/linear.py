"""The precision in which a model translates: fp32, bf16 or int8. What changes are its linear maps; all else stays fp32.

    model ──▶ prepared(model, "int8"): the same modules and parameters, each Linear and the output projection replaced
                 (N, d_in) fp32 ──▶ matrix product in the precision, weights laid out beforehand ──▶ (N, d_out) fp32

* fp32: oneDNN's product over weights in oneDNN's layout. `F.linear` takes torch's default library, which reorders the
  weights in each call and on AMD processors leaves half of the arithmetic unused.
* bf16: rows and weights rounded to bf16, sums in fp32.
* int8: weights in 255 steps a row of W, rows in 255 steps of one fixed size a linear map; products and sums are exact
  integers. Because the steps are fixed beforehand, a row's result depends on nothing but the row: int8 translations are
  as independent of their neighbours as fp32's. The steps' size comes from what the maps are given when the model reads
  sentences drawn from its own vocabulary (`_calibrated`): nothing outside the model folder is needed. The inner layer
  of a feed-forward network goes on to the outer one in 8 bits (`Int8FeedForward`).

`PRECISIONS[name](weight, bias, relu, step)` is a linear map; to add a precision: a class here and a line there. The
operators are those that torch's own compiler emits; where one is missing or not right, `available` says so, and fp32
goes back to the model as it came.
"""

from __future__ import annotations

import copy
import ctypes
import platform
import warnings
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UsageError
from ...hardware import cpu_flags, has_fast_bf16
from ...model.layers import FeedForward
from ...model.linear import Linear
from ...model.transformer import Transformer
from .functions import kernels

X86 = ("x86_64", "AMD64")
STEPS = 127
"""Of int8 on either side of zero."""
FEW_ROWS = 8
"""Rows up to which int8 products have a way of their own, where the processor allows."""
CALIBRATION = (8, 16)
"""Sentences and tokens of what int8's steps are measured on."""


class Fp32Linear(nn.Module):
    """`Linear` by oneDNN; the weight is a copy in a layout of its own."""

    keeps = torch.float32
    """What a decoder of this precision keeps its keys and values in."""
    fewest_rows = 4
    """A row of the result is the same bit for bit from this number of rows on."""
    takes = torch.float32
    """What rows `product` is given; int8: in steps of `step`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False, step: float = 0.0) -> None:
        super().__init__()
        operators: Any = torch.ops.mkldnn
        self.weight, self.bias = operators._reorder_linear_weight(weight.detach()), bias.detach() if bias is not None else None
        self.operator, self.after, self.step = operators._linear_pointwise.default, "relu" if relu else "none", 1.0

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.operator(x, self.weight, self.bias, self.after, [], ""))

    product = forward


class Bf16Linear(nn.Module):
    """`Linear` with rows and weight rounded to bf16; fp32 in, fp32 out."""

    keeps = takes = torch.bfloat16
    fewest_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False, step: float = 0.0) -> None:
        super().__init__()
        self.weight, self.bias, self.relu = weight.detach().bfloat16(), bias.detach().bfloat16() if bias is not None else None, relu
        self.packed, self.step = weight.device.type == "cpu" and _packs_bf16(), 1.0
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.bfloat16()).float()

    def product(self, rows: Tensor) -> Tensor:
        """The same in bf16, from rows to result."""
        if self.packed:
            return cast(Tensor, torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "relu" if self.relu else "none", [], ""))
        y = F.linear(rows, self.weight, self.bias)
        return F.relu(y, inplace=True) if self.relu else y


class Int8Linear(nn.Module):
    """`Linear` with rows and weight in 8 bits; fp32 in, fp32 out. `step` is the size of one step of its rows."""

    keeps, takes = torch.bfloat16, torch.int8
    fewest_rows = 16
    """Results of at most 256 numbers take another path in oneDNN, whose last bits differ."""

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False, step: float = 1.0) -> None:
        super().__init__()
        operators: Any = torch.ops.onednn
        steps = torch.maximum(weight.detach().amax(1), -weight.detach().amin(1)).clamp_min(1e-12) / STEPS  # (d_out,)
        eighth = (weight.detach() / steps[:, None]).round().to(torch.int8)
        self.weight, self.steps, self.zeros = operators.qlinear_prepack(eighth, None), steps, torch.zeros(len(steps), dtype=torch.int64)
        self.bias, self.after, self.step = bias.detach() if bias is not None else None, "relu" if relu else "none", step
        self.operator = operators.qlinear_pointwise.default
        self.few = FewRows(eighth, steps, self.bias, relu)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(in_steps(x, self.step))

    def product(self, rows: Tensor, out_step: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same for rows that are in steps already, (N, d_in) int8 or uint8; the result in `dtype`, in steps of `out_step`."""
        if len(rows) <= FEW_ROWS and rows.dim() == 2 and FewRows.takes(rows.size(1)) and few_rows_work():
            return self.few.product(rows, self.step, out_step, dtype)
        return cast(Tensor, self.operator(rows, self.step, 0, self.weight, self.steps, self.zeros, self.bias, out_step, 0, dtype, self.after, [], ""))


class FewRows:
    """`Int8Linear` for FEW_ROWS rows at most, compiled (`kernels/product.hpp`): oneDNN begins every product with more work than
    these are. The result is the same to the last bit. The weight is laid out on first use."""

    @staticmethod
    def takes(d_in: int) -> bool:
        """Whether maps from so many numbers are for it; of fewer oneDNN rounds the result otherwise."""
        return d_in >= 32 and d_in % 4 == 0

    def __init__(self, eighth: Tensor, steps: Tensor, bias: Tensor | None, relu: bool) -> None:
        self.eighth: Tensor | None = eighth
        self.steps, self.bias, self.relu, self.shape = steps, bias, relu, eighth.shape
        self.packed: tuple[Tensor, Tensor] | None = None
        self.known: tuple[float, float] | None = None
        self.given: tuple[Any, ...] = ()

    def product(self, rows: Tensor, step: float, out_step: float, dtype: torch.dtype) -> Tensor:
        """See `Int8Linear.product`."""
        if self.known != (step, out_step):
            self._lay_out(step, out_step)
        d_out, d_in = self.shape
        out = torch.empty(len(rows), d_out, dtype=dtype)
        function, weight, factor, _ = self.given
        function(len(rows), d_in, d_out, rows.data_ptr(), rows.dtype == torch.int8, *weight, self.relu, out.data_ptr(), dtype == torch.uint8, factor)
        return out

    def _lay_out(self, step: float, out_step: float) -> None:
        """Everything that does not depend on the rows; `known` comes last, as workers may be threads."""
        library, (d_out, d_in), eighth = cast(ctypes.CDLL, kernels()), self.shape, self.eighth
        if eighth is not None:
            outputs = -(-d_out // 16) * 16
            packed = torch.empty(outputs * d_in, dtype=torch.int8), torch.empty(outputs, dtype=torch.int32)
            library.nmt_pack(d_out, d_in, eighth.data_ptr(), packed[0].data_ptr(), packed[1].data_ptr())
            self.packed, self.eighth = packed, None
        kept = [*cast(tuple[Tensor, Tensor], self.packed), torch.tensor(step) * self.steps, self.bias]
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in kept]
        self.given = (library.nmt_product, addresses, float(1.0 / torch.tensor(out_step)), kept)  # the last: as long as their addresses
        self.known = (step, out_step)


@cache
def few_rows_work() -> bool:
    """Whether `FewRows` is there, for this processor, and gives oneDNN's numbers."""
    library = kernels()
    if library is None or not library.nmt_has_product():
        return False
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((64, 132), (67, 132), (67,)))
    for relu, dtype, out_step in ((False, torch.float32, 1.0), (True, torch.uint8, 0.03)):
        linear, rows = Int8Linear(weight, bias, relu, 0.02), in_steps(x, 0.02)
        if not torch.equal(linear.few.product(rows[:FEW_ROWS], 0.02, out_step, dtype), linear.product(rows, out_step, dtype)[:FEW_ROWS]):
            return False
    return True


def in_steps(x: Tensor, step: float) -> Tensor:
    """x / step to the nearest whole number in int8, what lies beyond the range cut to it: `in_steps_plain` in one pass."""
    if not _one_pass():
        return in_steps_plain(x, step)
    quantised = torch.quantize_per_tensor(x, step, 0, torch.qint8)
    return torch.empty(0, dtype=torch.int8).set_(quantised.untyped_storage(), 0, x.shape, quantised.stride())


def in_steps_plain(x: Tensor, step: float) -> Tensor:
    """The same in passes that every torch has."""
    return x.mul(1.0 / step).clamp_(-STEPS - 1, STEPS).round_().to(torch.int8)


@cache
def _one_pass() -> bool:
    """Whether torch still has its tensors of 8 bits: it says that they will go."""
    x = torch.tensor([[-9.0, -1.004, 0.0, 0.26, 2.0]])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_tensor(x, 0.01, 0, torch.qint8)
        return quantised.int_repr().tolist() == [[-128, -100, 0, 26, 127]]
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False


class Int8FeedForward(nn.Module):
    """`FeedForward` whose inner layer, never negative, comes out in 255 steps and goes into the outer one as it is."""

    def __init__(self, inner: Int8Linear, outer: Int8Linear) -> None:
        super().__init__()
        self.inner, self.outer = inner, outer
        outer.step *= STEPS / 255

    def forward(self, x: Tensor) -> Tensor:
        return self.product(in_steps(x, self.inner.step))

    def product(self, rows: Tensor) -> Tensor:
        return self.outer.product(self.inner.product(rows, self.outer.step, torch.uint8))


PRECISIONS: dict[str, type[Fp32Linear] | type[Bf16Linear] | type[Int8Linear]] = {"fp32": Fp32Linear, "bf16": Bf16Linear, "int8": Int8Linear}


def available(precision: str) -> bool:
    """Whether the precision's operators are here, for this processor, and right."""
    if precision == "bf16":
        return True
    if platform.machine() not in X86 or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((5, 24), (40, 24), (40,)))
    try:
        ours = PRECISIONS[precision](weight, bias, step=float(x.abs().max()) / STEPS)(x)
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):  # another torch
        return False
    return torch.allclose(ours, F.linear(x, weight, bias), atol=1e-4 if precision == "fp32" else 0.2)


@cache
def _packs_bf16() -> bool:
    """Whether oneDNN lays out weights in bf16 on this processor; without AVX-512 it refuses, and torch multiplies them as they are."""
    if not available("fp32"):
        return False
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(40, 24, dtype=torch.bfloat16))
    except RuntimeError:
        return False
    return True


def fastest(device: str) -> str:
    """The precision that this device computes fastest: int8 and bf16 where there are instructions for them."""
    if device != "cpu":
        return "bf16" if has_fast_bf16(device) else "fp32"
    if cpu_flags() & {"avx512_vnni", "avx_vnni", "amx_int8"} and available("int8"):
        return "int8"
    return "bf16" if has_fast_bf16(device) else "fp32"


@torch.inference_mode(False)
@torch.no_grad()
def prepared(model: Transformer, precision: str = "fp32") -> Transformer:
    """A model for evaluation in `precision` that shares the rest of `model`'s parameters.

    What happens to `model` later does not reach the replaced weights. Raises UsageError where the precision cannot be had.
    """
    device = model.output_weight.device
    if precision == "int8" and (device.type != "cpu" or not available("int8")):
        raise UsageError("precision int8 needs an x86 CPU and oneDNN's operators in torch. Use bf16 or fp32.")
    if precision == "fp32" and (device.type != "cpu" or not available("fp32")):
        return model.eval()
    steps = _calibrated(model) if precision == "int8" else {}
    kind = PRECISIONS[precision]

    def rebuilt(module: nn.Module, name: str) -> nn.Module:
        """The module and its descendants anew, sharing parameters."""
        if type(module) is Linear:
            return kind(module.weight, module.bias, module.relu, steps.get(name, 1.0))
        new = copy.copy(module)
        new._modules = {key: child if child is None else rebuilt(child, f"{name}.{key}") for key, child in module._modules.items()}
        if precision == "int8" and isinstance(new, FeedForward):
            return Int8FeedForward(cast(Int8Linear, new.inner), cast(Int8Linear, new.outer))
        return new

    new = cast(Transformer, rebuilt(model, "")).eval()
    new.__dict__["logits"] = kind(model.output_weight, None, step=steps.get("logits", 1.0))  # stands before the method of that name
    return new


def _calibrated(model: Transformer) -> dict[str, float]:
    """The size of one of 127 steps for each linear map's rows, by the map's name: its largest input over 127.

    The model reads pairs of sentences drawn from its vocabularies, frequent pieces (those of small ids) more often.
    """
    generator = torch.Generator().manual_seed(1)

    def drawn(vocabulary: int) -> Tensor:
        return (vocabulary ** torch.rand(CALIBRATION, generator=generator)).long().clamp_max(vocabulary - 1)

    largest: dict[str, float] = {}

    def seen(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            largest[name] = max(largest.get(name, 0.0), float(inputs[0].detach().abs().max()))

        return hook

    hooks = [module.register_forward_pre_hook(seen(f".{name}")) for name, module in model.named_modules() if type(module) is Linear]
    was, _ = model.training, model.eval()
    try:
        hidden = model(drawn(model.matrix("source").size(0)), None, drawn(model.target_vocab))
    finally:
        model.train(was)
        for hook in hooks:
            hook.remove()
    largest["logits"] = float(hidden.abs().max())
    return {name: max(value, 1e-12) / STEPS for name, value in largest.items()}
