"""The smoothed loss against its definition, its slow twin and torch's cross-entropy."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.training import loss
from nmt_cli.training.loss import smoothed_loss, smoothed_loss_plain

SHAPES = [(1, 4, 2), (7, 8, 13), (40, 16, 101), (33, 5, 257)]  # N, D, V


def case(tokens: int, d_model: int, vocabulary: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    hidden = (scale * torch.randn(tokens, d_model, generator=generator)).requires_grad_()
    weight = torch.randn(vocabulary, d_model, generator=generator).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (tokens,), generator=generator)


def gradients(value: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, (hidden, weight))


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_values_and_gradients_equal_those_of_the_slow_twin(shape: tuple[int, int, int], smoothing: float) -> None:
    hidden, weight, gold = case(*shape)
    fast, plain = smoothed_loss(hidden, weight, gold, smoothing), smoothed_loss_plain(hidden, weight, gold, smoothing)
    for ours, theirs in zip(fast, plain, strict=True):
        close(ours, theirs)
    for ours, theirs in zip(gradients(fast[0], hidden, weight), gradients(plain[0], hidden, weight), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("rows", [1, 2, 13, 39, 40, 41, 0.1])
def test_it_does_not_matter_how_many_rows_are_taken_at_once(rows: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 tokens in pieces of 1, of 2, of 13 with one left over, of 39 and 1, as a whole; and with room for less than a row."""
    hidden, weight, gold = case(40, 16, 101)
    taken: list[int] = []
    softmax = torch.softmax

    def spy(scores: Tensor, dim: int, out: Tensor) -> Tensor:
        taken.append(scores.size(0))
        return softmax(scores, dim, out=out)

    monkeypatch.setitem(loss.CELLS, "cpu", int(rows * 101))
    monkeypatch.setattr(torch, "softmax", spy)
    fast = smoothed_loss(hidden, weight, gold, 0.1)
    monkeypatch.undo()
    assert sum(taken) == 40
    assert max(taken) == min(40, max(1, int(rows)))
    plain = smoothed_loss_plain(hidden, weight, gold, 0.1)
    close(fast[0], plain[0])
    close(fast[1], plain[1])
    for ours, theirs in zip(gradients(fast[0], hidden, weight), gradients(plain[0], hidden, weight), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("function", [smoothed_loss, smoothed_loss_plain])
def test_three_words_by_hand(function: object) -> None:
    """Scores 1, 2, 3, gold the last, e = 0.1: 0.9 on gold and 0.05 on each of the others."""
    hidden, weight = torch.ones(1, 1), torch.tensor([[1.0], [2.0], [3.0]])
    normaliser = math.log(math.exp(1) + math.exp(2) + math.exp(3))
    expected = 0.9 * (normaliser - 3) + 0.05 * (normaliser - 2) + 0.05 * (normaliser - 1)
    smoothed, nll = function(hidden, weight, torch.tensor([2]), 0.1)  # type: ignore[operator]
    assert smoothed.item() == pytest.approx(expected, rel=1e-6)
    assert nll.item() == pytest.approx(normaliser - 3, rel=1e-6)


def test_the_target_distribution_is_the_papers() -> None:
    """1 - e on gold, e / (V - 1) on each other entry: torch's KL divergence from it, plus its own entropy."""
    hidden, weight, gold = case(7, 8, 13)
    target = torch.full((7, 13), 0.1 / 12)
    target[torch.arange(7), gold] = 0.9
    torch.testing.assert_close(target.sum(1), torch.ones(7))
    entropy = -7 * (0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 12))
    divergence = F.kl_div((hidden @ weight.T).log_softmax(-1), target, reduction="sum")
    for function in (smoothed_loss, smoothed_loss_plain):
        close(function(hidden, weight, gold, 0.1)[0], divergence + entropy)
    close(smoothed_loss(hidden, weight, gold, 0.1)[0], F.cross_entropy(hidden @ weight.T, target, reduction="sum"))


