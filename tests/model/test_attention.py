"""Attention against equation (1) written as loops, torch's fused kernel and torch's nn.MultiheadAttention."""

import math

import pytest
import torch
from torch import Tensor

from nmt_cli.model.attention import SelfAttention, attend, attend_plain
from nmt_cli.model.transformer import attention_mask
from nmt_cli.recipe import ModelSection

B, H, T, S, K, W = 3, 2, 5, 7, 4, 6
LENGTHS = torch.tensor([7, 1, 4])


def looped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Equation (1), one number at a time, in Python's floats."""
    out = torch.zeros(*query.shape[:3], value.size(3))
    for b in range(query.size(0)):
        for h in range(query.size(1)):
            for t in range(query.size(2)):
                seen = [
                    s for s in range(key.size(2)) if (mask is None or bool(mask[b, 0, 0, s])) and not (causal and s > t)
                ]
                scores = [math.fsum((query[b, h, t] * key[b, h, s]).tolist()) / math.sqrt(query.size(3)) for s in seen]
                shares = [math.exp(score - max(scores)) for score in scores]
                for s, share in zip(seen, shares, strict=True):
                    out[b, h, t] += share / sum(shares) * value[b, h, s]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("targets", "sources"), [(T, S), (S, S), (1, S)])
def test_both_ways_of_attending_follow_equation_1(targets: int, sources: int, masked: bool, causal: bool) -> None:
    torch.manual_seed(3)
    query, key, value = (torch.randn(B, H, *size) for size in ((targets, K), (sources, K), (sources, W)))
    mask = attention_mask(LENGTHS, sources) if masked else None
    expected = looped(query, key, value, mask, causal)
    torch.testing.assert_close(attend_plain(query, key, value, mask, causal), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(attend(query, key, value, mask, causal), expected, atol=1e-6, rtol=1e-5)


def test_heads_take_their_own_sizes() -> None:
    """Two heads of d_k 3 and d_v 5 in a model of width 8, by hand: split, attend, join, project."""
    torch.manual_seed(6)
    module = SelfAttention(ModelSection(d_model=8, num_heads=2, d_k=3, d_v=5))
    x = torch.randn(1, 4, 8)
    all_three = module.query_key_value(x)[0]
    queries, keys, values = all_three[:, :6], all_three[:, 6:12], all_three[:, 12:22]
    heads = []
    for head in range(2):
        q, k = (each[:, 3 * head : 3 * head + 3] for each in (queries, keys))
        v = values[:, 5 * head : 5 * head + 5]
        heads.append(torch.softmax(q @ k.T / math.sqrt(3), -1) @ v)
    torch.testing.assert_close(module(x, None)[0], module.output(torch.cat(heads, -1)))
    assert module.output.weight.shape == (8, 10)


def test_each_projection_is_drawn_as_a_matrix_of_its_own() -> None:
    """Glorot's bound for (64, 64) is sqrt(6 / 128); for the joined (192, 64) it would be sqrt(6 / 256)."""
    torch.manual_seed(7)
    weight = SelfAttention(ModelSection(d_model=64, num_heads=4)).query_key_value.weight
    bound = math.sqrt(6 / 128)
    for part in weight.split(64):  # type: ignore[no-untyped-call]
        assert 0.99 * bound < part.abs().max().item() <= bound
