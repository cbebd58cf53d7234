"""The loss of training/loss.py on a GPU, chunk by chunk, with its gradient formed in the forward pass.

With scores z = h W^T, normalizer Z = logsumexp(z) and c = e / (V - 1), the loss of one token is

    Z - c * sum(z) - (1 - e - c) * z[target]      and its gradient in z is      softmax(z) - c - (1 - e - c) [target]

A chunk is R rows (tokens). Its softmax exists only while it is processed, so the whole (N, V) is never in memory. While
it is there, `_GradientSum` also forms the gradients of h and W from it. The constant c is never subtracted from (R, V):
sum(z) is h times the column sums of W, and the part of c in both gradients is one row. On a CPU, `cpu_training/loss.py`
computes the same.

A GPU spends more time on reading and writing (R, V) than on its products, so few operations do, and in bf16 the softmax
is in bf16 too. Its rounding is far below that of the scores, and what it would spoil is computed in fp32: Z, from the
largest score and the probability of all others (`_log_of_largest`), and the target's gradient, which is a difference.

R-Drop needs both passes of a token at once: a chunk then has some tokens' rows of the first pass and, below them, the
same tokens' rows of the second pass (`paired`). Let D = log P1 - log P2, weight a and c1 = KL(P1 || P2). The
divergence a / 2 * (c1 + c2) has the gradient a / 2 * (P1 (D - c1 + 1) - P2) in the scores of the first pass. In the
scores of the second pass it has the same gradient with 1 and 2 exchanged and -D.

In bf16 and fp16, the gradient of W is summed in fp32 over chunks. In fp16 its sum stays in fp32 until it is multiplied
by the loss's factor, because it could overflow.

    N target tokens   D d_model   V vocabulary   R rows of a chunk
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_SCORES = 128_000_000
"""Scores of a chunk, R * V: they keep a GPU busy, in 0.5 GiB of bf16."""


def chunked_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the same as `training.loss.label_smoothed_loss`: the sums over tokens of the loss and of the NLL, in nats.

    hidden (N, D) and weight (V, D) are multiplied in their dtype; sums are in fp32. target (N,) has token ids.
    """
    if r_drop:
        order = paired(hidden.size(0), rows_for(CHUNK_SCORES, weight.size(0), 2)).to(hidden.device)
        hidden, target = hidden.index_select(0, order), target.index_select(0, order)
    loss, nll = _ChunkedLoss.apply(hidden, weight, target, smoothing, r_drop)  # type: ignore[no-untyped-call]
    return loss, nll.detach()


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float) -> Any:
        uniform = smoothing / (weight.size(0) - 1)  # c
        peak = 1.0 - smoothing - uniform
        column_sums, hidden_sum = (each.sum(0, dtype=torch.float32) for each in (weight, hidden))
        rows = rows_for(CHUNK_SCORES, weight.size(0), 2 if r_drop else 1)
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        gradient = _GradientSum(hidden, weight, for_weight) if for_hidden or for_weight else None
        target_scores = log_probs = column_sums.new_empty(0, 1)
        divergence = column_sums.new_zeros(())
        for start in range(0, target.size(0), rows):
            chunk_target = target[start : start + rows, None]
            scores = hidden[start : start + rows] @ weight.T
            if r_drop or scores.dtype == torch.float16:
                scores = scores.float()
            softmax, largest = torch.softmax(scores, -1), scores.max(-1, keepdim=True)
            log_of_largest = _log_of_largest(softmax, largest.indices)
            target_score = scores.gather(1, chunk_target).float()
            log_prob = target_score - largest.values + log_of_largest
            target_scores, log_probs = torch.cat((target_scores, target_score)), torch.cat((log_probs, log_prob))
            if r_drop:
                normalizer = largest.values - log_of_largest
                divergence = divergence + _add_divergence(scores, softmax, normalizer, r_drop / 2)
            if gradient is not None:
                at_target = softmax.gather(1, chunk_target) if r_drop else log_prob.exp()
                gradient.add(start, softmax.scatter_(1, chunk_target, (at_target - peak).to(softmax.dtype)))
        if gradient is not None:
            ctx.save_for_backward(*gradient.finish(uniform, column_sums, hidden_sum))
        loss = ((1.0 - peak) * target_scores - log_probs).sum() - uniform * (hidden_sum @ column_sums)
        return loss + r_drop / 2 * divergence, -log_probs.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad_hidden, grad_weight = ctx.saved_tensors
        factor = grads[0]  # in fp32
        for_weight = None if grad_weight is None else (grad_weight * factor).to(grad_hidden.dtype)
        return grad_hidden * factor, for_weight, None, None, None


