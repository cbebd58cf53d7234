"""The attention weights that a model computes in one pass over a sentence and a given output (teacher forcing).

    source ids (S), target ids (T) ──▶ one pass of the model ──▶ hidden (T, D), and weights (H, T, S) of each recorded module

`alignment` and `attention_maps` read their weights here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from ..model.attention import CrossAttention, SelfAttention, record_attention
from ..model.transformer import Transformer

Attention = SelfAttention | CrossAttention


class _Recording:
    """The lock for recording. Only one thread records at a time: workers share their models, and recording changes how a module attends."""

    lock = threading.Lock()


def _unlock() -> None:
    _Recording.lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)  # the thread that held the lock may not exist in the child


@torch.inference_mode()
def record_pass(
    model: Transformer, modules: Sequence[Attention], source: Sequence[int], target: Sequence[int]
) -> tuple[Tensor, list[Tensor]]:
    """Return the decoder's output, (T, D), and the weights of each of these modules, (H, rows, columns).

    `source` are ids with the end symbol, `target` ids that start with the begin symbol. The model is in evaluation mode. A row of
    weights is a query, a column a key; a row sums to 1.
    """
    device = model.device
    with ExitStack() as stack:
        stack.enter_context(_Recording.lock)
        records = [stack.enter_context(record_attention(module)) for module in modules]
        hidden = model(torch.tensor([list(source)], device=device), None, torch.tensor([list(target)], device=device))
    return hidden[0], [weights[0] for [weights] in records]
