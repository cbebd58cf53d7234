"""Activations with bias and dropout in the engine equal torch's, forward and backward."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from engines import every_engine
from small_models import needs_engine
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.engine.library import library
from nmt_cli.errors import ModelError
from nmt_cli.kernels.cpu_training import activation as kernel
from nmt_cli.kernels.cpu_training.activation import activation, kind_of
from nmt_cli.kernels.cpu_training.calls import Dropout, Rows, pointer
from nmt_cli.model.activations import SwiGLU
from nmt_cli.recipe import ModelSection

pytestmark = needs_engine
FUNCTIONS: dict[str, Any] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": SwiGLU(ModelSection())}
N = 130
DROPOUT = Dropout(1, 2, 3, 0.3, Rows(torch.arange(N, dtype=torch.int32) // 20, torch.arange(N, dtype=torch.int32) % 20))


def case(kind: str, size: int) -> list[Tensor]:
    """x, bias and a gradient. No x + bias is near 0, where ReLU has a bend, but in row 3 all are 0."""
    generator = torch.Generator().manual_seed(size)
    columns = 2 * size if kind == "swiglu" else size
    x, bias, grad = (torch.randn(shape, generator=generator) for shape in ((N, columns), (columns,), (N, size)))
    x += 0.1 * (x + bias).sign()
    x[3] = -bias
    return [x, bias, grad]


def run(function: Callable[[Tensor, Tensor], Tensor], case: Iterable[Tensor], dtype: torch.dtype) -> list[Tensor]:
    x, bias, grad = (part.to(dtype).requires_grad_() for part in case)
    out = function(x, bias)
    return [out, *torch.autograd.grad(out, (x, bias), grad)]


def fused(kind: str, dropout: Dropout | None = DROPOUT) -> Callable[[Tensor, Tensor | None], Tensor]:
    return lambda x, bias: activation(kind, x, bias, dropout)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("size", [7, 128, 200])
@pytest.mark.parametrize("dropout", [None, DROPOUT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_torchs(kind: str, size: int, dropout: Dropout | None, dtype: torch.dtype) -> None:
    given, mask = [part.to(dtype) for part in case(kind, size)], fused("relu", dropout)(torch.ones(N, size), None)
    plain = lambda x, bias: FUNCTIONS[kind](x + bias) * mask.to(x)  # noqa: E731
    ours, *others = (run(fused(kind, dropout), given, dtype) for _ in every_engine(kernel))
    for own, torchs, exact in zip(ours, run(plain, given, dtype), run(plain, given, torch.float64), strict=True):
        assert (own - exact).norm() <= 1.1 * (torchs - exact).norm() + 3e-7 * exact.norm()
    assert all(torch.equal(one, two) for other in others for one, two in zip(ours, other, strict=True))
    assert torch.equal(fused(kind, dropout)(given[0], None), fused(kind, dropout)(given[0], 0 * given[1]))


def test_a_mask_is_that_of_the_rows_pair_and_position() -> None:
    flipped = Dropout(1, 2, 3, 0.3, Rows(DROPOUT.rows.pairs.flip(0), DROPOUT.rows.positions.flip(0)))
    mask, of_flipped = (fused("relu", dropout)(torch.ones(N, 200), None) for dropout in (DROPOUT, flipped))
    assert torch.unique(mask).tolist() == [0.0, pytest.approx(1 / 0.7, abs=1e-5)]
    assert (mask == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(of_flipped, mask.flip(0))


@pytest.mark.parametrize(("dtype", "rows", "kind", "x"), [(2, 1, 0, 1), (0, -1, 0, 1), (0, 1, 4, 1), (0, 1, 0, 0)])
def test_wrong_arguments_are_refused(dtype: int, rows: int, kind: int, x: int) -> None:
    form = kernel._Form(dtype, rows, 8, kind, x)
    with pytest.raises(ModelError, match=r"dtype 2|rows is -1|activation is 4|x is NULL"):
        library().nmt_activation_forward(pointer(form), 1)


def test_other_modules_have_no_kind() -> None:
    modules = nn.ReLU(), nn.GELU(), nn.SiLU(), FUNCTIONS["swiglu"], nn.GELU("tanh"), nn.Tanh()
    assert [kind_of(module) for module in modules] == [*FUNCTIONS, "", ""]
