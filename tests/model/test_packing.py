"""Rows without padding against the padded block: the same values and gradients, whatever the lengths."""

from typing import Any

import pytest
import torch
from small_models import small
from torch import Tensor

from nmt_cli.model.packing import ROWS, Packing
from nmt_cli.model.transformer import attention_mask

V = 50
LENGTHS = [([9, 3, 6, 1], [7, 8, 2, 5]), ([4, 4], [4, 4]), ([1], [1]), ([3, 70, 12], [64, 1, 63])]
"""Of sources and targets; with the third, tokens that fill the rows but for one."""


def padded(lengths: list[int]) -> Tensor:
    ids = torch.randint(4, V, (len(lengths), max(lengths)))
    ids[torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]] = 0
    return ids


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual": "pre"},
        {"positions": "learned", "tie_embeddings": False},
        {"d_k": 5, "d_v": 7},
        {"positions": "rotary"},
        {"decoder": "ssru"},
        {"monotonic_attention": True},
        {"monotonic_attention": True, "residual": "pre"},
    ],
    ids=str,
)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_values_and_gradients_equal_padded_ones(changes: dict[str, Any], lengths: tuple[list[int], list[int]]) -> None:
    model = small(V, **{"dropout": 0.0, "max_positions": 100, **changes})
    src, tgt_in = padded(lengths[0]), padded(lengths[1])
    src_lengths, tgt_lengths = torch.tensor(lengths[0]), torch.tensor(lengths[1])
    source, target = Packing(src_lengths), Packing(tgt_lengths)
    rows = model.forward_packed(source.pack(src), source, target.pack(tgt_in), target)
    block = model(src, attention_mask(src_lengths, src.size(1)), tgt_in)
    real = torch.arange(tgt_in.size(1)) < tgt_lengths[:, None]
    assert rows.size(0) % ROWS == 0
    torch.testing.assert_close(rows[: target.tokens], block[real], atol=1e-5, rtol=1e-5)
    wanted = torch.randn_like(block[real])
    parameters = list(model.parameters())
    ours = torch.autograd.grad((rows[: target.tokens] * wanted).sum(), parameters, allow_unused=True)
    theirs = torch.autograd.grad((block[real] * wanted).sum(), parameters, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        if b is not None:  # the output matrix, when it is not tied, is the loss's
            torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5)
