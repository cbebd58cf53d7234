"""A CPU's loss over blocks of rows equals the reference implementation, in values and gradients."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from engines import every_engine
from loss_cases import case, close, gradients
from small_models import needs_engine
from torch import Tensor

from nmt_cli.engine.library import library
from nmt_cli.errors import ModelError
from nmt_cli.kernels.cpu_training import loss as kernel
from nmt_cli.kernels.cpu_training.calls import pointer
from nmt_cli.kernels.cpu_training.loss import block_loss
from nmt_cli.training.loss import label_smoothed_loss

pytestmark = needs_engine
Form = tuple[float, float]
FORMS = [(0.0, 0.0), (0.1, 0.0), (0.5, 0.0), (0.0, 2.5), (0.1, 2.5)]  # smoothing, r_drop


def run(function: Any, shape: tuple[int, int, int], form: Form, dtype: torch.dtype, scale: float = 1.0) -> list[Tensor]:
    *given, target = case(*shape, scale)
    hidden, weight = (part.detach().bfloat16().to(dtype).requires_grad_() for part in given)
    loss, nll = function(hidden, weight, target[: shape[0] // 2].repeat(2), *form)
    return [loss, nll, *gradients(loss / 4, hidden, weight)]


@pytest.mark.parametrize("shape", [(2, 4, 2), (40, 16, 101), (32, 5, 257)])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "scale"), [(0.1, 1.0), (1, 1.0), (2, 1.0), (13, 1e3), (100, 1e5)])
def test_values_and_gradients_are_those_of_the_reference(
    shape: tuple[int, int, int], form: Form, rows: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "BLOCK_SCORES", int(rows * shape[2]))
    theirs = run(label_smoothed_loss, shape, form, torch.float64, scale)
    for own, expected in zip(run(block_loss, shape, form, torch.float32, scale), theirs, strict=True):
        close(own, expected)


@pytest.mark.parametrize("form", FORMS)
def test_in_bf16_it_is_no_less_exact_and_bits_depend_on_no_threads_and_no_processor(form: Form) -> None:
    found = [run(block_loss, (40, 16, 257), form, torch.bfloat16, 0.3) for _ in every_engine(kernel)]
    assert all(torch.equal(one, two) for other in found for one, two in zip(found[0], other, strict=True))
    plain, right = (run(label_smoothed_loss, (40, 16, 257), form, d, 0.3) for d in (torch.bfloat16, torch.float64))
    for own, theirs, exact in zip(found[0], plain, right, strict=True):
        assert (own - exact).norm() <= 1.1 * (theirs - exact).norm() + 1e-6 * exact.norm()


def test_a_gradient_that_is_not_needed_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, target = case(40, 16, 101)
    product = Mock(wraps=torch.mm)
    monkeypatch.setattr(torch, "mm", product)
    loss, _ = block_loss(hidden, weight.detach(), target, 0.1)
    with torch.no_grad():
        assert block_loss(hidden, weight, target, 0.1)[0] == loss
    assert product.call_count == 3
    loss, nll = block_loss(hidden[:0], weight, target[:0], 0.1)
    assert loss == nll == 0
    assert not nll.requires_grad
    assert not gradients(loss, hidden, weight)[1].any()


@pytest.mark.parametrize("numbers", [(2, 1, 0, 0, 0), (2, 4, 4, 0, 0), (2, 4, 0, 1, 0), (3, 4, 0, 0, 1)])
def test_wrong_arguments_are_refused(numbers: tuple[int, ...]) -> None:
    rows, size, target, smoothing, divergence = numbers
    targets, memory = torch.full((rows,), target), torch.zeros(12)
    form = kernel._Form(0, rows, size, targets.data_ptr(), smoothing, divergence)
    with pytest.raises(ModelError, match=r"expected|odd"):
        library().nmt_loss_rows(pointer(form), memory.data_ptr(), memory.data_ptr())
