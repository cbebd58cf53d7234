"""The linear maps for decoding against those in plain torch (model/precision.py); skipped where oneDNN has none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.search import SearchOptions
from nmt_cli.kernels import apply_kernels, fastest_precision, onednn
from nmt_cli.kernels.cpu_decoding import decoder as native
from nmt_cli.kernels.cpu_decoding import linear as module
from nmt_cli.kernels.cpu_decoding.decoder import NativeDecoder
from nmt_cli.kernels.cpu_decoding.linear import (
    FEW_ROWS,
    PackedBf16Linear,
    PackedInt8FeedForward,
    PackedInt8Linear,
    PackedLinear,
    few_rows_work,
    packed,
    quantized,
    replace_linear,
    supports,
)
from nmt_cli.model.layers import FeedForward
from nmt_cli.model.precision import INT8_MAX, Bf16Linear, Int8FeedForward, Int8Linear, convert, quantize
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import PRECISIONS

CPU = torch.device("cpu")
needs_int8 = pytest.mark.skipif(not onednn.has_int8_linear(), reason="oneDNN has no int8 linear map for this processor")
needs_vnni = pytest.mark.skipif(fastest_precision("cpu") != "int8", reason="this processor has no instruction for 8-bit products")
needs_fp32 = pytest.mark.skipif(not onednn.has_fp32_linear(), reason="oneDNN has no linear map for this processor")
needs_few_rows = pytest.mark.skipif(not onednn.has_int8_linear() or not few_rows_work(), reason="few rows have no function of their own on this processor")


def small(**changes: str) -> Transformer:
    torch.manual_seed(2)
    return Transformer(ModelSection(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=128, num_heads=4, **changes), 90, 90).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 48), (70, 48), (3, 5, 48)])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@torch.inference_mode()
def test_a_linear_map_is_that_of_plain_torch(precision: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(48, 40), torch.randn(shape)
    plain = {"fp32": linear, "bf16": Bf16Linear(linear.weight, linear.bias), "int8": Int8Linear(linear.weight, linear.bias, float(x.abs().max()) / INT8_MAX)}[precision]
    if reason := supports(plain, CPU):
        pytest.skip(reason)
    torch.testing.assert_close(packed(plain)(x), plain(x), atol=0.02 if precision == "bf16" else 1e-5, rtol=1e-5)


@needs_int8
@torch.inference_mode()
def test_int8_is_integers_times_scales() -> None:
    torch.manual_seed(0)
    linear, x = Int8Linear(torch.randn(40, 48), torch.randn(40), 0.02), torch.randn(30, 48)
    torch.testing.assert_close(PackedInt8Linear(linear)(x), linear(x), atol=1e-5, rtol=1e-6)


@needs_vnni
@pytest.mark.parametrize("unsigned", [False, True])
@torch.inference_mode()
def test_signed_rows_may_be_multiplied_as_unsigned_ones(unsigned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows, weight = torch.randint(-128, 128, (30, 48), dtype=torch.int8), torch.randint(-127, 128, (40, 48), dtype=torch.int8)
    rows[0], weight[0] = -128, 127
    monkeypatch.setattr(onednn, "multiplies_unsigned_only", lambda: unsigned)
    ours = onednn.int8_linear(rows, 0.5, onednn.int8_reorder(weight), torch.full((40,), 0.25), torch.zeros(40, dtype=torch.int64), None, False, 1.0, torch.float32)
    assert torch.equal(ours, F.linear(rows.float(), weight.float()) * 0.125)


@needs_vnni
def test_int8_rows_do_not_take_onednns_reference_loop() -> None:
    script = (
        "import torch; from nmt_cli.kernels import onednn\n"
        "weight = onednn.int8_reorder(torch.ones(40, 48, dtype=torch.int8))\n"
        "for dtype in (torch.int8, torch.uint8):\n"
        "    onednn.int8_linear(torch.ones(30, 48, dtype=dtype), 1.0, weight, torch.ones(40), torch.zeros(40, dtype=torch.int64), None, False, 1.0, torch.float32)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "ONEDNN_VERBOSE": "1"}).stdout
    products = [line.split(",")[6] for line in said.splitlines() if ",exec," in line and ",matmul," in line]
    assert len(products) == 2
    assert not any(name.startswith("ref") for name in products), products


def test_quantizing_in_one_pass_gives_the_same_integers() -> None:
    x = 3 * torch.randn(50, 33)
    x[0, :3] = torch.tensor([9.0, -9.0, torch.inf])
    assert (quantized(x, 0.02).int() - quantize(x, 0.02).int()).abs().max() <= 1
    assert quantized(x, 0.02)[0, :3].tolist() == [127, -128, 127]


@needs_int8
@torch.inference_mode()
def test_an_int8_feed_forward_network_is_that_of_plain_torch() -> None:
    torch.manual_seed(0)
    first, second, x = nn.Linear(48, 96), nn.Linear(96, 48), torch.randn(30, 48)
    inner = Int8Linear(first.weight, first.bias, float(x.abs().max()) / INT8_MAX)
    outer = Int8Linear(second.weight, second.bias, float(F.relu(first(x)).max()) / INT8_MAX)
    plain = Int8FeedForward(inner, outer)
    fast = PackedInt8FeedForward(PackedInt8Linear(inner, relu=True), PackedInt8Linear(outer))
    torch.testing.assert_close(fast(x), plain(x), atol=0.02, rtol=0.0)


def test_what_no_map_supports_is_declined_with_the_reason() -> None:
    gelu = FeedForward(ModelSection(d_model=8, d_ff=16, num_heads=2, activation="gelu"))
    assert supports(gelu, CPU) == "activation 'GELU' has no kernel"
    assert supports(nn.Bilinear(2, 2, 2), CPU) == "linear map 'Bilinear' has no kernel"
    assert supports(nn.Linear(2, 2), torch.device("meta")) == "device 'meta' has no kernel"


@needs_fp32
def test_a_subclass_of_a_known_module_is_not_replaced() -> None:
    class Clipped(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).clamp(-0.1, 0.1)

    model = small()
    attention = model.encoder[0].self_attention
    attention.output = Clipped(64, 64)
    assert type(replace_linear(model).encoder[0].self_attention.output) is Clipped  # type: ignore[union-attr]
    assert type(replace_linear(model).encoder[0].self_attention.query_key_value) is PackedLinear  # type: ignore[union-attr]


def test_a_model_of_short_sentences_is_calibrated_on_short_ones() -> None:
    assert convert(small(max_positions=4), "int8").config.max_positions == 4


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_replacing_leaves_the_model_alone(precision: str) -> None:
    model = convert(small(), precision)
    kinds = [type(part) for part in model.modules()]
    fast = replace_linear(model)
    assert [type(part) for part in model.modules()] == kinds
    if precision == "bf16":
        assert {type(part) for part in fast.modules()} & {PackedBf16Linear}


def test_the_fastest_precision_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (({"avx2"}, {"fp32"}), ({"avx512_bf16"}, {"bf16"}), ({"avx512_vnni", "avx512_bf16"}, {"int8", "bf16"})):
        monkeypatch.setattr("nmt_cli.kernels.cpu_flags", lambda flags=flags: flags)
        monkeypatch.setattr("nmt_cli.hardware.cpu_flags", lambda flags=flags: flags)
        assert fastest_precision("cpu") in expected


@needs_few_rows
@pytest.mark.parametrize(("d_in", "d_out"), [(512, 512), (512, 2048), (2048, 512), (512, 8011), (132, 33), (32, 1000), (16, 1000), (70, 300)])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_give_the_bits_of_many(d_in: int, d_out: int, bias: bool) -> None:
    """Signed rows and unsigned, in fp32 and in 8 bits, with max(0, ·) and without, at both ends of the range."""
    generator = torch.Generator().manual_seed(d_in)
    weight, added, x = torch.randn(d_out, d_in, generator=generator), torch.randn(d_out, generator=generator), 3 * torch.randn(4 * FEW_ROWS, d_in, generator=generator)
    x[1], x[2] = 1e9, -1e9
    for relu in (False, True):
        linear = PackedInt8Linear(Int8Linear(weight, added if bias else None, 0.0307), relu)
        signed = quantized(x, linear.input_scale)
        for rows in (signed, signed.view(torch.uint8)):
            for output_scale, dtype in ((1.0, torch.float32), (0.0173, torch.uint8)):
                many = linear.matmul(rows, output_scale, dtype)
                for count in range(1, FEW_ROWS + 1):
                    assert torch.equal(linear.matmul(rows[:count], output_scale, dtype), many[:count])


@needs_few_rows
@pytest.mark.parametrize("works", [False, True])
def test_few_rows_change_no_bit_of_a_translation(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not works:
        monkeypatch.setattr(module, "few_rows_work", lambda: False)
        monkeypatch.setattr(native, "few_rows_work", lambda: False)
    model = apply_kernels(convert(small(), "int8"), "decoding").native
    assert model is not None
    assert model.few == (FEW_ROWS if works else 0)
    options, sources = SearchOptions(beam=2, alpha=0.6, bos=2, eos=3, banned_tokens=(0, 1, 2)), [[5, 6, 7, 3], [8, 9, 3], [10, 3], [11, 12, 13, 14, 3], [15, 3], [16, 17, 3]]
    alone = [beam_search(NativeDecoder(model, [source], 2), torch.tensor([9]), options)[0] for source in sources]
    assert alone == beam_search(NativeDecoder(model, sources, 2), torch.full((6,), 9), options)
