"""SSRU, a simple recurrent unit in the place of a decoder's self-attention (Kim et al. 2019, "From Research to
Production and Back: Ludicrously Fast Neural Machine Translation").

    f_t = sigmoid(W_f x_t + b_f)        c_t = f_t * c_(t-1) + (1 - f_t) * W x_t,   c_(-1) = 0        output: max(0, c_t)

A step of decoding reads the last state only, however long the output is. Training computes all states at once
(`states_of`). Small models that translate on people's own machines have such decoders; `model.decoder` chooses it.

    B batch   T target length   N rows of a packing   D d_model
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection
from .attention import Cache
from .packing import PADDED, Layout, Packing


class SSRU(nn.Module):
    """The unit. W and W_f are one matrix."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        size = config.d_model
        self.candidate_forget = nn.Linear(size, 2 * size, bias=False)
        for part in torch.split(self.candidate_forget.weight.data, size):
            nn.init.xavier_uniform_(part)
        self.forget_bias = nn.Parameter(torch.zeros(size))

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f and (1 - f) * W x, (…, D) each, for x (…, D): in fp32, as sums over many steps lose bits of bf16."""
        candidate, forget = self.candidate_forget(x).float().chunk(2, -1)
        kept = torch.sigmoid(forget + self.forget_bias)
        return kept, (1 - kept) * candidate

    def forward(self, x: Tensor, cache: Cache | None = None, layout: Layout = PADDED) -> Tensor:
        """Map x, (B, T, D) or packed (N, D), to as many rows.

        With a `cache`, x is only the newest position, (B, 1, D); the cache has the gates of all positions.
        """
        kept, added = self.gates(x)
        if cache is not None:
            kept, added = (gates[:, 0] for gates in cache.append(kept[:, None], added[:, None]))
        if isinstance(layout, Packing):
            positions, longest = layout.positions, layout.longest
        else:
            positions, longest = torch.arange(kept.size(1), device=x.device), kept.size(1)
        states = states_of(kept.masked_fill((positions == 0)[:, None], 0), added, longest)
        return F.relu(states[..., -x.size(-2) :, :]).to(x.dtype)


def states_of(kept: Tensor, added: Tensor, longest: int) -> Tensor:
    """Return c_t = kept_t * c_(t-1) + added_t for all t, (…, T, D).

    `kept` is zero at the first position of each sequence, so several of them, of at most `longest` positions, may
    follow one another.
    """
    return cast(Tensor, _States.apply(kept, added, longest))  # type: ignore[no-untyped-call]


class _States(torch.autograd.Function):
    """A recurrence in log2(longest) steps: after step s, a state has its last 2^s terms. Its gradient is the same
    recurrence from the end.
    """

    @staticmethod
    def forward(ctx: Any, kept: Tensor, added: Tensor, longest: int) -> Tensor:
        states = _scanned(kept, added, longest)
        ctx.longest = longest
        ctx.save_for_backward(kept, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        kept, states = ctx.saved_tensors
        later = F.pad(kept[..., 1:, :], (0, 0, 0, 1))  # what the next state keeps of this one
        grad = _scanned(later.flip(-2), grads[0].flip(-2), ctx.longest).flip(-2)
        return grad * F.pad(states[..., :-1, :], (0, 0, 1, 0)), grad, None


def _scanned(kept: Tensor, added: Tensor, longest: int) -> Tensor:
    """Return `states_of` without a gradient."""
    states, shift = added, 1
    while shift < min(longest, states.size(-2)):
        further = torch.addcmul(states[..., shift:, :], kept[..., shift:, :], states[..., :-shift, :])
        states = torch.cat((states[..., :shift, :], further), -2)
        kept = F.pad(kept[..., shift:, :] * kept[..., :-shift, :], (0, 0, shift, 0))
        shift *= 2
    return states
