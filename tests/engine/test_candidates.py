"""The engine ranks candidates as `TorchArrays` does in plain torch."""

from typing import Any

import pytest
import torch
from both_arrays import TORCH
from small_models import needs_engine
from torch import Tensor

from nmt_cli.engine.model import Bans, log_softmax, rank

pytestmark = needs_engine
BATCH, BANNED = 6, (0, 1, 2, 3, 5, 6)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def top_candidates(*given: Any) -> tuple[Tensor, Tensor]:
    """The engine's, as tensors."""
    arrays: list[Any] = [each.numpy() if isinstance(each, Tensor) else each for each in given]
    values, flat = rank(*arrays)
    return torch.from_numpy(values), torch.from_numpy(flat)


@pytest.mark.parametrize("size", [7, 64, 100, 1000])
@pytest.mark.parametrize(("beam", "count"), [(1, 1), (4, 8), (5, 10), (12, 24)])
@pytest.mark.parametrize("bound", [False, True], ids=["free", "only"])
@pytest.mark.parametrize("bans", [False, True], ids=["all", "some"])
def test_the_best_candidates(size: int, beam: int, count: int, bound: bool, bans: bool) -> None:
    """Random logits, equal logits, and log-probabilities; some hypotheses have one candidate, which may be banned."""
    so_far = drawn(BATCH, beam, seed=2).sort(1, descending=True).values
    so_far[:, 1:][drawn(BATCH, beam - 1, seed=3) < -0.5] = -torch.inf
    so_far[2] = -torch.inf  # no hypothesis is open
    rows = so_far.flatten().isfinite().nonzero().flatten()
    only = torch.full((len(rows),), -1)
    only[::3], only[1::4] = 4, 0
    counts = torch.tensor([3, 6, 4, 0])[torch.arange(len(rows)) % 4] if bans else None
    logits = drawn(len(rows), size)
    for given, before, normalized in [
        (logits, so_far, False),
        (logits[:1].round().expand_as(logits), so_far.masked_fill(so_far.isfinite(), 0.0), False),
        (torch.zeros_like(logits), so_far, False),
        (logits.log_softmax(1), so_far, True),
        (logits.log_softmax(1).masked_fill(logits > 0.5, -torch.inf), so_far, True),
    ]:
        more = (before, rows, count, Bans(BANNED, counts), only if bound else None, normalized)
        (values, flat), (expected, numbers) = (
            top_candidates(given.clone(), *more),
            TORCH.top_candidates(given.clone(), *more),
        )
        there = expected.size(1)
        tolerance = 0.0 if normalized else 1e-5
        torch.testing.assert_close(values[:, :there], expected, atol=tolerance, rtol=tolerance)
        assert values[:, there:].isneginf().all()
        assert values[2].isneginf().all()
        assert torch.equal(flat[:, :there][expected.isfinite()], numbers[expected.isfinite()])


def test_logits_that_are_no_numbers_come_first() -> None:
    """NaN, or infinity, in a hypothesis of sentence 0."""
    rows = torch.arange(4)
    for value in (torch.nan, torch.inf):
        logits = drawn(4, 500)
        logits[1, 400] = value
        values, _ = top_candidates(logits, torch.zeros(2, 2), rows, 4, Bans((0,)), None, False)
        assert values[0, 0].isnan()
        assert values[1].isfinite().all()


def test_log_softmax() -> None:
    for size in (1, 7, 256, 257, 5000):
        logits = 5 * drawn(20, size)
        logits[3, ::2] -= 1e30
        ours = torch.from_numpy(log_softmax(logits.clone().numpy()))
        torch.testing.assert_close(ours, logits.log_softmax(1), atol=1e-5, rtol=1e-6)
        values, flat = top_candidates(logits.clone(), torch.zeros(20, 1), torch.arange(20), size, Bans(()), None, False)
        assert torch.equal(values, ours.gather(1, flat))
