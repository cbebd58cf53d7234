"""The chunked loss of GPUs, here on a CPU, equals the reference implementation, in values and gradients."""

import pytest
import torch
from loss_cases import SHAPES, case, close, gradients
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from nmt_cli.kernels import chunked_loss as kernel
from nmt_cli.kernels.chunked_loss import chunked_loss
from nmt_cli.training.loss import label_smoothed_loss


def equals_the_reference(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float = 0.0) -> None:
    found = []
    for function, form in ((chunked_loss, torch.float32), (label_smoothed_loss, torch.float64)):
        loss, nll = function(hidden.to(form), weight.to(form), target, smoothing, r_drop)
        assert not nll.requires_grad
        found.append((loss, nll, *gradients(loss / 7, hidden, weight)))
    for value, expected in zip(*found, strict=True):
        close(value, expected)


@pytest.mark.parametrize(("shape", "scale"), [*((shape, 1) for shape in SHAPES), ((7, 8, 13), 1e3), ((7, 8, 13), 1e5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_values_and_gradients_are_the_references(shape: tuple[int, int, int], scale: float, smoothing: float) -> None:
    """With large scores too: nothing overflows."""
    equals_the_reference(*case(*shape, scale), smoothing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("r_drop", [0.0, 2.5])
def test_a_gradient_that_is_not_needed_is_not_computed(dtype: torch.dtype, r_drop: float) -> None:
    hidden, weight, target = case(40, 16, 101, 0.3)
    target = target[:20].repeat(2)
    both = chunked_loss(hidden.to(dtype), weight.to(dtype), target, 0.1, r_drop)[0]
    expected = gradients(both, hidden, weight)
    fixed = weight.detach().to(dtype)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        loss, _ = chunked_loss(hidden.to(dtype), fixed, target, 0.1, r_drop)
        [ours] = torch.autograd.grad(loss, [hidden])
    assert torch.equal(loss, both)
    assert torch.equal(ours, expected[0])
    shapes = [event.input_shapes for event in profiled.events() if event.name in ("aten::mm", "aten::addmm_")]
    assert shapes
    assert not any(shape[:2] == [[101, 40], [40, 16]] for shape in shapes)
    loss, _ = chunked_loss(hidden.detach().to(dtype), weight.to(dtype), target, 0.1, r_drop)
    assert torch.equal(torch.autograd.grad(loss, [weight])[0], expected[1])
    with torch.no_grad():
        assert torch.equal(chunked_loss(hidden.to(dtype), fixed, target, 0.1, r_drop)[0], both)


@pytest.mark.parametrize("rows", [0.1, 1, 2, 3, 7, 13, 38, 39, 40, 41, 100])
@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.1, 0.0), (0.0, 2.5), (0.1, 2.5)])
def test_any_chunk_size_will_do(rows: float, smoothing: float, r_drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 tokens in chunks of 1, of 2, of 13 with one left over, of 39 and 1, as a whole; and with memory for less than a row."""
    monkeypatch.setattr(kernel, "CHUNK_SCORES", int(rows * 101))
    hidden, weight, target = case(40, 16, 101)
    equals_the_reference(hidden, weight, target[:20].repeat(2), smoothing, r_drop)


@pytest.mark.parametrize(("rows", "chunks"), [(1, [1] * 40), (13, [13, 13, 13, 1]), (41, [40]), (0.1, [1] * 40)])
def test_no_more_scores_than_one_chunk_at_once(rows: float, chunks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, target = case(40, 16, 101)
    monkeypatch.setattr(kernel, "CHUNK_SCORES", int(rows * 101))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        chunked_loss(hidden, weight, target, 0.1)
    assert [event.input_shapes[0] for event in profiled.events() if event.name == "aten::_softmax"] == [
        [chunk, 101] for chunk in chunks
    ]


def test_no_tokens_have_no_loss() -> None:
    hidden, weight, target = case(7, 8, 13)
    loss, nll = chunked_loss(hidden[:0], weight, target[:0], 0.1)
    assert loss.item() == nll.item() == 0
    assert not gradients(loss, hidden, weight)[1].any()


@pytest.mark.parametrize("r_drop", [0.0, 2.5])
@pytest.mark.parametrize("chunk", [1, 13, 40])
def test_in_bf16_products_are_rounded_and_sums_not(r_drop: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "CHUNK_SCORES", chunk * 101)
    hidden, weight, target = case(40, 16, 101, 0.3)
    target = target[:20].repeat(2)
    loss, nll = chunked_loss(hidden.bfloat16(), weight.bfloat16(), target, 0.1, r_drop)
    reference = label_smoothed_loss(hidden, weight, target, 0.1, r_drop)
    assert loss.dtype == nll.dtype == torch.float32
    assert loss.item() == pytest.approx(reference[0].item(), rel=5e-3)
    assert nll.item() == pytest.approx(reference[1].item(), rel=5e-3)
    assert loss.item() != chunked_loss(hidden, weight, target, 0.1, r_drop)[0].item()  # products were in bf16 indeed
    for ours, exact in zip(gradients(loss, hidden, weight), gradients(reference[0], hidden, weight), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - exact).norm() <= (0.02 if r_drop else 0.01) * exact.norm()


def test_in_bf16_what_is_left_to_a_probability_of_one_keeps_its_digits() -> None:
    """The weight is the identity, so hidden states are scores, and gradients are those of the scores."""
    scores = torch.randint(-8, 8, (300, 64), generator=torch.Generator().manual_seed(2)) / 4
    target = torch.arange(300) % 64
    scores[torch.arange(300), target] += torch.arange(300) // 32
    hidden, exact = scores.bfloat16().requires_grad_(), scores.double().requires_grad_()
    loss, _ = chunked_loss(hidden, torch.eye(64).bfloat16(), target, 0.0)
    expected = torch.nn.functional.cross_entropy(exact, target, reduction="sum")
    [ours], [theirs] = torch.autograd.grad(loss, [hidden]), torch.autograd.grad(expected, [exact])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert ((ours - theirs).abs() <= theirs.abs() / 100).all()
