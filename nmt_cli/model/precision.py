"""The precision in which a trained model computes: fp32, bf16, fp16 or int8. Registered in registry.PRECISIONS.

    model ──▶ convert(model, "int8")
        ──▶ the same modules and parameters, each nn.Linear and the output projection replaced
                                          (N, d_in) fp32 ──▶ matrix product in the precision ──▶ (N, d_out) fp32

* fp32: nothing changes.
* bf16, fp16: rows and weights are rounded to this precision, sums are in fp32.
* int8: a weight is an integer in -127 .. 127 times a scale; each output has its own scale. Input rows are rounded in
  the same way, each row with its own scale: its largest magnitude becomes 127. Products and sums are exact integers.
  The result for a row depends only on this row: int8 translations are as independent of the batch as fp32 ones.
  Embeddings are rounded to integers too. `integers` returns all integers and scales, and an int8 folder stores them
  (model/folder.py). `with_integers` builds a model from them, so a model from such a folder gives the same translations
  as one converted in memory.

Everything else stays in fp32. The modules here are plain torch and run on any device. On a CPU the engine computes
the same, much faster.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..device.processor import expect_reproducible_products
from ..device.torch_device import is_host
from ..recipe import ModelSection
from ..registry import PRECISIONS, load
from .embeddings import Int8Embedding
from .folder_files import check_int8
from .layers import FeedForward
from .parameters import INT8_MAX, SCALES, Form
from .transformer import Transformer

UINT8_MAX = 255
"""The largest integer of a row that is never negative."""
LEAST = 1e-36
"""A row with smaller numbers only becomes zeros."""
EXACT_COLUMNS = 512
"""How many products of 8-bit numbers fp32 can sum exactly: 512 * 255 * 127 < 2^24."""

Rule = Callable[[nn.Module, str], "nn.Module | None"]
"""(module, name) -> the module's replacement. None: the module stays, and the rule is applied to its children."""


def convert(model: Transformer, precision: str) -> Transformer:
    """Return a model for evaluation in `precision`. It shares the parameters that are not converted with `model`.

    Later changes of `model` do not reach the converted weights. Raises UsageError for an unknown precision. A model
    whose weights are stored in int8 can only run in int8; any other precision raises UsageError too. In fp32 on a CPU
    there may be a warning (`hardware.expect_reproducible_products`).
    """
    if precision == "fp32" and is_host(model.device):
        expect_reproducible_products()
    if in_int8(model):
        check_int8(precision)
        return fp32(model).eval()  # the weights are converted already
    converted: Transformer = load(PRECISIONS, precision, "precision")(model)
    return converted.eval()


def replace_modules(root: nn.Module, rule: Rule, name: str = "") -> nn.Module:
    """Return a copy of the module tree in which `rule` replaces modules; parameters are shared, not copied."""
    replacement = rule(root, name)
    if replacement is not None:
        return replacement
    new = copy.copy(root)
    new._modules = {
        key: child if child is None else replace_modules(child, rule, f"{name}.{key}".removeprefix("."))
        for key, child in root._modules.items()
    }
    return new


def fp32(model: Transformer) -> Transformer:
    """Return a copy of the module tree, with the same parameters."""
    return cast(Transformer, replace_modules(model, lambda module, name: None))


@torch.inference_mode(False)
@torch.no_grad()
def bf16(model: Transformer) -> Transformer:
    """Return the model with `Bf16Linear` maps."""
    return _rounded(model, Bf16Linear)


@torch.inference_mode(False)
@torch.no_grad()
def fp16(model: Transformer) -> Transformer:
    """Return the model with `Fp16Linear` maps."""
    return _rounded(model, Fp16Linear)


def _rounded(model: Transformer, linear: type[Bf16Linear]) -> Transformer:
    new = cast(
        Transformer,
        replace_modules(
            model, lambda module, _: linear(module.weight, module.bias) if type(module) is nn.Linear else None
        ),
    )
    new.output_projection = linear(model.output_weight, model.output_bias)
    return new


@torch.inference_mode(False)
@torch.no_grad()
def int8(model: Transformer) -> Transformer:
    """Return the model with `Int8Linear` maps; a feed-forward network with ReLU becomes an `Int8FeedForward`."""
    return with_integers(model, integers(model))


def in_int8(model: Transformer) -> bool:
    """Return whether a model is in int8."""
    return isinstance(model.output_projection, Int8Linear)


@torch.no_grad()
def integers(model: Transformer) -> dict[str, Tensor]:
    """Return the integers and scales of an fp32 model for int8, by name: the rounded matrices have the names of their
    parameters.

    NAME.weight of a linear map (d_out, d_in) and embeddings.KEY (V, D) are int8. NAME.scales and embeddings.KEY.scales
    are fp32, with one scale per row.
    """
    state = dict[str, Tensor]()
    for name, matrix in stored_as_integers(model).items():
        state[name], state[name.removesuffix(".weight") + SCALES] = rounded(matrix)
    return state


