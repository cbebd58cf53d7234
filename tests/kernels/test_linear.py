"""The precisions against torch's own linear map, and against each other on a whole model."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.search import SearchOptions
from nmt_cli.errors import UsageError
from nmt_cli.kernels.cpu_decoding import decoder as native
from nmt_cli.kernels.cpu_decoding import linear as module
from nmt_cli.kernels.cpu_decoding.decoder import Layers, NativeDecoder
from nmt_cli.kernels.cpu_decoding.linear import (
    FEW_ROWS,
    PRECISIONS,
    STEPS,
    Int8FeedForward,
    Int8Linear,
    available,
    fastest,
    few_rows_work,
    in_steps,
    prepared,
)
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
    monkeypatch.setattr("nmt_cli.kernels.cpu_decoding.linear.platform.machine", lambda: "aarch64")
    assert not available("int8")
    with pytest.raises(UsageError, match="int8 needs an x86 CPU"):
        prepared(small(), "int8")


def test_the_fastest_precision_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (({"avx2"}, {"fp32"}), ({"avx512_bf16"}, {"bf16"}), ({"avx512_vnni", "avx512_bf16"}, {"int8", "bf16"})):
        monkeypatch.setattr("nmt_cli.kernels.cpu_decoding.linear.cpu_flags", lambda flags=flags: flags)
        monkeypatch.setattr("nmt_cli.hardware.cpu_flags", lambda flags=flags: flags)
        assert fastest("cpu") in expected


def few_rows() -> None:
    if not available("int8") or not few_rows_work():
        pytest.skip("few rows have no product of their own on this processor")


@pytest.mark.parametrize(("d_in", "d_out"), [(512, 512), (512, 2048), (2048, 512), (512, 8011), (132, 33), (32, 1000), (16, 1000), (70, 300)])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_give_the_bits_of_many(d_in: int, d_out: int, bias: bool) -> None:
    """Signed rows and unsigned, in fp32 and in 8 bits, with max(0, .) and without, at both ends of the range."""
    few_rows()
    generator = torch.Generator().manual_seed(d_in)
    weight, added, x = torch.randn(d_out, d_in, generator=generator), torch.randn(d_out, generator=generator), 3 * torch.randn(4 * FEW_ROWS, d_in, generator=generator)
    x[1], x[2] = 1e9, -1e9
    for relu in (False, True):
        linear = Int8Linear(weight, added if bias else None, relu, 0.0307)
        signed = in_steps(x, linear.step)
        for rows in (signed, signed.view(torch.uint8)):
            for out_step, dtype in ((1.0, torch.float32), (0.0173, torch.uint8)):
                many = linear.product(rows, out_step, dtype)
                for count in range(1, FEW_ROWS + 1):
                    assert torch.equal(linear.product(rows[:count], out_step, dtype), many[:count])


def test_few_rows_do_not_go_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows()
    linear = Int8Linear(torch.randn(48, 64), None, step=0.1)
    monkeypatch.setattr(linear, "operator", lambda *_: pytest.fail("oneDNN was asked"))
    assert linear(torch.randn(FEW_ROWS, 64)).shape == (FEW_ROWS, 48)
    with pytest.raises(pytest.fail.Exception):
        linear(torch.randn(FEW_ROWS + 1, 64))


@pytest.mark.parametrize("works", [False, True])
def test_few_rows_change_no_bit_of_a_translation(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows()
    model = prepared(small(), "int8")
    if not works:
        monkeypatch.setattr(module, "few_rows_work", lambda: False)
        monkeypatch.setattr(native, "few_rows_work", lambda: False)
    layers = Layers.of(model)
    assert layers is not None
    assert layers.few == (FEW_ROWS if works else 0)
    options, sources = SearchOptions(beam=2, alpha=0.6, bos=2, eos=3, banned_tokens=(0, 1, 2)), [[5, 6, 7, 3], [8, 9, 3], [10, 3], [11, 12, 13, 14, 3], [15, 3], [16, 17, 3]]
    alone = [beam_search(NativeDecoder(layers, [source], 2), torch.tensor([9]), options)[0] for source in sources]
    assert alone == beam_search(NativeDecoder(layers, sources, 2), torch.full((6,), 9), options)
