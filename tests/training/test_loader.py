"""Rank batches come in the plan's order, prepared in this process or in worker processes, and from any update on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from nmt_cli.data.batches import EpochPlan, Pair
from nmt_cli.data.directions import BothDirections
from nmt_cli.data.shards import Corpus
from nmt_cli.hardware import Hardware
from nmt_cli.training import loader
from nmt_cli.training.loader import MicroBatch, TrainingText, rank_batches
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
        return [batch.pairs.tolist() for batch in rank_batches(TrainingText(corpus(), plan), 0, start, 1024, ProcessGroup(), hardware)]

    expected = [update.tolist() for update in EpochPlan(LENGTHS, LENGTHS, 2048, 1, window).updates(0)]
    assert len(expected) > 10
    assert pairs("cpu") == expected[start:]
    assert pairs("elsewhere") == expected[start:]


def test_on_a_gpu_padding_does_not_cut_micro_batches() -> None:
    plan = EpochPlan(LENGTHS, LENGTHS, 24_000, 1)

    def micro_batches(device: str) -> int:
        return len(next(rank_batches(TrainingText(corpus(), plan), 0, 0, 24_000, ProcessGroup(), cast(Hardware, SimpleNamespace(device=device)))).micro_batches)

    assert micro_batches("cpu") > 2
    assert micro_batches("elsewhere") <= 2


def test_a_batch_that_travels_to_a_device_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As to a GPU: all in one copy. Here the device is this one."""
    plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1)
    batch = next(rank_batches(TrainingText(corpus(), plan), 0, 0, 1024, ProcessGroup(), cast(Hardware, SimpleNamespace(device="cpu")))).micro_batches[0].packed
    monkeypatch.setattr(loader, "is_host", lambda _: False)
    copy = batch.to("cpu")
    for ours, theirs in zip((copy.src, copy.tgt_in, copy.tgt_out), (batch.src, batch.tgt_in, batch.tgt_out), strict=True):
        assert torch.equal(ours, theirs)
        assert ours is not theirs
    for new, old in ((copy.source, batch.source), (copy.target, batch.target)):
        assert new.tokens == old.tokens
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(new.parts, old.parts, strict=True))
        assert (new.mask is None) == (old.mask is None)
        if new.mask is not None and old.mask is not None:
            assert torch.equal(new.mask, old.mask)


@pytest.mark.parametrize("ranks", [1, 3])
def test_two_passes_hold_every_pair_twice_in_micro_batches_of_the_same_size(ranks: int) -> None:
    plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1)
    seen: list[int] = []
    for rank in range(ranks):
        batch = next(rank_batches(TrainingText(corpus(), plan, passes=2), 0, 0, 1024, ProcessGroup(rank, rank, ranks, ranks), cast(Hardware, SimpleNamespace(device="cpu"))))
        assert batch.target_tokens == plan.target_tokens(batch.pairs)
        for micro_batch in batch.micro_batches:
            packed, once = micro_batch.packed, int(micro_batch.batch.tgt_lengths.sum())
            assert packed.target.tokens == 2 * once <= 1024
            assert torch.equal(packed.tgt_out[:once], packed.tgt_out[once : 2 * once])
            assert torch.equal(packed.tgt_in[:once], packed.tgt_in[once : 2 * once])
            assert micro_batch.weight in (0.5, 0.0)
            seen += micro_batch.batch.tgt_lengths.tolist() if micro_batch.weight else []
    assert sorted(seen) == sorted((LENGTHS[batch.pairs] + 1).tolist())


def test_a_split_micro_batch_keeps_its_passes() -> None:
    plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1)
    batch = next(rank_batches(TrainingText(corpus(), plan, passes=2), 0, 0, 1024, ProcessGroup(), cast(Hardware, SimpleNamespace(device="cpu"))))
    halves = batch.micro_batches[0].split()
    assert [(half.passes, half.weight) for half in halves] == [(2, 0.5), (2, 0.5)]
    assert sum(half.packed.target.tokens for half in halves) == batch.micro_batches[0].packed.target.tokens
    filler = MicroBatch.of(halves[0].batch, 2, is_filler=True)
    assert [half.weight for half in filler.split()] == [0.0, 0.0]


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_update_is_divided_by_the_tokens_that_its_pairs_really_have(ranks: int) -> None:
    """BPE-dropout changes how many tokens a pair has; the ranks agree on the sum without exchanging it."""

    def longer(pair: Pair, epoch: int, number: int) -> Pair:
        more = np.full((number + epoch) % 5, 7, np.uint16)
        return pair[0], np.concatenate([pair[1], more])

    plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1)
    text = TrainingText(corpus(), plan, [longer])
    batches = [next(rank_batches(text, 2, 0, 1024, ProcessGroup(rank, rank, ranks, ranks), cast(Hardware, SimpleNamespace(device="cpu")))) for rank in range(ranks)]
    real = sum(int(part.batch.tgt_lengths.sum()) for batch in batches for part in batch.micro_batches if part.weight)
    assert [batch.target_tokens for batch in batches] == [real] * ranks
    assert real == sum(int(LENGTHS[i]) + 1 + (i + 2) % 5 for i in batches[0].pairs.tolist())


def test_in_both_directions_each_epoch_turns_another_half_of_the_pairs_round() -> None:
    """By seed, epoch and number alone."""
    pairs = [(np.array([number], np.uint16), np.array([number + 1], np.uint16)) for number in range(2000)]

    def turned(seed: int, epoch: int) -> list[bool]:
        read = [BothDirections(seed)(pair, epoch, number) for number, pair in enumerate(pairs)]
        assert all({side.item() for side in now} == {side.item() for side in before} for now, before in zip(read, pairs, strict=True))
        return [now[0] is before[1] for now, before in zip(read, pairs, strict=True)]

    first, again, later, other = turned(1, 0), turned(1, 0), turned(1, 1), turned(2, 0)
    assert first == again
    for draws in (first, [a != b for a, b in zip(first, later, strict=True)], [a != b for a, b in zip(first, other, strict=True)]):
        assert abs(sum(draws) - 1000) < 100  # 4.5 standard deviations
