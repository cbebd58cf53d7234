"""Label-smoothed cross-entropy over the vocabulary (section 5.4), formed together with its gradient.

    N target tokens   D d_model   V vocabulary   R rows taken at once

The target distribution puts 1 - e on the gold token and e / (V - 1) on each other entry. With scores z = h W^T,
normaliser Z = logsumexp(z) and c = e / (V - 1), a token's smoothed loss is

    Z - c * sum(z) - (1 - e - c) * z[gold]              and its gradient in z      softmax(z) - c - (1 - e - c) [gold]

`smoothed_loss` goes over R rows at a time, so that (N, V) never exists in fp32, and while a row's softmax is at hand it
also forms the gradients of h and W. The constant c is never subtracted from (R, V): sum(z) is h times the column sums of W, and
its share of the gradients is an outer product. `smoothed_loss_plain` is the slow twin: the definition, by torch's
autograd. Both return sums; the training loop divides once an update, by the tokens of all ranks (section 5.1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CELLS = {"cpu": 1_250_000, "cuda": 64_000_000}
"""Scores held at once in fp32, rows times vocabulary: few enough for a CPU's outer cache, enough for full-speed products."""
BLOCK = 32_000_000
"""Softmax values held at once in bf16; W's gradient is summed in fp32 between such blocks, in a matrix product within."""


class _SmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, gold: Tensor, smoothing: float) -> Any:
        vocabulary, with_gradient = weight.size(0), any(ctx.needs_input_grad)
        share = smoothing / (vocabulary - 1)  # c
        peak = 1.0 - smoothing - share
        column_sums = weight.sum(0, dtype=torch.float32)  # (D,)
        smoothed = nll = hidden.new_zeros((), dtype=torch.float32)
        rows = max(1, CELLS.get(hidden.device.type, CELLS["cuda"]) // vocabulary)
        block = rows if weight.dtype == torch.float32 else -(-max(rows, BLOCK // vocabulary) // rows) * rows
        softmaxes = _room((min(block, gold.size(0)), vocabulary), weight, weight.dtype) if with_gradient else None
        grad_h, grad_w = torch.empty_like(hidden), None
        for first in range(0, gold.size(0), rows):
            h, gold_r = hidden[first : first + rows], gold[first : first + rows, None]
            scores = _room((len(h), vocabulary), weight, torch.float32, "scores").copy_(h @ weight.T)  # (R, V)
            softmax = torch.softmax(scores, -1, out=_room((len(h), vocabulary), weight, torch.float32, "softmax"))
            normaliser = scores.amax(-1, keepdim=True) - softmax.amax(-1, keepdim=True).log()  # Z, (R, 1)
            of_gold = scores.gather(1, gold_r)
            nll = nll + (normaliser - of_gold).sum()
            smoothed = smoothed + (normaliser - peak * of_gold).sum() - share * (h.float() @ column_sums).sum()
            if softmaxes is None:
                continue
            softmax.scatter_add_(1, gold_r, softmax.new_full((1, 1), -peak).expand_as(gold_r))
            start, end = first // block * block, first + len(h)  # of the block
            softmaxes[first - start : end - start] = softmax
            if end - start == block or end == gold.size(0):
                of_block = softmaxes[: end - start]
                torch.mm(of_block, weight, out=grad_h[start:end])
                grad_w = _added(grad_w, of_block.T, hidden[start:end])
        if with_gradient:
            grad_w = torch.zeros_like(weight) if grad_w is None else grad_w  # of no tokens
            grad_h -= (share * column_sums).to(grad_h.dtype)
            grad_w -= (share * hidden.sum(0, dtype=torch.float32)).to(grad_w.dtype)
            ctx.save_for_backward(grad_h, grad_w.to(weight.dtype))
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad_h, grad_w = ctx.saved_tensors
        return grad_h * grads[0], grad_w * grads[0], None, None  # the factor is not rounded


_rooms: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}


def _room(shape: tuple[int, int], like: Tensor, dtype: torch.dtype, use: str = "") -> Tensor:
    """Uninitialised memory for a use that ends with the pass. A CPU keeps it from pass to pass: fresh pages are dear."""
    cells = shape[0] * shape[1]
    if like.device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=like.device)
    key = (use, like.device, dtype)
    if key not in _rooms or _rooms[key].numel() < cells:
        _rooms[key] = torch.empty(cells, dtype=dtype)
    return _rooms[key][:cells].view(shape)


def _added(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a b, in fp32 once there is something to add to."""
    if total is None:
        return a @ b
    return total.addmm_(a, b) if b.dtype == torch.float32 else total.float().add_(a @ b)


def smoothed_loss(hidden: Tensor, weight: Tensor, gold: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over tokens of the smoothed loss, which carries the gradient, and of the plain NLL, which does not.

    hidden (N, D), weight (V, D), gold (N,) ids; matrix products run in their dtype, sums in fp32. In nats.
    """
    smoothed, nll = _SmoothedLoss.apply(hidden, weight, gold, smoothing)  # type: ignore[no-untyped-call]
    return smoothed, nll.detach()


def smoothed_loss_plain(hidden: Tensor, weight: Tensor, gold: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The slow twin of `smoothed_loss`: the whole (N, V), the distribution written out, torch's autograd."""
    log_probs = F.linear(hidden, weight).log_softmax(-1)  # (N, V)
    target = torch.full_like(log_probs, smoothing / (weight.size(0) - 1))
    target.scatter_(1, gold[:, None], 1.0 - smoothing)
    nll = F.nll_loss(log_probs, gold, reduction="sum")
    return -(target * log_probs).sum(), nll.detach()
