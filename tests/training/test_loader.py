"""Rank batches come in the plan's order, prepared in this process or in worker processes, and from any update on."""

import gc
import multiprocessing
import pickle
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from nmt_cli.data.batches import MAX_PADDING, EpochPlan, Pair, collate
from nmt_cli.data.directions import BothDirections
from nmt_cli.data.shards import Corpus
from nmt_cli.device.hardware import Hardware
from nmt_cli.training import loader
from nmt_cli.training.loader import FlatBatch, MicroBatch, PackedBatch, RankBatch, TrainingText, rank_batches
from nmt_cli.training.process_group import ProcessGroup

PAIRS = 3000
LENGTHS = np.random.default_rng(1).integers(1, 30, PAIRS).astype(np.int32)


def corpus() -> Corpus:
    ids = np.arange(4, 40, dtype=np.uint16)
    return cast(Corpus, SimpleNamespace(pair=lambda i: (ids[: LENGTHS[i]], ids[: LENGTHS[i]])))


def first(plan: EpochPlan, tokens: int = 1024, rank: int = 0, ranks: int = 1, epoch: int = 0, **text: Any) -> RankBatch:
    """The first batch of a rank on a CPU."""
    group = ProcessGroup(rank, rank, ranks, ranks)
    return next(rank_batches(TrainingText(corpus(), plan, **text), epoch, 0, tokens, group, CPU))


CPU = cast(Hardware, SimpleNamespace(device="cpu"))
ELSEWHERE = cast(Hardware, SimpleNamespace(device="meta"))
"""As a GPU: worker processes prepare the batches."""
PLAN = EpochPlan(LENGTHS, LENGTHS, 2048, 1)


@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("window", [800, PAIRS])
def test_worker_processes_keep_the_order_from_epoch_to_epoch(start: int, window: int) -> None:
    plan = EpochPlan(LENGTHS, LENGTHS, 2048, 1, window)
    expected = [
        (epoch, update.tolist()) for epoch in (3, 4, 5) for update in plan.updates(epoch, 0 if epoch > 3 else start)
    ]
    assert len(expected) > 30

    def updates(hardware: Hardware) -> list[tuple[int, list[int]]]:
        stream = rank_batches(TrainingText(corpus(), plan), 3, start, 1024, ProcessGroup(), hardware)
        return [(batch.epoch, batch.pairs.tolist()) for batch in islice(stream, len(expected))]

    assert updates(CPU) == expected
    assert updates(ELSEWHERE) == expected


