"""Dropout is on embedding sums and sub-layer outputs, and nowhere else (section 5.4), unless a recipe asks for more."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.model.attention import SelfAttention
from nmt_cli.model.transformer import Transformer, attention_mask
from nmt_cli.recipe import ModelSection


def model_and_input(residual: str) -> tuple[Transformer, tuple[Tensor, Tensor | None, Tensor]]:
    torch.manual_seed(10)
    config = ModelSection(
        encoder_layers=2, decoder_layers=3, d_model=16, d_ff=32, num_heads=2, dropout=0.4, residual=residual
    )
    model = Transformer(config, 20, 20)
    return model, (torch.randint(4, 20, (2, 6)), attention_mask(torch.tensor([6, 4]), 6), torch.randint(4, 20, (2, 5)))


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_dropout_applies_to_embedding_sums_and_sub_layer_outputs_and_nothing_else(residual: str) -> None:
    model, batch = model_and_input(residual)
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            assert module.p == 0.4
            module.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        if name.split(".")[-1] in ("self_attention", "cross_attention", "feed_forward"):
            module.register_forward_hook(lambda _, __, output: outputs.append(output))
    model.train()(*batch)

    sums = [
        model.output_weight[ids] * 4 + positions(ids.size(1))
        for ids, positions in ((batch[0], model.source_positions), (batch[2], model.target_positions))
    ]  # sqrt(16)
    assert len(inputs) == 2 + 2 * 2 + 3 * 3
    torch.testing.assert_close(inputs.pop(0), sums[0])
    torch.testing.assert_close(inputs.pop(2 * 2), sums[1])
    assert all(dropped is output for dropped, output in zip(inputs, outputs, strict=True))


def test_dropout_on_attention_weights_drops_whole_weights() -> None:
    """Values of one: a query's result is the sum of its weights that stay, each 1 / (1 - p) times as large. No evaluation drops any."""
    torch.manual_seed(1)
    attention = SelfAttention(ModelSection(d_model=64, num_heads=1, d_ff=8, attention_dropout=0.25))
    ones = torch.ones(1, 1, 2000, 64)
    query = torch.zeros(1, 1, 2000, 64)  # equal weights
    sums = attention.train().attended(query, query, ones)[0, 0, :, 0]
    assert sums.mean() == pytest.approx(1.0, abs=0.01)
    assert sums.std() == pytest.approx((0.25 / 0.75 / 2000) ** 0.5, rel=0.1)
    torch.testing.assert_close(attention.eval().attended(query, query, ones), ones)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_dropout_inside_the_feed_forward_network_follows_the_activation(precision: torch.dtype) -> None:
    torch.manual_seed(1)
    config = ModelSection(
        encoder_layers=1, decoder_layers=1, d_model=16, d_ff=4096, num_heads=2, dropout=0.0, activation_dropout=0.4
    )
    model = Transformer(config, 8, 8).to(precision)
    seen: list[Tensor] = []
    feed_forward: Any = model.encoder[0].feed_forward
    hook = feed_forward.outer.register_forward_pre_hook(lambda _, given: seen.append(given[0].float()))
    x = torch.randn(8, 16, dtype=precision)
    feed_forward.eval()(x)
    feed_forward.train()(x)
    hook.remove()
    plain, dropped = seen[-2:]
    assert (plain >= 0).all()
    kept = dropped[plain > 0.05] / plain[plain > 0.05]
    assert kept.eq(0).float().mean() == pytest.approx(0.4, abs=0.02)
    torch.testing.assert_close(kept[kept > 0], torch.full_like(kept[kept > 0], 1 / 0.6), rtol=0.02, atol=0)
