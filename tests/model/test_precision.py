"""The precisions in plain torch against torch's own linear map, and a whole model in each."""

from typing import Any

import pytest
import torch
from small_models import section
from torch import nn
from torch.nn import functional as F

from nmt_cli.model.embeddings import Int8Embedding
from nmt_cli.model.folder import weights_of
from nmt_cli.model.precision import (
    LEAST,
    UINT8_MAX,
    Bf16Linear,
    Int8FeedForward,
    Int8Linear,
    convert,
    int8_matmul,
    integers,
    quantized,
    rounded,
)
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.weights import forms_of, quantize_weights
from nmt_cli.registry import PRECISIONS


def small(**changes: Any) -> Transformer:
    torch.manual_seed(2)
    return Transformer(section(d_model=64, d_ff=128, num_heads=4, **changes), 90, 90).eval()


@pytest.mark.parametrize("shape", [(1, 48), (70, 48), (3, 5, 48)])
@torch.inference_mode()
def test_a_linear_map_is_torchs_but_for_rounding(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(48, 40), torch.randn(shape)
    expected = linear(x)
    for found, near, dtype in (
        (Bf16Linear(linear.weight, linear.bias)(x), 0.01, torch.bfloat16),
        (Int8Linear(*rounded(linear.weight), linear.bias)(x), 0.02, torch.float32),
    ):
        assert (found.dtype, found.shape) == (dtype, expected.shape)
        assert float((found - expected).abs().max()) < near * float(expected.abs().max())


@pytest.mark.parametrize("d_in", [5, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_int8_sums_are_exact(d_in: int, dtype: torch.dtype) -> None:
    """Also where every product is as large as it can be: fp32 alone would round."""
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(d_in)
    weight = torch.randint(-127, 128, (7, d_in), generator=generator).to(torch.int8)
    rows = torch.randint(info.min, info.max + 1, (3, d_in), generator=generator).to(dtype)
    rows[0], weight[0], weight[1] = info.max, 127, -127
    assert torch.equal(int8_matmul(rows, weight).long(), rows.long() @ weight.long().T)


@pytest.mark.parametrize(
    ("row", "most", "expected", "scale"),
    [
        ([127.0, 0.5, 1.5, -2.5, -0.5], 127, [127, 0, 2, -2, 0], 1.0),
        ([0.25, -0.5, 0.0], 127, [64, -127, 0], 0.5 / 127),
        ([510.0, 1.0, 3.0, 0.0], UINT8_MAX, [255, 0, 2, 0], 2.0),
        ([0.0, 0.0], 127, [0, 0], 0.0),
        ([LEAST, 0.0], 127, [127, 0], LEAST / 127),
        ([LEAST / 2, -LEAST / 2], 127, [0, 0], 0.0),
    ],
)
def test_the_largest_magnitude_of_a_row_is_the_largest_integer_and_ties_go_to_even(
    row: list[float], most: int, expected: list[int], scale: float
) -> None:
    found, scales = quantized(torch.tensor([row, [1.0] * len(row)]), most)
    assert found.tolist() == [expected, [most] * len(row)]
    torch.testing.assert_close(scales, torch.tensor([[scale], [1 / most]]), rtol=1e-6, atol=0)


@torch.inference_mode()
def test_a_row_in_int8_depends_on_no_other_row() -> None:
    """A row of large numbers takes no bits from its neighbours, and one with a number that is not finite is NaN alone."""
    torch.manual_seed(0)
    linear, x = Int8Linear(*rounded(torch.randn(40, 48)), torch.randn(40)), torch.randn(6, 48)
    x[1] *= 1e6
    x[2, 5], x[4, 7] = torch.inf, torch.nan
    found = linear(x)
    for number in (0, 1, 3, 5):
        assert torch.equal(found[number], linear(x[number]))
    assert found[[2, 4]].isnan().all()


@torch.inference_mode()
def test_an_int8_feed_forward_network_is_its_two_maps() -> None:
    """With ReLU no bit is lost to a sign: the second map is nearer than with signed integers."""
    torch.manual_seed(0)
    first, second, x = nn.Linear(48, 96), nn.Linear(96, 48), torch.randn(300, 48)
    expected = second(F.relu(first(x)))
    inner, outer = (Int8Linear(*rounded(linear.weight), linear.bias) for linear in (first, second))
    error = (Int8FeedForward(inner, outer)(x) - expected).abs()
    assert float(error.max()) < 0.03 * float(expected.abs().max())
    assert float(error.mean()) < 0.95 * float((outer(F.relu(inner(x))) - expected).abs().mean())


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_in_int8_stay_integers_until_a_row_is_read(tied: bool) -> None:
    model = small(tie_embeddings=tied)
    converted = convert(model, "int8")
    for use in ("source", "target"):
        table, ids = converted.embedding(use), torch.tensor([[0, 89, 3], [5, 5, 1]])
        assert isinstance(table, Int8Embedding)
        assert table.weight.dtype == torch.int8
        matrix, scales = rounded(model.matrix(use))
        assert torch.equal(converted.matrix(use), matrix * scales[:, None])
        assert torch.equal(table(ids), converted.matrix(use)[ids])
    assert set(converted.embeddings) == ({"shared"} if tied else {"source", "target"})
    assert (converted.target_vocab, converted.device) == (90, torch.device("cpu"))


@pytest.mark.parametrize(
    "changes", [{}, {"residual": "pre"}, {"norm": "rms"}, {"activation": "gelu"}, {"positions": "learned"}], ids=str
)
@pytest.mark.parametrize("precision", list(PRECISIONS))
@torch.inference_mode()
def test_a_model_in_each_precision_is_near_the_model(precision: str, changes: dict[str, str]) -> None:
    model = small(**changes)
    src, tgt = torch.randint(4, 90, (5, 9)), torch.randint(4, 90, (5, 8))
    expected = model.logits(model(src, None, tgt)).log_softmax(-1)
    converted = convert(model, precision)
    found = converted.logits(converted(src, None, tgt)).log_softmax(-1)
    assert float((found - expected).abs().max()) < {"fp32": 1e-6, "bf16": 0.06, "fp16": 0.01, "int8": 0.3}[precision]


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_converting_leaves_the_model_alone(precision: str) -> None:
    model = small().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    converted = convert(model, precision)
    assert model.training
    assert not converted.training
    assert type(model.encoder[0].feed_forward.inner) is nn.Linear
    assert model.output_projection is None
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("tied", [True, False])
def test_integers_are_what_a_folder_in_int8_stores(tied: bool) -> None:
    model = small(tie_embeddings=tied)
    forms = forms_of(model.config, (model.matrix("source").size(0), model.target_vocab), "int8")
    expected = quantize_weights({name: tensor.numpy() for name, tensor in weights_of(model).items()}, forms)
    found = {**weights_of(model), **integers(model)}
    assert found.keys() == expected.keys() == forms.keys()
    for name, array in expected.items():
        assert found[name].numpy().dtype == array.dtype
        assert found[name].numpy().tobytes() == array.tobytes()


def halved(model: Transformer) -> Transformer:
    """A precision from outside the package: weights rounded to half precision."""
    new = convert(model, "fp32")
    new.output_projection = nn.Linear(64, 90, bias=False)
    new.output_projection.weight = nn.Parameter(model.output_weight.detach().half().float())
    return new


def test_a_precision_is_added_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRECISIONS, "halved", f"{__name__}:halved")
    model, x = small(), torch.randn(4, 64)
    converted = convert(model, "halved")
    assert not torch.equal(converted.logits(x), model.logits(x))
    torch.testing.assert_close(converted.logits(x), model.logits(x), atol=1e-3, rtol=1e-3)
