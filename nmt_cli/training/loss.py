"""The loss: label-smoothed cross-entropy over the vocabulary (section 5.4), and R-Drop's consistency of two passes.

    hidden (N, D) ──weight (V, D)──▶ scores (N, V) ──▶ log-probabilities ──▶ loss and nll, sums over N tokens

The target distribution has 1 - e on the target token and e / (V - 1) on each other token of the vocabulary. `nll` is
the cross-entropy without smoothing; perplexity is computed from it. Both are sums: the training loop divides once per
update, by the target tokens of all ranks (section 5.1).

R-Drop (Liang et al. 2021, arXiv 2106.14448, equation 4) passes every pair through the model twice, each time with
different dropout. It adds the divergence between a token's two distributions P1 and P2 to the two cross-entropies:

    CE(P1) + CE(P2) + r_drop / 2 * (KL(P1 || P2) + KL(P2 || P1))

A model with an output bias gives padding and the begin symbol no probability; `with_bias` leaves them out.

    N target tokens   D d_model   V vocabulary

This is the reference implementation, in plain torch on any device. `kernels/chunked_loss.py` and
`kernels/cpu_training/loss.py` compute the same loss faster, in less memory.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..model.transformer import ABSENT

COLUMNS = 16
"""Columns that `with_bias` adds."""


def label_smoothed_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the sums over tokens of the loss and of the NLL, in nats. Only the loss has a gradient.

    hidden (N, D) and weight (V, D) are multiplied in their dtype; all later steps are in fp32 or a wider dtype. target
    (N,) has token ids; `smoothing` is e. With `r_drop` above 0, N is even, and rows n and N / 2 + n are the two passes
    of one token.
    """
    scores = F.linear(hidden, weight)  # (N, V)
    log_probs = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    distribution = torch.full_like(log_probs, smoothing / (weight.size(0) - 1))
    distribution.scatter_(1, target[:, None], 1.0 - smoothing)
    loss = -(distribution * log_probs).sum()
    nll = F.nll_loss(log_probs, target, reduction="sum")
    if r_drop:
        loss = loss + r_drop / 2 * symmetric_divergence(*log_probs.chunk(2))
    return loss, nll.detach()


def with_bias(hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden (N, D'), weight (V', D') and target (N,) whose scores have the bias (V,) in them.

    V' tokens are those with a probability: all but `ABSENT`, among which no loss spreads. The bias is a column of the
    weight, and its feature in `hidden` is 1. D' is D + 16: matrix products are slow with odd sizes.
    """
    columns = F.pad(bias[:, None], (0, COLUMNS - 1))
    ones = F.pad(hidden.new_ones(hidden.size(0), 1), (0, COLUMNS - 1))
    rows = torch.cat((weight, columns), 1)
    ends = zip((0, *(token + 1 for token in ABSENT)), (*ABSENT, None), strict=True)
    kept = torch.cat([rows[first:last] for first, last in ends])
    return torch.cat((hidden, ones), 1), kept, target - sum((target > token).long() for token in ABSENT)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum over tokens of KL(P1 || P2) + KL(P2 || P1), in nats, of two log-probabilities (N, V)."""
    return ((first.exp() - second.exp()) * (first - second)).sum()
