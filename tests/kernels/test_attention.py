"""Attention over short sequences against equation (1) written out: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt_cli.kernels.cpu_training import attention
from nmt_cli.kernels.cpu_training.attention import attend_short, supports
from nmt_cli.model.attention import CrossAttention, SelfAttention, attend_plain
from nmt_cli.model.transformer import attention_mask
from nmt_cli.recipe import ModelSection

B, H, S, K, W = 3, 2, 7, 5, 6
LENGTHS = torch.tensor([7, 4, 1])


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(B, H, S, size, generator=generator) for size in (K, K, W)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_values_and_gradients_of_equation_1(
    masked: bool, causal: bool, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if long:
        monkeypatch.setattr(attention, "SHORT", 1)
    mask, direction = attention_mask(LENGTHS, S) if masked else None, torch.randn(B, H, S, W)
    results = []
    for function in (attend_short, attend_plain):
        parts = [x.clone().requires_grad_() for x in inputs()]
        out = function(parts[0], parts[1], parts[2], mask, causal)
        results.append((out, *torch.autograd.grad((out * direction).sum(), parts)))
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)


def test_in_bf16_only_the_products_are_rounded() -> None:
    """Against equation (1) in fp32 on the same rounded inputs: within two roundings, values and gradients."""
    rounded = [x.bfloat16() for x in inputs()]
    mask, direction = attention_mask(LENGTHS, S), torch.randn(B, H, S, W)
    results = []
    for function, dtype in ((attend_short, torch.bfloat16), (attend_plain, torch.float32)):
        parts = [x.to(dtype).requires_grad_() for x in rounded]
        out = function(parts[0], parts[1], parts[2], mask, True)
        assert out.dtype == dtype
        results.append((out, *torch.autograd.grad((out.float() * direction).sum(), parts)))
    for fast, exact in zip(*results, strict=True):
        assert (fast.float() - exact).norm() <= 0.01 * exact.norm()


def test_it_supports_attention_as_the_model_builds_it() -> None:
    config = ModelSection(d_model=8, num_heads=2)

    class Windowed(SelfAttention):
        pass

    assert supports(SelfAttention(config)) == supports(CrossAttention(config)) == ""
    assert supports(Windowed(config)) == "attention 'Windowed' has no kernel"
    other = SelfAttention(config)
    other.attend = attend_plain
    assert supports(other) != ""