def rows_for(scores: int, vocabulary: int, passes: int) -> int:
    """Return the number of rows that have about so many scores, a multiple of `passes`."""
    return passes * max(1, scores // vocabulary // passes)


def paired(size: int, rows: int) -> Tensor:
    """Return an order of rows 0 to `size`, (N,), in which each chunk of `rows` has both passes of its tokens, one below
    the other.
    """
    passes = torch.arange(size).view(2, -1)
    return torch.cat([tokens.reshape(-1) for tokens in torch.split(passes, rows // 2, 1)])


def _log_of_largest(softmax: Tensor, token: Tensor) -> Tensor:
    """Return the log-probability of the most probable `token` (R, 1), in fp32.

    Near 1, a probability of `softmax` (R, V) has lost the digits that the sum of all others has.
    """
    largest = softmax.gather(1, token).float()
    others = softmax.sum(-1, keepdim=True, dtype=torch.float32) - largest
    return torch.where(largest > 0.5, torch.log1p(-others), largest.log())


def _add_divergence(scores: Tensor, softmax: Tensor, normalizer: Tensor, factor: float) -> Tensor:
    """Return the sum of KL(P1 || P2) + KL(P2 || P1) over a chunk's tokens; add its gradient times `factor` to
    `softmax`.

    scores and softmax (R, V) have the first pass in their upper half and the second in the lower one; `scores` is
    overwritten.
    """
    (first, second), (p1, p2) = scores.chunk(2), softmax.chunk(2)
    z1, z2 = normalizer.chunk(2)
    difference = first.sub_(second).sub_(z1 - z2)  # D
    kl1: Tensor = torch.linalg.vecdot(p1, difference)[:, None]
    kl2: Tensor = -torch.linalg.vecdot(p2, difference)[:, None]
    # p1's, in the memory of `second`
    first_weight = torch.mul(difference, factor, out=second).add_(1 + factor - factor * kl1)
    second_weight = difference.mul_(-factor).add_(1 + factor - factor * kl2)
    first_weight.mul_(p1).sub_(p2, alpha=factor)
    second_weight.mul_(p2).sub_(p1, alpha=factor)
    p1.copy_(first_weight)
    p2.copy_(second_weight)
    return kl1.sum() + kl2.sum()


class _GradientSum:
    """The gradients of hidden and weight, formed chunk by chunk from the gradient in the scores."""

    def __init__(self, hidden: Tensor, weight: Tensor, for_weight: bool) -> None:
        """`for_weight`: whether the gradient of weight is needed."""
        self.hidden, self.weight, self.for_weight = hidden, weight, for_weight
        self.grad_hidden = torch.empty_like(hidden)
        self.grad_weight: Tensor | None = None

    def add(self, first: int, grad_scores: Tensor) -> None:
        """Add the gradient in the scores of a chunk, (R, V), whose first row is row `first` of hidden."""
        grad_scores = grad_scores.to(self.weight.dtype)
        hidden = self.hidden[first : first + grad_scores.size(0)]
        torch.mm(grad_scores, self.weight, out=self.grad_hidden[first : first + grad_scores.size(0)])
        if not self.for_weight:
            return
        if self.grad_weight is None:
            self.grad_weight = grad_scores.T @ hidden
        elif hidden.dtype == torch.float32:
            self.grad_weight.addmm_(grad_scores.T, hidden)
        else:  # in fp32 from the second chunk on
            self.grad_weight = self.grad_weight.float().add_(grad_scores.T @ hidden)

    def finish(self, uniform: float, column_sums: Tensor, hidden_sum: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of hidden (N, D) and weight (V, D), with the part of c, which is `uniform`.

        That of weight is None if it is not needed. `column_sums` of W and `hidden_sum` are sums of rows, (D,) fp32.
        """
        self.grad_hidden -= (uniform * column_sums).to(self.grad_hidden.dtype)
        if not self.for_weight:
            return self.grad_hidden, None
        grad_weight = torch.zeros_like(self.weight) if self.grad_weight is None else self.grad_weight
        grad_weight -= (uniform * hidden_sum).to(grad_weight.dtype)
        return self.grad_hidden, grad_weight if self.weight.dtype == torch.float16 else grad_weight.to(
            self.weight.dtype
        )
