"""The linear maps for decoding against those in plain torch (model/precision.py); skipped where oneDNN has none."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.search import SearchOptions
from nmt_cli.hardware import cpu_flags
from nmt_cli.kernels import onednn
from nmt_cli.kernels.choice import apply_kernels, fastest_precision, has_int8
from nmt_cli.kernels.cpu_decoding import products as module
from nmt_cli.kernels.cpu_decoding.decoder import NativeDecoder
from nmt_cli.kernels.cpu_decoding.linear import (
    PackedBf16Linear,
    PackedInt8FeedForward,
    PackedInt8Linear,
    PackedLinear,
    packed,
    quantized,
    replace_linear,
    supports,
)
from nmt_cli.kernels.cpu_decoding.on_tensors import top_candidates
from nmt_cli.kernels.cpu_decoding.products import FEW_ROWS, fp32_product, int8_product, multiplies
from nmt_cli.kernels.cpu_decoding.whole_steps import WholeStepDecoder
from nmt_cli.model.layers import FeedForward
from nmt_cli.model.precision import (
    INT8_MAX,
    UINT8_MAX,
    Bf16Linear,
    Int8FeedForward,
    Int8Linear,
    convert,
    quantize,
    rounded,
)
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import PRECISIONS

CPU = torch.device("cpu")
needs_int8 = pytest.mark.skipif(not has_int8(), reason="int8 has no kernels for this processor")
needs_vnni = pytest.mark.skipif(
    not (onednn.has_int8_linear() and cpu_flags() & {"avx512_vnni", "avx_vnni", "amx_int8"}),
    reason="this processor has no instruction for 8-bit products",
)
needs_fp32 = pytest.mark.skipif(not onednn.has_fp32_linear(), reason="oneDNN has no linear map for this processor")
needs_int8_products = pytest.mark.skipif(
    not multiplies(torch.int8), reason="there are no compiled int8 products for this processor"
)
needs_products = pytest.mark.skipif(
    not multiplies(torch.float32), reason="there are no compiled products for this processor"
)


def small(vocabulary: int = 90, **changes: str) -> Transformer:
    torch.manual_seed(2)
    return Transformer(
        ModelSection(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=128, num_heads=4, **changes),
        vocabulary,
        vocabulary,
    ).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 48), (70, 48), (3, 5, 48)])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@torch.inference_mode()
def test_a_linear_map_is_that_of_plain_torch(precision: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(48, 40), torch.randn(shape)
    plain = {
        "fp32": linear,
        "bf16": Bf16Linear(linear.weight, linear.bias),
        "int8": Int8Linear(*rounded(linear.weight), linear.bias, float(x.abs().max()) / INT8_MAX),
    }[precision]
    if reason := supports(plain, CPU):
        pytest.skip(reason)
    torch.testing.assert_close(packed(plain)(x), plain(x), atol=0.02 if precision == "bf16" else 1e-5, rtol=1e-5)


@needs_int8
@torch.inference_mode()
def test_int8_is_integers_times_scales() -> None:
    torch.manual_seed(0)
    linear, x = Int8Linear(*rounded(torch.randn(40, 48)), torch.randn(40), 0.02), torch.randn(30, 48)
    torch.testing.assert_close(PackedInt8Linear(linear)(x), linear(x), atol=1e-5, rtol=1e-6)


@needs_vnni
@pytest.mark.parametrize("unsigned", [False, True])
@torch.inference_mode()
def test_signed_rows_may_be_multiplied_as_unsigned_ones(unsigned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows, weight = (
        torch.randint(-128, 128, (30, 48), dtype=torch.int8),
        torch.randint(-127, 128, (40, 48), dtype=torch.int8),
    )
    rows[0], weight[0] = -128, 127
    monkeypatch.setattr(onednn, "multiplies_unsigned_only", lambda: unsigned)
    ours = onednn.int8_linear(
        rows,
        0.5,
        onednn.int8_reorder(weight),
        torch.full((40,), 0.25),
        torch.zeros(40, dtype=torch.int64),
        None,
        False,
        1.0,
        torch.float32,
    )
    assert torch.equal(ours, F.linear(rows.float(), weight.float()) * 0.125)


@needs_vnni
def test_int8_rows_do_not_take_onednns_reference_loop() -> None:
    script = (
        "import torch; from nmt_cli.kernels import onednn\n"
        "weight = onednn.int8_reorder(torch.ones(40, 48, dtype=torch.int8))\n"
        "for dtype in (torch.int8, torch.uint8):\n"
        "    onednn.int8_linear(torch.ones(30, 48, dtype=dtype), 1.0, weight, torch.ones(40), torch.zeros(40, dtype=torch.int64), None, False, 1.0, torch.float32)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
    ).stdout
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
    inner = Int8Linear(*rounded(first.weight), first.bias, float(x.abs().max()) / INT8_MAX)
    outer = Int8Linear(*rounded(second.weight), second.bias, float(F.relu(first(x)).max()) / UINT8_MAX)
    plain = Int8FeedForward(inner, outer)
    fast = PackedInt8FeedForward(PackedInt8Linear(inner, relu=True), PackedInt8Linear(outer))
    torch.testing.assert_close(fast(x), plain(x), atol=0.02, rtol=0.0)


def test_what_no_map_supports_is_declined_with_the_reason() -> None:
    other = FeedForward(ModelSection(d_model=8, d_ff=16, num_heads=2))
    other.activation = nn.Tanh()
    assert supports(other, CPU) == "activation 'Tanh' has no kernel"
    other.activation = nn.GELU(approximate="tanh")
    assert supports(other, CPU) == "activation 'GELU' has no kernel"
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


@needs_int8
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@torch.inference_mode()
def test_released_weights_are_freed_and_change_no_output(precision: str, activation: str) -> None:
    def outputs(release: bool) -> torch.Tensor:
        model = convert(small(activation=activation), precision)
        fast = replace_linear(model, release)
        maps = [module for module in model.modules() if isinstance(module, nn.Linear | Int8Linear)]
        assert {bool(module.weight.numel()) for module in maps} == {not release}
        return cast(torch.Tensor, fast.logits(fast(torch.tensor([[5, 6, 7, 3]]), None, torch.tensor([[2, 8, 9]]))))

    assert torch.equal(outputs(release=True), outputs(release=False))


@needs_int8
@torch.inference_mode()
def test_embeddings_in_int8_have_the_bits_of_the_same_numbers_in_fp32() -> None:
    model = convert(small(), "int8")
    native = apply_kernels(model, "decoding").native
    if native is None:
        pytest.skip("there is no compiled decoder for this processor")
    ids, positions = torch.tensor([5, 89, 0, 7]), torch.tensor([0, 3, 2, 1])
    rows = native.embed(0, ids, positions)
    native.tables = [(model.matrix("source"), None)] * 2
    assert torch.equal(rows, native.embed(0, ids, positions))
    torch.testing.assert_close(rows, model.embed(ids, "source", model.source_positions.at(positions)))  # type: ignore[operator]


def test_the_fastest_precision_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled, flags, expected in (
        (False, {"avx2"}, {"fp32"}),
        (False, {"avx512_bf16"}, {"bf16"}),
        (False, {"avx512_vnni", "avx512_bf16"}, {"int8", "bf16"}),
        (True, {"avx2"}, {"int8"}),
    ):
        monkeypatch.setattr(module, "multiplies", lambda dtype, compiled=compiled: compiled)
        monkeypatch.setattr("nmt_cli.kernels.choice.cpu_flags", lambda flags=flags: flags)
        monkeypatch.setattr("nmt_cli.hardware.cpu_flags", lambda flags=flags: flags)
        assert fastest_precision("cpu") in expected


SHAPES = [(512, 512), (512, 2048), (2048, 512), (512, 8011), (132, 33), (32, 1000), (16, 1000), (4, 1)]


@needs_int8_products
@pytest.mark.parametrize(("d_in", "d_out"), SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_compiled_int8_products_have_the_bits_of_plain_torch(d_in: int, d_out: int, bias: bool) -> None:
    """Signed rows and unsigned, in fp32 and in 8 bits, with max(0, ·) and without, at both ends of the range, for any number of rows."""
    generator = torch.Generator().manual_seed(d_in)
    weight, added, x = (
        torch.randn(d_out, d_in, generator=generator),
        torch.randn(d_out, generator=generator),
        3 * torch.randn(33, d_in, generator=generator),
    )
    x[1], x[2] = 1e9, -1e9
    linear = Int8Linear(*rounded(weight), added if bias else None, 0.0307)
    signed = quantized(x, linear.input_scale)
    for relu in (False, True):
        product = int8_product(linear.weight, linear.scales, linear.bias, linear.input_scale, relu)
        assert product is not None
        for rows in (signed, signed.view(torch.uint8)):
            plain = F.relu(linear.matmul(rows)) if relu else linear.matmul(rows)
            in_bytes = (plain * (1.0 / torch.tensor(0.0173))).round().clamp(0, 255).to(torch.uint8)
            for output_scale, dtype, expected in ((1.0, torch.float32, plain), (0.0173, torch.uint8, in_bytes)):
                for count in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33):
                    assert torch.equal(product(rows[:count], output_scale, dtype), expected[:count])


@needs_products
@pytest.mark.parametrize(("d_in", "d_out"), [*SHAPES, (70, 300), (1, 17)])
@pytest.mark.parametrize("relu", [False, True])
def test_compiled_fp32_products_do_not_depend_on_the_number_of_rows(d_in: int, d_out: int, relu: bool) -> None:
    weight, bias, x = (
        torch.randn(shape, generator=torch.Generator().manual_seed(d_in))
        for shape in ((d_out, d_in), (d_out,), (300, d_in))
    )
    product = fp32_product(weight, bias, relu)
    assert product is not None
    every, plain = product(x), F.linear(x, weight, bias)
    torch.testing.assert_close(every, F.relu(plain) if relu else plain, rtol=1e-4, atol=1e-4)
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 257):
        assert torch.equal(product(x[:count]), every[:count])
    assert torch.equal(product(x.view(30, 10, d_in)), every.view(30, 10, d_out))
    assert fp32_product(weight, None, relu)(x[:0]).shape == (0, d_out)  # type: ignore[misc]


@needs_products
def test_threads_divide_a_product_and_change_no_bit() -> None:
    """Also several callers at once, and a fork."""
    script = (
        "import os, threading, torch\n"
        "from nmt_cli.kernels.cpu_decoding.products import fp32_product\n"
        "weight, x = torch.randn(2048, 512), torch.randn(64, 512)\n"
        "product = fp32_product(weight, None, False)\n"
        "torch.set_num_threads(1)\n"
        "alone = product(x)\n"
        "failures = []\n"
        "def multiply(threads, times):\n"
        "    torch.set_num_threads(threads)\n"
        "    failures.extend(1 for _ in range(times) if not torch.equal(product(x), alone))\n"
        "for threads in (2, 3, 8):\n"
        "    multiply(threads, 100)\n"
        "callers = [threading.Thread(target=multiply, args=(4, 100)) for _ in range(4)]\n"
        "[caller.start() for caller in callers], [caller.join() for caller in callers]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    ours = [product(x).tolist() for _ in range(10)]\n"
        "    os._exit(0 if ours == 10 * [alone.tolist()] else 1)\n"
        "raise SystemExit(os.waitpid(child, 0)[1] + len(failures))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@needs_products
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@torch.inference_mode()
def test_threads_divide_the_vocabulary_and_change_no_bit(precision: str) -> None:
    kernels = apply_kernels(convert(small(20_000), precision), "decoding")
    if kernels.whole_steps is None:
        pytest.skip("this processor has no whole steps in this precision")
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        decoder, found = WholeStepDecoder(kernels.whole_steps, [[5, 6, 7, 3], [8, 9, 3]], 4), []
        tokens, rows, so_far = torch.full((2, 4), 2), torch.tensor([0, 4]), torch.zeros(2, 4)
        for _ in range(4):
            values, flat = decoder.best(tokens, rows, so_far, 8, (0, 1, 2), None, None)
            found += [values, flat]
            parents, tokens, so_far, rows = (
                flat[:, :4] // decoder.vocabulary,
                flat[:, :4] % decoder.vocabulary,
                values[:, :4].contiguous(),
                torch.arange(8),
            )
            decoder.reorder(parents)
        results.append(found)
    torch.set_num_threads(before)
    assert all(torch.equal(ours, alone) for several in results for ours, alone in zip(several, results[0], strict=True))


@needs_int8_products
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_where_onednn_is_better_it_multiplies_and_the_bits_are_the_same(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In int8 with AMX few rows are multiplied by the compiled products, many by oneDNN."""
    options, sources = (
        SearchOptions(beam=2, alpha=0.6, bos=2, eos=3, banned_tokens=(0, 1, 2)),
        [[5, 6, 7, 3], [8, 9, 3], [10, 3], [11, 12, 13, 14, 3], [15, 3], [16, 17, 3]],
    )
    results = []
    for amx in (False, True):
        monkeypatch.setattr(module, "has_amx", lambda amx=amx: amx)
        monkeypatch.setattr(module, "NARROW", 0)
        module._right.cache_clear()
        if precision == "int8" and not (onednn.has_int8_linear() and multiplies(torch.int8)):
            pytest.skip("oneDNN has other bits on this processor")
        kernels = apply_kernels(convert(small(), precision), "decoding")
        assert kernels.native is not None
        whole = not amx or precision == "fp32"
        assert (kernels.whole_steps is not None) is whole
        assert kernels.native.few == (0 if whole else FEW_ROWS)
        decoders = [kernels.native_decoder([source], 2) for source in sources], kernels.native_decoder(sources, 2)
        alone = [beam_search(cast(NativeDecoder, decoder), torch.tensor([9]), options)[0] for decoder in decoders[0]]
        assert alone == beam_search(cast(NativeDecoder, decoders[1]), torch.full((6,), 9), options)
        results.append(alone)
    assert results[0] == results[1]


