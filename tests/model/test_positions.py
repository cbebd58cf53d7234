"""Rotary positions against Hugging Face's RoFormer, and what they are for: only distances count."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.errors import RecipeError
from nmt_cli.model.attention import SelfAttention
from nmt_cli.model.positions import rotated
from nmt_cli.recipe import ModelSection, Recipe


def test_rotations_are_roformers() -> None:
    roformer = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    torch.manual_seed(1)
    query, key = torch.randn(2, 3, 20, 16), torch.randn(2, 3, 20, 16)
    table = roformer.RoFormerSinusoidalPositionalEmbedding(20, 16)
    table.weight = torch.nn.Parameter(
        table.create_weight() if hasattr(table, "create_weight") else table._init_weight(table.weight)
    )
    theirs = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(
        table(torch.Size((2, 20)))[None, None], query, key
    )
    for ours, expected in zip((rotated(query, torch.arange(20)), rotated(key, torch.arange(20))), theirs, strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_sequence_that_is_moved_attends_alike() -> None:
    torch.manual_seed(1)
    attention = SelfAttention(ModelSection(d_model=16, d_ff=8, num_heads=2, positions="rotary"))
    x = torch.randn(2, 7, 16)
    torch.testing.assert_close(attention(x, None, True, start=100), attention(x, None, True), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(attention(x.flip(1), None).flip(1), attention(x, None), atol=1e-3)  # but the order counts


def test_half_a_pair_cannot_be_rotated() -> None:
    model = {"d_model": 12, "num_heads": 4, "positions": "rotary"}
    values = {"data": {"train_source": ["a"], "train_target": ["b"]}, "model": model}
    with pytest.raises(RecipeError, match="heads of 3 numbers are odd"):
        Recipe.from_dict(values, "test")
