"""Dropout by 16-bit draws: rates within statistical bounds, gradients that are the mask, seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.kernels.cpu_training.dropout import FastDropout, FastDropoutAdd, keep_mask

LEVELS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    dropped: Tensor = FastDropout(p).train(training)(x)
    return dropped


def add_dropout(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    added: Tensor = FastDropoutAdd(p).train(training)(x, y)
    return added


DRAWS = 200_000


def real_rate(p: float) -> float:
    return round(p * LEVELS) / LEVELS


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_quarters_of_a_random_word_drop_at_the_rate_and_independently(p: float) -> None:
    torch.manual_seed(1)
    dropped, rate = (keep_mask(torch.empty(DRAWS, 4), p) == 0).double(), real_rate(p)

    def check(found: Tensor, chance: float) -> None:
        assert abs(found.mean().item() - chance) < 4.5 * math.sqrt(chance * (1 - chance) / DRAWS)

    assert abs(rate - p) <= 2**-17
    for position in range(4):
        check(dropped[:, position], rate)
    for a, b in itertools.combinations(range(4), 2):
        check(dropped[:, a] * dropped[:, b], rate**2)
    check(dropped[:-1, 3] * dropped[1:, 0], rate**2)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 2**-16, 1 - 2**-16])
def test_of_all_16_bit_draws_exactly_the_share_p_drops(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    every = np.arange(LEVELS, dtype=np.uint16).view(np.uint64)
    monkeypatch.setattr(np.random, "SFC64", lambda _: SimpleNamespace(random_raw=lambda _: every))
    mask = keep_mask(torch.empty(LEVELS), p)
    assert int((mask == 0).sum()) == round(p * LEVELS)
    assert mask.double().mean().item() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 3, 7), (1000,)])
def test_a_mask_holds_zero_and_the_scale_of_its_real_rate(p: float, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    mask = keep_mask(torch.empty(shape, dtype=dtype), p)
    assert (mask.dtype, mask.shape) == (dtype, shape)
    both = {0.0, torch.tensor(1 / (1 - real_rate(p)), dtype=dtype).item()}
    found = set(mask.flatten().tolist())
    assert found == both if shape == (1000,) else found <= both


def test_the_seed_governs_the_mask() -> None:
    like = torch.empty(100)
    torch.manual_seed(7)
    first, second = keep_mask(like, 0.3), keep_mask(like, 0.3)
    torch.manual_seed(7)
    assert torch.equal(keep_mask(like, 0.3), first)
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    third = keep_mask(like, 0.3)
    torch.set_rng_state(state)
    assert torch.equal(keep_mask(like, 0.3), third)


def test_dropout_multiplies_by_the_mask_and_add_dropout_adds_that() -> None:
    """The gradient is the mask, too."""
    x, y, wanted = (torch.randn(4, 9, requires_grad=True) for _ in range(3))

    def seeded(compute: Callable[[], Tensor]) -> Tensor:
        torch.manual_seed(8)
        return compute()

    mask = seeded(lambda: keep_mask(y, 0.3))
    assert 0 < int((mask == 0).sum()) < mask.numel()
    assert torch.equal(seeded(lambda: dropout(y, 0.3, training=True)), y * mask)
    added = seeded(lambda: add_dropout(x, y, 0.3, training=True))
    torch.testing.assert_close(added, x + y * mask)
    of_x, of_y = torch.autograd.grad(added, (x, y), wanted)
    assert torch.equal(of_x, wanted)
    assert torch.equal(of_y, wanted * mask)


def test_the_residual_stream_keeps_its_precision_beside_a_bf16_sub_layer() -> None:
    x = torch.randn(3, 8, requires_grad=True)
    y = torch.randn(3, 8, dtype=torch.bfloat16, requires_grad=True)
    out = add_dropout(x, y, 0.3, training=True)
    of_x, of_y = torch.autograd.grad(out.sum(), (x, y))
    assert (out.dtype, of_x.dtype, of_y.dtype) == (torch.float32, torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("p", "training"), [(0.3, False), (0.0, True), (0.0, False)])
def test_nothing_is_dropped_or_drawn_in_evaluation_or_at_rate_zero(p: float, training: bool) -> None:
    x, y = torch.randn(50), torch.randn(50)
    state = torch.get_rng_state()
    assert torch.equal(dropout(x, p, training), x)
    assert torch.equal(add_dropout(x, y, p, training), x + y)
    assert torch.equal(torch.get_rng_state(), state)
