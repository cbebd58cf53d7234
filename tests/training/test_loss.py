"""The label-smoothed loss against the paper's definition, numbers worked out by hand, and torch's cross-entropy. With an
output bias and a zero start, what is fixed stays.
"""

import math
from typing import Any

import pytest
import torch
from loss_cases import SHAPES, case, close, gradients
from small_models import small
from torch.nn import functional as F

from nmt_cli.data.batches import Batch
from nmt_cli.data.tokenizer import BOS, EOS, PAD
from nmt_cli.model.transformer import NO_PROBABILITY, Transformer
from nmt_cli.training.loader import PackedBatch
from nmt_cli.training.loss import label_smoothed_loss, symmetric_divergence
from nmt_cli.training.update import LossModel


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


# An output bias and a zero start

MARIAN: dict[str, Any] = {"positions": "marian", "output_bias": True, "zero_start": True, "norm_epsilon": 1e-6}
FORMS: list[dict[str, Any]] = [{}, {"tie_embeddings": False}, {"residual": "pre", "activation": "silu"}]


def model(**changes: Any) -> Transformer:
    made = small(dropout=0.0, **MARIAN, **changes).train()
    with torch.no_grad():
        assert made.output_bias is not None
        made.output_bias[[PAD, BOS]] = NO_PROBABILITY  # `small` adds to it
    return made


def batch(seed: int = 1) -> tuple[PackedBatch, torch.Tensor, torch.Tensor]:
    """Pairs of several lengths, packed, and padded."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([7, 3, 12])
    rows = [torch.cat([torch.randint(4, 60, (n - 1,), generator=generator), torch.tensor([EOS])]) for n in lengths]
    tgt_in = [torch.cat([torch.tensor([BOS]), row[:-1]]) for row in rows]
    src, read = (torch.nn.utils.rnn.pad_sequence(side, True) for side in (rows, tgt_in))
    return PackedBatch.of(Batch(src, lengths, read, src, lengths)), src, read


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_cross_entropy_over_the_other_tokens(form: dict[str, Any], smoothing: float) -> None:
    """torch puts e / V on every token: e here is e (V - 1) / V there, and V has no padding and no begin symbol."""
    ours, theirs = model(**form), model(**form)
    rows, src, tgt_in = batch()
    loss, nll = LossModel(ours, smoothing)(rows)
    kept = [token for token in range(60) if token not in (PAD, BOS)]
    mask = (src != PAD)[:, None, None, :]
    logits = theirs.logits(theirs(src, mask, tgt_in))[src != PAD][:, kept]
    target = torch.tensor([kept.index(int(token)) for token in src[src != PAD]])
    expected = F.cross_entropy(logits, target, label_smoothing=smoothing * 58 / 57, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, reduction="sum"))
    loss.backward()
    expected.backward()  # type: ignore[no-untyped-call]
    for (name, one), two in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None, name
        assert two.grad is not None, name
        torch.testing.assert_close(one.grad, two.grad, atol=2e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_zero_start_and_the_banned_tokens_stay(form: dict[str, Any]) -> None:
    trained = model(**form)
    use = "shared" if trained.config.tie_embeddings else "target"
    with torch.no_grad():
        trained.embeddings[use][BOS] = 0
    optimizer = torch.optim.Adam(trained.parameters(), lr=1e-2, betas=(0.9, 0.98))
    before = trained.embeddings[use].detach().clone()
    losses = []
    for seed in range(5):
        optimizer.zero_grad()
        loss, _ = LossModel(trained, 0.1)(batch(seed)[0])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert not trained.embeddings[use][BOS].any()
    assert trained.output_bias is not None
    assert trained.output_bias[[PAD, BOS]].tolist() == [NO_PROBABILITY] * 2
    assert (trained.embeddings[use] != before).any(1).sum() > 30
    assert (trained.output_bias[4:] != 0).all()
    probabilities = trained.eval().logits(torch.randn(3, 32)).softmax(-1)
    assert not probabilities[:, [PAD, BOS]].any()