def test_epochs_follow_and_a_packed_batch_can_be_padded_again() -> None:
    batch = next(rank_batches(TrainingText(corpus(), PLAN), 0, PLAN.updates_per_epoch, 1024, ProcessGroup(), CPU))
    assert (batch.epoch, batch.pairs.tolist()) == (1, next(PLAN.updates(1)).tolist())
    numbers = np.arange(4, 40, dtype=np.uint16)
    padded_by_hand = collate([(numbers[:length], numbers[10 : 10 + length // 2]) for length in (3, 9, 1, 9)])
    for passes in (1, 2):
        padded = MicroBatch.of(padded_by_hand, passes).padded()
        for ours, theirs in zip(vars(padded).values(), vars(padded_by_hand).values(), strict=True):
            assert torch.equal(ours, theirs)


def test_workers_end_with_the_stream() -> None:
    before = set(multiprocessing.active_children())
    stream = rank_batches(TrainingText(corpus(), PLAN), 0, 0, 1024, ProcessGroup(), ELSEWHERE)
    next(stream)
    assert len(set(multiprocessing.active_children()) - before) == loader.WORKERS
    stream.close()  # type: ignore[attr-defined]
    gc.collect()
    assert set(multiprocessing.active_children()) <= before


def test_an_update_has_few_micro_batches_where_padding_costs_little_and_one_where_there_is_none() -> None:
    plan = EpochPlan(LENGTHS, LENGTHS, 16_000, 1)
    found = [len(first(plan, 16_000, max_padding=most).micro_batches) for most in (MAX_PADDING, 1.0, None)]
    assert found[0] > found[1] > found[2] == 1


def assert_equal(copy: PackedBatch, batch: PackedBatch) -> None:
    assert [tensor.tolist() for tensor in copy.tensors] == [tensor.tolist() for tensor in batch.tensors]
    for new, old in ((copy.source, batch.source), (copy.target, batch.target)):
        assert (new.tokens, new.sentences, new.longest, new.size) == (old.tokens, old.sentences, old.longest, old.size)
        assert (new.mask is None) == (old.mask is None)
        if new.mask is not None and old.mask is not None:
            assert torch.equal(new.mask, old.mask)


def test_a_batch_that_travels_to_a_device_arrives_whole() -> None:
    """As to a GPU: in one tensor, through another process. Here the device is this one."""
    plan = EpochPlan(LENGTHS, LENGTHS, 8192, 1)
    batch = first(plan)
    assert len(batch.micro_batches) > 3
    flat = pickle.loads(pickle.dumps(FlatBatch.of(batch)))
    storages = {tensor.untyped_storage().data_ptr() for tensor in flat.outline.tensors} - {0}
    assert not storages  # only `numbers` has memory
    copy = flat.to("cpu")
    for name in ("target_tokens", "epoch"):
        assert getattr(copy, name) == getattr(batch, name)
    assert copy.pairs.tolist() == batch.pairs.tolist()
    for ours, theirs in zip(copy.micro_batches, batch.micro_batches, strict=True):
        assert (ours.weight, ours.passes) == (theirs.weight, theirs.passes)
        assert_equal(ours.packed, theirs.packed)
        assert_equal(ours.packed.with_tensors([tensor.clone() for tensor in ours.packed.tensors]), theirs.packed)


@pytest.mark.parametrize("ranks", [1, 3])
def test_two_passes_hold_every_pair_twice_in_micro_batches_of_the_same_size(ranks: int) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        batch = first(PLAN, rank=rank, ranks=ranks, passes=2)
        assert batch.target_tokens == PLAN.target_tokens(batch.pairs)
        for micro_batch in batch.micro_batches:
            packed, once = micro_batch.packed, int(micro_batch.padded().tgt_lengths.sum())
            assert packed.target.tokens == 2 * once <= 1024
            assert torch.equal(packed.tgt_out[:once], packed.tgt_out[once : 2 * once])
            assert torch.equal(packed.tgt_in[:once], packed.tgt_in[once : 2 * once])
            assert micro_batch.weight in (0.5, 0.0)
            seen += micro_batch.padded().tgt_lengths.tolist() if micro_batch.weight else []
    assert sorted(seen) == sorted((LENGTHS[batch.pairs] + 1).tolist())


def test_a_split_micro_batch_keeps_its_passes() -> None:
    [whole, *_] = first(PLAN, passes=2).micro_batches
    halves = whole.split()
    assert [(half.passes, half.weight) for half in halves] == [(2, 0.5), (2, 0.5)]
    assert sum(half.packed.target.tokens for half in halves) == whole.packed.target.tokens


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_update_is_divided_by_the_tokens_that_its_pairs_really_have(ranks: int) -> None:
    """BPE-dropout changes how many tokens a pair has; the ranks agree on the sum without exchanging it."""

    def longer(pair: Pair, epoch: int, number: int) -> Pair:
        more = np.full((number + epoch) % 5, 7, np.uint16)
        return pair[0], np.concatenate([pair[1], more])

    batches = [first(PLAN, rank=rank, ranks=ranks, epoch=2, variations=[longer]) for rank in range(ranks)]
    real = sum(int(part.padded().tgt_lengths.sum()) for batch in batches for part in batch.micro_batches if part.weight)
    assert [batch.target_tokens for batch in batches] == [real] * ranks
    assert real == sum(int(LENGTHS[i]) + 1 + (i + 2) % 5 for i in batches[0].pairs.tolist())


def test_in_both_directions_each_epoch_turns_another_half_of_the_pairs_round() -> None:
    """By seed, epoch and number alone."""
    pairs = [(np.array([number], np.uint16), np.array([number + 1], np.uint16)) for number in range(2000)]

    def turned(seed: int, epoch: int) -> list[bool]:
        read = [BothDirections(seed)(pair, epoch, number) for number, pair in enumerate(pairs)]
        for now, before in zip(read, pairs, strict=True):
            assert {side.item() for side in now} == {side.item() for side in before}
        return [now[0] is before[1] for now, before in zip(read, pairs, strict=True)]

    first, again, later, other = turned(1, 0), turned(1, 0), turned(1, 1), turned(2, 0)
    assert first == again
    for draws in (first, *([a != b for a, b in zip(first, others, strict=True)] for others in (later, other))):
        assert abs(sum(draws) - 1000) < 100  # 4.5 standard deviations
