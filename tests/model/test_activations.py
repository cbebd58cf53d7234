"""Activations against the modules of torch and of Hugging Face's transformers, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.model.layers import FeedForward
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS


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


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_the_recipe_counts_its_parameters(name: str) -> None:
    config = ModelSection(encoder_layers=2, decoder_layers=1, d_model=8, d_ff=24, num_heads=2, activation=name)
    matrices = [one for one in Transformer(config, 30, 30).parameters() if one.dim() > 1]
    assert config.parameters(30, 30) == sum(one.numel() for one in matrices)
