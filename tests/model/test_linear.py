"""The fused linear layer against torch's own: values and gradients, and where it serves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmt_cli.model.linear import Linear, fused_is_there


def layer(relu: bool, dtype: torch.dtype) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    made = Linear(48, 80, relu)
    nn.init.normal_(made.bias)
    return made.to(dtype), torch.randn(64, 48).to(dtype), torch.randn(64, 80).to(dtype)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_torchs(relu: bool, dtype: torch.dtype) -> None:
    made, x, wanted = layer(relu, dtype)
    plain = F.linear(x.float(), made.weight.float(), made.bias.float())
    expected = F.relu(plain) if relu else plain
    tolerance = 1e-5 if dtype == torch.float32 else 0.01
    x.requires_grad_()
    ours = made(x)
    assert ours.dtype == dtype
    assert (ours.float() - expected).norm() <= tolerance * expected.norm()
    found = torch.autograd.grad((ours * wanted).float().sum(), (x, made.weight, made.bias))
    exact = [part.detach().float().requires_grad_() for part in (x, made.weight, made.bias)]
    plain = F.linear(exact[0], exact[1], exact[2])
    theirs = torch.autograd.grad(((F.relu(plain) if relu else plain) * wanted.float()).sum(), exact)
    for ours, other in zip(found, theirs, strict=True):
        assert ours.dtype == dtype
        assert (ours.float() - other).norm() <= 3 * tolerance * other.norm()


@pytest.mark.skipif(not fused_is_there(), reason="this torch has no fused kernel for this CPU")
def test_the_fused_kernel_serves_rows_in_bf16_while_training() -> None:
    made, x, _ = layer(True, torch.bfloat16)
    assert "Fused" in type(made(x).grad_fn).__name__
    assert "Fused" not in type(made(x[None]).grad_fn).__name__
    assert "Fused" not in type(made.float()(x.float()).grad_fn).__name__
    with torch.no_grad():
        assert made(x.float()).grad_fn is None


def test_asking_for_the_kernel_draws_no_random_numbers() -> None:
    fused_is_there.cache_clear()
    before = torch.get_rng_state()
    fused_is_there()
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_an_nn_linear_to_whoever_saves_it() -> None:
    assert Linear(3, 4).state_dict().keys() == nn.Linear(3, 4).state_dict().keys()
