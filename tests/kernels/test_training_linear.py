"""The fused linear maps against torch's own: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmt_cli.kernels.cpu_training.linear import FusedLinear, has_fused_linear, supports
from nmt_cli.model.layers import FeedForward
from nmt_cli.recipe import ModelSection


def layer(relu: bool, dtype: torch.dtype) -> tuple[FusedLinear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80)
    nn.init.normal_(linear.bias)
    return FusedLinear(linear.to(dtype), relu), torch.randn(64, 48).to(dtype), torch.randn(64, 80).to(dtype)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_torchs(relu: bool, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not has_fused_linear():
        pytest.skip("this torch has no fused linear map for this processor")
    fused, x, direction = layer(relu, dtype)
    plain = F.linear(x.float(), fused.weight.float(), fused.bias.float())
    expected = F.relu(plain) if relu else plain
    tolerance = 1e-5 if dtype == torch.float32 else 0.01
    x.requires_grad_()
    ours = fused(x)
    assert ours.dtype == dtype
    assert (ours.float() - expected).norm() <= tolerance * expected.norm()
    gradients = torch.autograd.grad((ours * direction).float().sum(), (x, fused.weight, fused.bias))
    exact = [part.detach().float().requires_grad_() for part in (x, fused.weight, fused.bias)]
    plain = F.linear(exact[0], exact[1], exact[2])
    theirs = torch.autograd.grad(((F.relu(plain) if relu else plain) * direction.float()).sum(), exact)
    for own, other in zip(gradients, theirs, strict=True):
        assert own.dtype == dtype
        assert (own.float() - other).norm() <= 3 * tolerance * other.norm()


def test_it_supports_relu_alone() -> None:
    relu, gelu = (
        FeedForward(ModelSection(d_model=8, d_ff=16, num_heads=2, activation=name)) for name in ("relu", "gelu")
    )
    assert supports(nn.Linear(3, 4)) == supports(relu)
    assert supports(relu) == ("" if has_fused_linear() else "this torch has no fused linear map for this processor")
    assert supports(gelu) == "activation 'GELU' has no kernel"


def test_asking_for_the_kernel_draws_no_random_numbers() -> None:
    has_fused_linear.cache_clear()
    before = torch.get_rng_state()
    has_fused_linear()
    assert torch.equal(torch.get_rng_state(), before)
