"""Activations and rotary positions against the modules of torch and of Hugging Face's transformers, with the same
weights; SSRU against the published formula, a position at a time.
"""

import pytest
import torch
from small_models import section
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.errors import RecipeError
from nmt_cli.model.attention import SelfAttention
from nmt_cli.model.layers import FeedForward
from nmt_cli.model.positions import rotated
from nmt_cli.model.ssru import SSRU, states_of
from nmt_cli.recipe import ModelSection, Recipe


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_a_feed_forward_network_is_torchs_functions_in_a_row(name: str) -> None:
    torch.manual_seed(1)
    ours, x = FeedForward(ModelSection(d_model=8, d_ff=24, num_heads=2, activation=name)), torch.randn(5, 8)
    torch.testing.assert_close(ours(x), ours.outer(getattr(F, name)(F.linear(x, ours.inner.weight, ours.inner.bias))))


def test_swiglu_is_llamas() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    configuration = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=8, intermediate_size=24, num_attention_heads=2, mlp_bias=True, hidden_act="silu"
    )
    torch.manual_seed(1)
    ours = FeedForward(ModelSection(d_model=8, d_ff=24, num_heads=2, activation="swiglu"))
    theirs = llama.LlamaMLP(configuration)
    torch.nn.init.normal_(ours.inner.bias)
    for number, part in enumerate((theirs.gate_proj, theirs.up_proj)):
        part.load_state_dict({"weight": ours.inner.weight.chunk(2)[number], "bias": ours.inner.bias.chunk(2)[number]})
    theirs.down_proj.load_state_dict(ours.outer.state_dict())
    x = torch.randn(5, 8)
    torch.testing.assert_close(ours(x), theirs(x))


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
