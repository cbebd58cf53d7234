"""SSRU: the published formula, a position at a time, and what packing and recurrence must not change."""

from __future__ import annotations

import pytest
import torch
from small_models import section
from torch import Tensor

from nmt_cli.model.ssru import SSRU, states_of

D = 6


def by_formula(unit: SSRU, x: Tensor) -> Tensor:
    """One sequence x (T, D), as the paper writes it."""
    w, w_f = unit.candidate_forget.weight.split(D)  # type: ignore[no-untyped-call]
    c, outputs = torch.zeros(D), []
    for x_t in x:
        f = 1 / (1 + torch.exp(-(w_f @ x_t + unit.forget_bias)))
        c = f * c + (1 - f) * (w @ x_t)
        outputs.append(torch.clamp(c, min=0))
    return torch.stack(outputs)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 37])
def test_outputs_and_gradients_are_those_of_the_formula(length: int) -> None:
    torch.manual_seed(length)
    unit, x, wanted = SSRU(section(d_model=D)), torch.randn(2, length, D, requires_grad=True), torch.randn(2, length, D)
    torch.nn.init.normal_(unit.forget_bias)
    found, expected = unit(x), torch.stack([by_formula(unit, row) for row in x])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    ours, theirs = (torch.autograd.grad((y * wanted).sum(), [x, *unit.parameters()]) for y in (found, expected))
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)


def test_sequences_that_follow_one_another_do_not_mix() -> None:
    kept, added = torch.rand(9, D), torch.randn(9, D)
    kept[[0, 4, 5]] = 0
    parts = [states_of(kept[a:b], added[a:b], b - a) for a, b in ((0, 4), (4, 5), (5, 9))]
    assert torch.equal(states_of(kept, added, 4), torch.cat(parts))
