"""Training with an output bias and a zero start: what is fixed stays, and the loss is torch's over the other tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import small
from torch.nn import functional as F

from nmt_cli.data.batches import Batch
from nmt_cli.data.tokenizer import BOS, EOS, PAD
from nmt_cli.kernels.chunked_loss import chunked_loss
from nmt_cli.model.transformer import NO_PROBABILITY, Transformer
from nmt_cli.training.loader import PackedBatch
from nmt_cli.training.loss import label_smoothed_loss, with_bias
from nmt_cli.training.update import LossModel

MARIAN: dict[str, Any] = {
    "positions": "marian",
    "output_bias": True,
    "zero_start": True,
    "norm_epsilon": 1e-6,
    "dropout": 0.0,
}
FORMS: list[dict[str, Any]] = [{}, {"tie_embeddings": False}, {"residual": "pre", "activation": "silu"}]


def model(**changes: Any) -> Transformer:
    made = small(**MARIAN, **changes).train()
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


@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.0, 0.0), (0.1, 2.0)])
def test_the_chunked_loss_is_the_plain_one(smoothing: float, r_drop: float) -> None:
    torch.manual_seed(1)
    found = []
    values = torch.randn(14, 24), torch.randn(37, 24), torch.randn(37)
    target = torch.randint(3, 37, (7,)).repeat(2)
    for function in (label_smoothed_loss, chunked_loss):
        hidden, weight, bias = (value.clone().requires_grad_() for value in values)
        bias.data[[PAD, BOS]] = NO_PROBABILITY
        loss, nll = function(*with_bias(hidden, weight, target, bias), smoothing, r_drop)
        found.append((loss, nll, *torch.autograd.grad(loss, (hidden, weight, bias))))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
    for gradient in found[0][3:]:
        assert not gradient[[PAD, BOS]].any()