@torch.inference_mode(False)
@torch.no_grad()
def with_integers(model: Transformer, state: Mapping[str, Tensor]) -> Transformer:
    """Return a copy of the module tree with the matrices and scales of `state`, which `integers` returned.

    All other parameters are those of `model`.
    """

    def linear(module: nn.Linear, name: str) -> Int8Linear:
        return Int8Linear(state[f"{name}.weight"], state[f"{name}.scales"], module.bias)

    def rule(module: nn.Module, name: str) -> nn.Module | None:
        if _has_relu(module):
            inner, outer = (
                linear(cast(nn.Linear, getattr(module, key)), f"{name}.{key}") for key in ("inner", "outer")
            )
            return Int8FeedForward(inner, outer)
        return linear(module, name) if type(module) is nn.Linear else None

    new = cast(Transformer, replace_modules(model, rule))
    tables = {key: (state[f"embeddings.{key}"], state[f"embeddings.{key}.scales"]) for key in model.embeddings}
    new.output_projection = Int8Linear(
        *tables["shared" if model.config.tie_embeddings else "output"], model.output_bias
    )
    tables.pop("output", None)
    new.embeddings = nn.ModuleDict({key: Int8Embedding(*table) for key, table in tables.items()})  # type: ignore[assignment]
    return new


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix (N, D).

    Return its integers in -127 .. 127, int8 (N, D), and one scale per row, fp32 (N,): the value of the integer 1.
    """
    weight = weight.detach()
    scales = torch.maximum(weight.amax(1), -weight.amin(1)).clamp_min(1e-12) / INT8_MAX
    return (weight / scales[:, None]).round().to(torch.int8), scales


def _has_relu(module: nn.Module) -> bool:
    """Return whether a module is a feed-forward network with ReLU. In int8 it becomes an `Int8FeedForward`."""
    return type(module) is FeedForward and type(module.activation) is nn.ReLU


class Bf16Linear(nn.Module):
    """x W^T + b with rows and weight rounded to bf16; fp32 or bf16 in, bf16 out. A sum with fp32 is in fp32.

    Weight and bias follow the module to a device.
    """

    weight: Tensor
    bias: Tensor | None
    attention_dtype = torch.bfloat16
    """The dtype in which a decoder in plain torch stores and multiplies keys and values."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().to(self.attention_dtype), persistent=False)
        self.register_buffer(
            "bias", bias.detach().to(self.attention_dtype) if bias is not None else None, persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map x (…, d_in) to (…, d_out)."""
        return F.linear(x.to(self.attention_dtype), self.weight, self.bias)


class Fp16Linear(Bf16Linear):
    """`Bf16Linear` with fp16 in the place of bf16."""

    attention_dtype = torch.float16


class Int8Linear(nn.Module):
    """x W^T + b with rows and weight in 8 bits; fp32 in, fp32 out.

    `scales` (d_out,) are the value of the integer 1 in each row of the weight. Weight, scales and bias follow the
    module to a device.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None
    attention_dtype = torch.float32
    """Not bf16: on some processors, the sums of bf16 products depend on the shape of the batch."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        """Take `weight` (d_out, d_in) and `scales` (d_out,) as `rounded` returns them."""
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("bias", bias.detach() if bias is not None else None, persistent=False)

    def forward(self, x: Tensor, largest: int = INT8_MAX) -> Tensor:
        """Map x (…, d_in) to (…, d_out). `largest`: see `quantized`."""
        rows, scales = quantized(x, largest)
        y = int8_matmul(rows, self.weight).float() * (scales * self.scales)
        return y if self.bias is None else y + self.bias


class Int8FeedForward(nn.Module):
    """A feed-forward network with ReLU. The inner result is never negative, so it is rounded to uint8."""

    def __init__(self, inner: Int8Linear, outer: Int8Linear) -> None:
        super().__init__()
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        """Map x (…, D) to (…, D)."""
        return self.outer(F.relu(self.inner(x)), UINT8_MAX)  # type: ignore[no-any-return]


def quantized(x: Tensor, most: int = INT8_MAX) -> tuple[Tensor, Tensor]:
    """Round rows x (…, d_in) to integers of at most `most`, ties to even.

    Return them in fp32, and one scale per row, (…, 1).

    A row that is not finite has the scale NaN.
    """
    largest = x.abs().amax(-1, keepdim=True)
    scales, inverse = largest / most, torch.where(largest >= LEAST, most / largest, 0.0)
    finite = largest < math.inf
    rows = torch.where(finite, x * inverse, 0.0).round()
    return rows, torch.where(finite, torch.where(largest >= LEAST, scales, 0.0), math.nan)


def int8_matmul(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows (…, d_in) times weight^T as exact int32 sums, (…, d_out).

    Rows and weight (d_out, d_in) are 8-bit integers.
    """
    parts = zip(torch.split(rows, EXACT_COLUMNS, -1), torch.split(weight, EXACT_COLUMNS, -1), strict=True)
    return torch.stack([(part.float() @ columns.float().T).to(torch.int32) for part, columns in parts]).sum(
        0, dtype=torch.int32
    )


def without_weights(config: ModelSection, source_vocab: int, target_vocab: int) -> Transformer:
    """Return a model without values, which takes no memory."""
    with torch.device("meta"):
        return Transformer(config, source_vocab, target_vocab)


def stored_as_integers(model: Transformer) -> dict[str, Tensor]:
    """Return the matrices of an fp32 model that an int8 folder stores as integers, by name."""
    maps = {f"{name}.weight": module.weight for name, module in model.named_modules() if type(module) is nn.Linear}
    return maps | {f"embeddings.{key}": table for key, table in model.embeddings.items()}


def forms_of_model(model: Transformer, quantized: bool = False) -> dict[str, Form]:
    """Return the forms of the tensors that a folder stores of a model, in fp32 or int8."""
    forms: dict[str, Form] = {name: ("F32", tuple(value.shape)) for name, value in model.state_dict().items()}
    if quantized:
        for name in stored_as_integers(model):
            forms |= {name: ("I8", forms[name][1]), name.removesuffix(".weight") + SCALES: ("F32", forms[name][1][:1])}
    return forms
