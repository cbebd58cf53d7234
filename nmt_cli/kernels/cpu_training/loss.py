"""The loss of training/loss.py on a CPU, block by block, with its gradient formed in the forward pass.

    block of hidden (R, D) ──weight──▶ scores (R, V) ──engine──▶ the gradient in them, in the same memory
                                                                 ──▶ the gradients of hidden, and of weight

The scores of all rows are never in memory at once. Products are torch's, in the weights' dtype; the gradient of weight
is summed in fp32 over blocks.

R-Drop needs both passes of a token at once: a block then has some tokens' rows of the first pass and, below them, the
same tokens' rows of the second pass.

    N target tokens   D d_model   V vocabulary   R rows of a block
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...engine.library import library
from ..chunked_loss import paired, rows_for
from .calls import DTYPES, Address, Double, Int, address, pointer, structure

BLOCK_SCORES = 8_000_000
"""Scores of a block, R * V: they stay in a CPU's last cache, and the sum over blocks takes little time."""
_Form = structure("CLoss", (Int, "dtype rows size"), (Address, "targets"), (Double, "smoothing divergence"))


def block_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the same as `training.loss.label_smoothed_loss`: the sums over tokens of the loss and of the NLL, in nats.

    hidden (N, D) and weight (V, D), fp32 or bf16, are multiplied in their dtype. target (N,) has token ids.
    """
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()  # or autograd.Function would report that they need gradients
    if r_drop:
        order = paired(hidden.size(0), rows_for(BLOCK_SCORES, weight.size(0), 2))
        hidden, target = hidden.index_select(0, order), target.index_select(0, order)
    loss, nll = _BlockLoss.apply(hidden, weight, target, smoothing, r_drop)  # type: ignore[no-untyped-call]
    return loss, nll.detach()


class _BlockLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, r_drop: float) -> Any:
        hidden, weight, target = hidden.contiguous(), weight.contiguous(), target.long().contiguous()
        rows = rows_for(BLOCK_SCORES, weight.size(0), 2 if r_drop else 1)
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if for_hidden else None
        grad_weight = torch.zeros_like(weight) if for_weight and not target.size(0) else None
        sums = torch.zeros(2, dtype=torch.float64)
        for first in range(0, target.size(0), rows):
            block, targets = hidden[first : first + rows], target[first : first + rows]
            scores = torch.mm(block, weight.T, out=_scratch(block.size(0), weight.size(0), weight.dtype))
            form = _Form(DTYPES[weight.dtype], *scores.shape, address(targets), smoothing, r_drop)
            library().nmt_loss_rows(pointer(form), address(scores), address(sums))
            if grad_hidden is not None:
                torch.mm(scores, weight, out=grad_hidden[first : first + rows])
            if for_weight:
                product = torch.mm(scores.T, block)
                grad_weight = product if grad_weight is None else grad_weight.float().add_(product)
        ctx.save_for_backward(grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype))
        loss, nll = sums.float()
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad_hidden, grad_weight = (None if grad is None else grad * grads[0] for grad in ctx.saved_tensors)
        return grad_hidden, grad_weight, None, None, None


_memory = dict[torch.dtype, Tensor]()


def _scratch(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Return uninitialized memory (rows, columns) until the next call. It is kept, because new pages are expensive."""
    if dtype not in _memory or _memory[dtype].numel() < rows * columns:
        _memory[dtype] = torch.empty(rows * columns, dtype=dtype)
    return _memory[dtype][: rows * columns].view(rows, columns)
