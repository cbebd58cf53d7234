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
@pytest.mark.parametrize("short", [1, attention.SHORT])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)])
def test_values_and_gradients_of_equation_1(
    masked: bool, causal: bool, short: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16 only the products are rounded: within two roundings of equation (1) in fp32 on the same inputs."""
    monkeypatch.setattr(attention, "SHORT", short)
    mask, direction = attention_mask(LENGTHS, S) if masked else None, torch.randn(B, H, S, W)
    results = []
    for function, kind in ((attend_short, dtype), (attend_plain, torch.float32)):
        parts = [x.to(dtype).to(kind).requires_grad_() for x in inputs()]
        out = function(parts[0], parts[1], parts[2], mask, causal)
        assert out.dtype == kind
        results.append((out, *torch.autograd.grad((out.float() * direction).sum(), parts)))
    for fast, plain in zip(*results, strict=True):
        assert (fast.float() - plain).norm() <= tolerance * plain.norm()


def test_it_supports_attention_as_the_model_builds_it() -> None:
    config = ModelSection(d_model=8, num_heads=2)

    class Windowed(SelfAttention):
        pass

    assert supports(SelfAttention(config)) == supports(CrossAttention(config)) == ""
    assert supports(Windowed(config)) == "attention 'Windowed' has no kernel"
    other = SelfAttention(config)
    other.attend = attend_plain
    assert supports(other) != ""
