"""The precisions against torch's own linear map, and against each other on a whole model."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.decoding.precision import (
    PRECISIONS,
    STEPS,
    Int8FeedForward,
    Int8Linear,
    available,
    fastest,
    in_steps,
    prepared,
)
from nmt_cli.errors import UsageError
from nmt_cli.model.linear import Linear
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection

NEAR = {"fp32": 1e-5, "bf16": 0.01, "int8": 0.02}
"""Relative to the largest number of the result."""


def needed(precision: str) -> None:
    if not available(precision):
        pytest.skip(f"torch has no {precision} operators here")


def small(norm: str = "post") -> Transformer:
    torch.manual_seed(2)
    config = ModelSection(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=128, num_heads=4, norm=norm)  # type: ignore[arg-type]
    return Transformer(config, 90, 90).eval()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(1, 48), (70, 48), (3, 5, 48)])
@pytest.mark.parametrize("precision", list(PRECISIONS))
@torch.inference_mode()
def test_a_linear_map_is_torchs_but_for_rounding(precision: str, shape: tuple[int, ...], relu: bool) -> None:
    needed(precision)
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(48, 40), torch.randn(shape)
    expected = F.relu(linear(x)) if relu else linear(x)
    found = PRECISIONS[precision](linear.weight, linear.bias, relu, float(x.abs().max()) / STEPS)(x)
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) < NEAR[precision] * float(expected.abs().max())


@torch.inference_mode()
def test_int8_is_whole_numbers_times_steps() -> None:
    """The operator against the same sums in exact integers."""
    needed("int8")
    torch.manual_seed(0)
    weight, bias, x, step = torch.randn(40, 48), torch.randn(40), torch.randn(30, 48), 0.02
    found = Int8Linear(weight, bias, step=step)(x)
    steps = weight.abs().amax(1) / STEPS
    rows, whole = in_steps(x, step).long(), (weight / steps[:, None]).round().long()
    expected = (rows @ whole.T).double() * step * steps.double() + bias.double()
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-5)


def test_what_lies_beyond_the_steps_is_cut_not_wrapped() -> None:
    assert in_steps(torch.tensor([[-9.0, -1.0, 0.004, 0.5, 1.0, 9.0, torch.inf]]), 1 / STEPS).tolist() == [[-128, -127, 1, 64, 127, 127, 127]]


@torch.inference_mode()
def test_int8_feed_forward_is_its_two_maps() -> None:
    needed("int8")
    torch.manual_seed(0)
    first, second, x = torch.nn.Linear(48, 96), torch.nn.Linear(96, 48), torch.randn(30, 48)
    hidden = F.relu(first(x))
    inner = Int8Linear(first.weight, first.bias, True, float(x.abs().max()) / STEPS)
    outer = Int8Linear(second.weight, second.bias, False, float(hidden.max()) / STEPS)
    expected = second(hidden)
    found = Int8FeedForward(inner, outer)(x)
    assert float((found - expected).abs().max()) < 0.03 * float(expected.abs().max())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("precision", list(PRECISIONS))
@torch.inference_mode()
def test_a_model_in_each_precision_is_near_the_model(precision: str, norm: str) -> None:
    needed(precision)
    model = small(norm)
    src, tgt = torch.randint(4, 90, (5, 9)), torch.randint(4, 90, (5, 8))
    expected = model.logits(model(src, None, tgt)).log_softmax(-1)
    fast = prepared(model, precision)
    found = fast.logits(fast(src, None, tgt)).log_softmax(-1)
    assert float((found - expected).abs().max()) < {"fp32": 1e-4, "bf16": 0.06, "int8": 0.3}[precision]


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_preparing_leaves_the_model_alone(precision: str) -> None:
    needed(precision)
    model = small().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fast = prepared(model, precision)
    assert model.training
    assert not fast.training
    assert type(model.encoder[0].feed_forward.inner) is Linear
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_preparing_twice_gives_the_same_numbers() -> None:
    needed("int8")
    x = torch.randn(4, 64)
    assert torch.equal(prepared(small(), "int8").logits(x), prepared(small(), "int8").logits(x))


def test_int8_where_it_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.decoding.precision.platform.machine", lambda: "aarch64")
    assert not available("int8")
    with pytest.raises(UsageError, match="int8 needs an x86 CPU"):
        prepared(small(), "int8")


def test_the_fastest_precision_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (({"avx2"}, {"fp32"}), ({"avx512_bf16"}, {"bf16"}), ({"avx512_vnni", "avx512_bf16"}, {"int8", "bf16"})):
        monkeypatch.setattr("nmt_cli.decoding.precision.cpu_flags", lambda flags=flags: flags)
        monkeypatch.setattr("nmt_cli.hardware.cpu_flags", lambda flags=flags: flags)
        assert fastest("cpu") in expected
