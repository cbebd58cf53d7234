"""Attention over packed sentences (equation 1), by torch's variable-length FlashAttention on a GPU.

    x (N, D) ──projection──▶ query, key, value (N, H, K) ──attend_packed──▶ (N, H, K) ──output──▶ (N, D)

The sentences stay one after another, so no rows are gathered, no padding is computed, and there is no mask. The spare
rows of a packing attend to one another like a sentence of their own: no real token sees them, and they stay finite.
`SelfAttention` and `CrossAttention` over the same packing are the reference; inputs that are not packed are passed to
them.

    N rows of a packing   H heads   K d_k, equal to d_v
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import torch
from torch import Tensor, nn

from ...model.attention import Cache, CrossAttention, SelfAttention, attend
from ...model.packing import PADDED, Layout, Packing

KINDS = (SelfAttention, CrossAttention)
DTYPES = (torch.bfloat16, torch.float16)
WIDEST, WIDTH_STEP = 256, 8
"""FlashAttention supports K up to WIDEST, in steps of WIDTH_STEP."""


def supports(module: SelfAttention | CrossAttention) -> str:
    """Return "" if FlashAttention can compute the attention of `module` on its GPU, else the reason why not."""
    weight, width = module.output.weight, module.output.in_features // module.num_heads
    if weight.dtype not in DTYPES:
        return f"attention in {str(weight.dtype).removeprefix('torch.')} on a GPU has no kernel"
    if type(module) not in KINDS or module.attend is not attend:
        return f"attention {type(module).__name__!r} has no kernel"
    if module.dropout:
        return "dropout on attention weights has no kernel"
    if len(set(module.sizes)) > 1:
        return "attention with d_k other than d_v has no kernel"
    if width > WIDEST or width % WIDTH_STEP:
        return f"attention with d_k = {width} has no kernel: expected a multiple of {WIDTH_STEP} up to {WIDEST}"
    return "" if works(weight.device, weight.dtype) else "this torch has no variable-length attention for this GPU"


def attend_packed(query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, causal: bool) -> Tensor:
    """Return equation (1) for each sentence of two packings by itself, (N, H, K).

    query (N, H, K), key and value (N', H, K); `queries` and `keys` are the packings of N and of N'.
    """
    from torch.nn.attention.varlen import varlen_attn

    lengths = queries.longest_run, keys.longest_run
    window = (-1, 0) if causal else (-1, -1)
    return cast(Tensor, varlen_attn(query, key, value, queries.bounds, keys.bounds, *lengths, window_size=window))


class _Packed(nn.Module):
    """Attention with the settings and the parameters of `plain`."""

    def __init__(
        self, plain: SelfAttention | CrossAttention, attend_packed: Callable[..., Tensor] = attend_packed
    ) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(plain), _modules=dict(plain._modules))
        self.attend_packed = attend_packed


class PackedSelfAttention(_Packed, SelfAttention):
    """`SelfAttention` over packed sentences."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool = False,
        cache: Cache | None = None,
        layout: Layout = PADDED,
        start: int = 0,
    ) -> Tensor:
        """x (N, D) -> (N, D). The packing decides which positions may be attended to; `mask` is not used."""
        if not isinstance(layout, Packing):
            return super().forward(x, mask, causal, cache, layout, start)
        query, key, value = self.project(x, layout.positions).view(len(x), 3, self.num_heads, -1).unbind(1)
        return self.output(self.attend_packed(query, key, value, layout, layout, causal).flatten(1))  # type: ignore[no-any-return]


class PackedCrossAttention(_Packed, CrossAttention):
    """`CrossAttention` over packed sentences."""

    def project(self, memory: Tensor, layout: Layout = PADDED) -> tuple[Tensor, Tensor]:
        """Return keys and values of the packed memory (N', D): both (N', H, K)."""
        if not isinstance(layout, Packing):
            return super().project(memory, layout)
        key, value = self.key_value(memory).view(len(memory), 2, self.num_heads, -1).unbind(1)
        return key, value

    def forward(
        self,
        x: Tensor,
        projected: tuple[Tensor, Tensor],
        mask: Tensor | None,
        layout: Layout = PADDED,
        memory_layout: Layout = PADDED,
    ) -> Tensor:
        """x (N, D), `projected` from `project` -> (N, D)."""
        if not isinstance(layout, Packing) or not isinstance(memory_layout, Packing):
            return super().forward(x, projected, mask, layout)
        query = self.query(x).view(len(x), self.num_heads, -1)
        return self.output(self.attend_packed(query, *projected, layout, memory_layout, False).flatten(1))  # type: ignore[no-any-return]


def replacement(module: SelfAttention | CrossAttention) -> nn.Module:
    """Return the faster module over the same parameters."""
    return PackedSelfAttention(module) if isinstance(module, SelfAttention) else PackedCrossAttention(module)


@cache
def works(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether this torch has attention over packed sentences, and its gradients, for this GPU."""
    packing = Packing(torch.tensor([5, 3])).to(str(device))
    x = torch.ones(packing.size, 2, 2 * WIDTH_STEP, device=device, dtype=dtype, requires_grad=True)
    try:
        attend_packed(x, x, x, packing, packing, True).sum().backward()  # type: ignore[no-untyped-call]
    except (AttributeError, ImportError, TypeError, NotImplementedError, RuntimeError):
        return False
    return True
