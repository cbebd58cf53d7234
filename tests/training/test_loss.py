"""The label-smoothed loss against the paper's definition, numbers worked out by hand, and torch's cross-entropy."""

from __future__ import annotations

import math

import pytest
import torch
from loss_cases import SHAPES, case, close, gradients
from torch.nn import functional as F

from nmt_cli.training.loss import label_smoothed_loss, symmetric_divergence


def test_the_target_distribution_is_the_papers_and_torchs_at_another_rate() -> None:
    """1 - e on the target, e / (V - 1) on each other entry: torch's KL divergence from it, plus its own entropy."""
    hidden, weight, target = case(7, 8, 13)
    distribution = torch.full((7, 13), 0.1 / 12)
    distribution[torch.arange(7), target] = 0.9
    torch.testing.assert_close(distribution.sum(1), torch.ones(7))
    entropy = -7 * (0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 12))
    divergence = F.kl_div((hidden @ weight.T).log_softmax(-1), distribution, reduction="sum")
    loss, _ = label_smoothed_loss(hidden, weight, target, 0.1)
    close(loss, divergence + entropy)
    close(loss, F.cross_entropy(hidden @ weight.T, distribution, reduction="sum"))
    # torch puts e / V on all entries, the target included: e there is e (V - 1) / V here.
    hidden, weight, target = case(7, 8, 13)
    torchs = F.cross_entropy(hidden @ weight.T, target, label_smoothing=0.13, reduction="sum")
    close(label_smoothed_loss(hidden, weight, target, 0.13 * 12 / 13)[0], torchs)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_smoothing_it_is_torchs_cross_entropy_and_the_nll_always(shape: tuple[int, int, int]) -> None:
    hidden, weight, target = case(*shape)
    theirs = F.cross_entropy(hidden @ weight.T, target, reduction="sum")
    for smoothing in (0.0, 0.1):
        nll = label_smoothed_loss(hidden, weight, target, smoothing)[1]
        close(nll, theirs)
        assert not nll.requires_grad
    ours = label_smoothed_loss(hidden, weight, target, 0.0)[0]
    close(ours, theirs)
    for a, b in zip(gradients(ours, hidden, weight), gradients(theirs, hidden, weight), strict=True):
        close(a, b)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
    ids=str,
)
def test_any_dtype_is_accepted_and_sums_are_in_fp32_at_least(dtype: torch.dtype, result: torch.dtype) -> None:
    hidden, weight, target = case(40, 16, 101)
    loss, nll = label_smoothed_loss(hidden.to(dtype), weight.to(dtype), target, 0.1)
    assert loss.dtype == nll.dtype == result
    exact = label_smoothed_loss(hidden, weight, target, 0.1)
    assert [loss.item(), nll.item()] == [pytest.approx(value.item(), rel=5e-3) for value in exact]


def test_no_tokens_have_no_loss_and_equal_passes_no_divergence() -> None:
    hidden, weight, target = case(7, 8, 13)
    loss, nll = label_smoothed_loss(hidden[:0], weight, target[:0], 0.1)
    assert loss.item() == nll.item() == 0
    assert not gradients(loss, hidden, weight)[1].any()
    log_probs = torch.randn(7, 13).log_softmax(-1)
    assert symmetric_divergence(log_probs, log_probs).item() == 0.0
    assert symmetric_divergence(log_probs, log_probs.flip(1)).item() > 1.0


def test_r_drop_adds_torchs_divergences_of_both_passes() -> None:
    hidden, weight, target = case(14, 8, 13)
    twice = target[:7].repeat(2)
    first, second = (hidden @ weight.T).log_softmax(-1).chunk(2)
    both = sum(F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((first, second), (second, first)))
    plain, with_r_drop = (label_smoothed_loss(hidden, weight, twice, 0.1, r_drop=r_drop) for r_drop in (0.0, 3.0))
    close(with_r_drop[0], plain[0] + 3.0 / 2 * both)
    close(with_r_drop[1], plain[1])
