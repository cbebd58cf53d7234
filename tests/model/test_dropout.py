"""Dropout is on embedding sums and sub-layer outputs, and nowhere else (section 5.4)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.model.residuals import DropoutAdd
from nmt_cli.model.transformer import Transformer, attention_mask
from nmt_cli.recipe import ModelSection


def model_and_input(residual: str) -> tuple[Transformer, tuple[Tensor, Tensor | None, Tensor]]:
    torch.manual_seed(10)
    config = ModelSection(encoder_layers=2, decoder_layers=3, d_model=16, d_ff=32, num_heads=2, dropout=0.4, residual=residual)
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

    sums = [model.output_weight[ids] * 4 + positions(ids.size(1)) for ids, positions in ((batch[0], model.source_positions), (batch[2], model.target_positions))]  # sqrt(16)
    assert len(inputs) == 2 + 2 * 2 + 3 * 3
    torch.testing.assert_close(inputs.pop(0), sums[0])
    torch.testing.assert_close(inputs.pop(2 * 2), sums[1])
    assert all(dropped is output for dropped, output in zip(inputs, outputs, strict=True))


def test_without_dropout_training_computes_what_evaluation_does() -> None:
    model, batch = model_and_input("post")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    assert torch.equal(model.train()(*batch), model.eval()(*batch))


def test_training_differs_from_run_to_run_and_evaluation_does_not() -> None:
    model, batch = model_and_input("post")
    assert not torch.equal(model.train()(*batch), model(*batch))
    assert torch.equal(model.eval()(*batch), model(*batch))


def test_the_residual_stream_is_not_dropped() -> None:
    torch.manual_seed(1)
    x, y = torch.ones(1000), torch.ones(1000)
    found = DropoutAdd(0.5).train()(x, y)
    assert set(found.tolist()) == {1.0, 3.0}