def test_it_is_torchs_label_smoothing_at_another_rate() -> None:
    """torch puts e / V on all entries, gold included: e there is e (V - 1) / V here."""
    hidden, weight, gold = case(7, 8, 13)
    torchs = F.cross_entropy(hidden @ weight.T, gold, label_smoothing=0.13, reduction="sum")
    close(smoothed_loss(hidden, weight, gold, 0.13 * 12 / 13)[0], torchs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_plain_nll_is_torchs_cross_entropy_and_carries_no_gradient(shape: tuple[int, int, int], smoothing: float) -> None:
    hidden, weight, gold = case(*shape)
    nll = smoothed_loss(hidden, weight, gold, smoothing)[1]
    close(nll, F.cross_entropy(hidden @ weight.T, gold, reduction="sum"))
    assert not nll.requires_grad


@pytest.mark.parametrize("shape", SHAPES)
def test_without_smoothing_loss_and_gradients_are_torchs_cross_entropy(shape: tuple[int, int, int]) -> None:
    hidden, weight, gold = case(*shape)
    ours, theirs = smoothed_loss(hidden, weight, gold, 0.0)[0], F.cross_entropy(hidden @ weight.T, gold, reduction="sum")
    close(ours, theirs)
    for a, b in zip(gradients(ours, hidden, weight), gradients(theirs, hidden, weight), strict=True):
        close(a, b)


def test_gradients_are_scaled_by_what_follows() -> None:
    hidden, weight, gold = case(7, 8, 13)
    whole = gradients(smoothed_loss(hidden, weight, gold, 0.1)[0], hidden, weight)
    divided = gradients(smoothed_loss(hidden, weight, gold, 0.1)[0] / 7, hidden, weight)
    for a, b in zip(whole, divided, strict=True):
        close(b, a / 7)


def test_sums_of_two_halves_are_the_sum_of_the_whole() -> None:
    hidden, weight, gold = case(40, 16, 101)
    halves = [smoothed_loss(hidden[part], weight, gold[part], 0.1) for part in (slice(0, 11), slice(11, 40))]
    for whole, first, second in zip(smoothed_loss(hidden, weight, gold, 0.1), *halves, strict=True):
        close(first + second, whole)


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_large_scores_do_not_overflow(scale: float) -> None:
    hidden, weight, gold = case(7, 8, 13, scale)
    smoothed, nll = smoothed_loss(hidden, weight, gold, 0.1)
    plain = smoothed_loss_plain(hidden.double(), weight.double(), gold, 0.1)
    assert smoothed.item() == pytest.approx(plain[0].item(), rel=1e-5)
    assert nll.item() == pytest.approx(plain[1].item(), rel=1e-5)
    for ours, theirs in zip(gradients(smoothed, hidden, weight), gradients(plain[0], hidden, weight), strict=True):
        close(ours, theirs)


def test_bf16_products_stay_close_and_sums_stay_in_fp32() -> None:
    hidden, weight, gold = case(40, 16, 101)
    (smoothed, nll), plain = smoothed_loss(hidden.bfloat16(), weight.bfloat16(), gold, 0.1), smoothed_loss_plain(hidden, weight, gold, 0.1)
    assert smoothed.dtype == nll.dtype == torch.float32
    assert smoothed.item() == pytest.approx(plain[0].item(), rel=5e-3)
    assert nll.item() == pytest.approx(plain[1].item(), rel=5e-3)
    for ours, theirs in zip(gradients(smoothed, hidden, weight), gradients(plain[0], hidden, weight), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()
    # and they were in bf16 indeed
    assert smoothed.item() != smoothed_loss(hidden, weight, gold, 0.1)[0].item()


@pytest.mark.parametrize(("cells", "block"), [(5, 13), (13, 13), (7, 40), (40, 40), (1, 1)])
def test_in_bf16_neither_rows_nor_blocks_matter(cells: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, gold = case(40, 16, 101)
    whole = gradients(smoothed_loss(hidden.bfloat16(), weight.bfloat16(), gold, 0.1)[0], hidden, weight)
    monkeypatch.setitem(loss.CELLS, "cpu", cells * 101)
    monkeypatch.setattr(loss, "BLOCK", block * 101)
    cut = gradients(smoothed_loss(hidden.bfloat16(), weight.bfloat16(), gold, 0.1)[0], hidden, weight)
    for ours, theirs in zip(cut, whole, strict=True):
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()


def test_evaluation_without_gradients_gives_the_same_values() -> None:
    hidden, weight, gold = case(7, 8, 13)
    trained = smoothed_loss(hidden, weight, gold, 0.1)
    with torch.no_grad():
        assert torch.equal(torch.stack(smoothed_loss(hidden, weight, gold, 0.1)), torch.stack(trained))


def test_no_tokens_lose_nothing() -> None:
    hidden, weight, gold = case(7, 8, 13)
    smoothed, nll = smoothed_loss(hidden[:0], weight, gold[:0], 0.1)
    assert smoothed.item() == nll.item() == 0
    assert not gradients(smoothed, hidden, weight)[1].any()
