"""Rank batches come in the plan's order, prepared in this process or in worker processes, and from any update on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from nmt_cli.data.batches import EpochPlan
from nmt_cli.data.shards import Corpus
from nmt_cli.hardware import Hardware
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup

PAIRS = 3000
LENGTHS = np.random.default_rng(1).integers(1, 30, PAIRS).astype(np.int32)


def corpus() -> Corpus:
    ids = np.arange(4, 40, dtype=np.uint16)
    return cast(Corpus, SimpleNamespace(pair=lambda i: (ids[: LENGTHS[i]], ids[: LENGTHS[i]])))


@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("window", [800, PAIRS])
def test_worker_processes_keep_the_order(start: int, window: int) -> None:
    def pairs(device: str) -> list[list[int]]:
        hardware = cast(Hardware, SimpleNamespace(device=device))
        plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1, window)
        return [batch.pairs.tolist() for batch in rank_batches(corpus(), plan, 0, start, 1024, ProcessGroup(), hardware)]

    expected = [update.tolist() for update in EpochPlan(LENGTHS, LENGTHS, 2048, 1, window).updates(0)]
    assert len(expected) > 10
    assert pairs("cpu") == expected[start:]
    assert pairs("elsewhere") == expected[start:]