@needs_products
@pytest.mark.parametrize("residual", ["pre", "post"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@torch.inference_mode()
def test_a_whole_step_has_the_bits_of_one_by_parts(precision: str, residual: str) -> None:
    kernels = apply_kernels(convert(small(residual=residual), precision), "decoding")
    if kernels.native is None or kernels.whole_steps is None:
        pytest.skip("this processor has no whole steps in this precision")
    sources, options = [[5, 6, 7, 3], [8, 9, 3], [10, 3]], (5, (0, 1, 2))
    parts, whole, ranking = (
        make(sources, 3)
        for make in (partial(NativeDecoder, kernels.native), *[partial(WholeStepDecoder, kernels.whole_steps)] * 2)
    )
    tokens, rows, so_far = torch.full((3, 3), 2), torch.tensor([0, 3, 6]), torch.zeros(3, 3)
    for step in range(12):
        expected = parts.step(tokens, rows)
        assert torch.equal(whole.step(tokens, rows), expected)
        only = torch.full((len(rows),), -1).index_fill_(0, torch.tensor([0]), 7) if step == 4 else None
        counts = torch.full((len(rows),), 2) if step == 5 else None
        values, flat = top_candidates(expected.clone(), so_far, rows, *options, only, counts)
        ranked = ranking.best(tokens, rows, so_far, *options, only, counts)
        assert torch.equal(ranked[0], values)
        assert torch.equal(ranked[1][values > -torch.inf], flat[values > -torch.inf])
        parents, tokens, so_far = (
            flat[:, :3] // ranking.vocabulary,
            flat[:, :3] % ranking.vocabulary,
            values[:, :3].contiguous(),
        )
        for decoder in (parts, whole, ranking):
            decoder.reorder(parents)
        if step == 6:
            for decoder in (parts, whole, ranking):
                decoder.keep(torch.tensor([0, 2]))
                decoder.add([[20, 21, 3]])
            tokens, so_far = (
                torch.cat([tokens[[0, 2]], torch.full((1, 3), 2)]),
                torch.cat([so_far[[0, 2]], torch.tensor([[0.0, -torch.inf, -torch.inf]])]),
            )
        so_far[0, 2] = -torch.inf
        rows = so_far.flatten().isneginf().logical_not().nonzero().flatten()
