"""Updates that depend on the experiment alone, micro-batches that hold each pair once, and padding that stays small."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch

from nmt_cli.data.batches import MAX_PADDING, EpochPlan, buckets_of, collate, micro_batches, spans
from nmt_cli.data.tokenizer import BOS, EOS, PAD

PAIRS = 20_000


def lengths(pairs: int = PAIRS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Like sentences: about 25 tokens with a long tail to 200, the target about as long give or take a fifth."""
    random = np.random.default_rng(seed)
    source = np.clip(np.round(np.exp(random.normal(3.0, 0.6, pairs))), 1, 200)
    target = np.clip(np.round(source * np.exp(random.normal(0.05, 0.2, pairs))), 1, 200)
    return source.astype(np.int32), target.astype(np.int32)


def plan_of(batch_tokens: int = 16_384, seed: int = 1, pairs: int = PAIRS) -> EpochPlan:
    return EpochPlan(*lengths(pairs), batch_tokens, seed)


@pytest.mark.parametrize(
    ("pairs", "batch_tokens"), [(PAIRS, 25_000), (PAIRS, 4096), (PAIRS, 500), (300, 16_384), (1, 1000)]
)
def test_every_pair_stands_in_one_update_and_none_exceeds_its_tokens(pairs: int, batch_tokens: int) -> None:
    plan, sides = plan_of(batch_tokens, pairs=pairs), lengths(pairs)
    for epoch in range(2):
        updates = list(plan.updates(epoch))
        np.testing.assert_array_equal(np.sort(np.concatenate(updates)), np.arange(pairs))
        sizes = np.array([[(side[update] + 1).sum() for side in sides] for update in updates])
        assert sizes.max() <= batch_tokens
        assert sizes.max(1).mean() > 0.85 * batch_tokens or pairs < PAIRS or batch_tokens == 500


def test_an_update_is_the_papers_eight_cells_and_mixes_lengths() -> None:
    """Each padded to at most 1/8 of the tokens: what one of eight GPUs took."""
    assert [buckets_of(tokens) for tokens in (25_000, 4096, 100)] == [(8, 3125), (2, 2048), (1, 100)]
    plan, (source, _) = plan_of(25_000), lengths()
    assert 8 <= len(micro_batches(plan, next(plan.updates(0)), 3125)[0]) <= 16
    # Cells are of like length, the eight of an update are drawn from anywhere.
    means, spreads = ([of(source[update]) for update in plan_of().updates(0)] for of in (np.mean, np.std))
    assert np.std(means) < np.mean(spreads)


def test_another_epoch_or_seed_has_other_updates() -> None:
    for plan in (plan_of(), windowed()):
        first, second = ({frozenset(update.tolist()) for update in plan.updates(epoch)} for epoch in (0, 1))
        assert not first & second
        assert not first & {frozenset(update.tolist()) for update in plan_of(seed=2).updates(0)}


def windowed(window: int = 3000, pairs: int = PAIRS) -> EpochPlan:
    return EpochPlan(*lengths(pairs), 4096, 1, window)


@pytest.mark.parametrize("pairs", [PAIRS, 3001, 6000, 256 * 24 + 1])
def test_several_windows_hold_every_pair_once_and_updates_stay_full(pairs: int) -> None:
    plan = windowed(pairs=pairs)
    whole = EpochPlan(*lengths(pairs), 4096, 1)
    for epoch in range(2):
        updates = list(plan.updates(epoch))
        np.testing.assert_array_equal(np.sort(np.concatenate(updates)), np.arange(pairs))
        assert len(updates) < 1.2 * len(list(whole.updates(epoch)))
    assert plan.updates_per_epoch == pytest.approx(len(updates), rel=0.15, abs=2)


def test_a_window_is_drawn_from_the_whole_corpus() -> None:
    """A corpus is often sorted, by where it comes from: an update must not be of one place, and each epoch draws anew."""
    first, again, second = (
        {run for update in islice(windowed().updates(epoch), 10) for run in (update // 256).tolist()}
        for epoch in (0, 0, 1)
    )
    assert first == again
    assert len(first & second) < len(first) / 2
    for update in islice(windowed(window=5000).updates(0), 3):
        runs = np.unique(update // 256)
        assert len(runs) > 15
        assert runs.min() < 20 < 60 < runs.max()


def test_an_epoch_goes_on_from_any_update() -> None:
    for window in (3000, PAIRS):
        every = list(windowed(window).updates(1))
        for start in (0, 1, 71, 200, 100_000):
            found = list(windowed(window).updates(1, start))
            assert len(found) == len(every[start:])
            assert all(map(np.array_equal, found, every[start:]))


def test_a_plan_holds_one_window_however_large_the_corpus() -> None:
    class Lengths:
        """Lengths that are looked up; the most asked for at once is noted."""

        def __init__(self, pairs: int) -> None:
            self.pairs, self.most = pairs, 0

        def __len__(self) -> int:
            return self.pairs

        def __getitem__(self, pairs: np.ndarray) -> np.ndarray:
            self.most = max(self.most, len(pairs))
            return (pairs % 30 + 1).astype(np.int32)

        def max(self, *, initial: int) -> int:
            return 30

    source = Lengths(50_000_000)
    plan = EpochPlan(source, source, 25_000, 1, window=10_000)
    assert sum(len(update) for update in islice(plan.updates(0), 20)) > 5000
    assert 0 < source.most <= 10_000 + 256


def plain_spans(
    source: list[int], target: list[int], tokens: int, max_padding: float, least: int
) -> Iterator[tuple[int, int]]:
    """`spans`, a pair at a time."""
    first = wide_s = wide_t = real = 0
    for index, (s, t) in enumerate(zip(source, target, strict=True)):
        rows, wide_s, wide_t = index - first + 1, max(wide_s, s), max(wide_t, t)
        padded = rows * (wide_s + wide_t)
        padded_much = real > 2 * least and padded - real - s - t > max_padding * padded
        if rows > 1 and (rows * max(wide_s, wide_t) > tokens or padded_much):
            yield first, index
            first, wide_s, wide_t, real = index, s, t, 0
        real += s + t
    if source:
        yield first, len(source)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize(
    ("tokens", "max_padding", "least"),
    [(1, 1.0, 1), (50, 1.0, 1), (3125, 1.0, 2048), (2048, 0.08, 200), (2048, 0.02, 20), (10**6, 0.5, 50)],
)
def test_spans_are_those_of_the_plain_loop(tokens: int, max_padding: float, least: int, sort: bool) -> None:
    for pairs in (0, 1, 2, 700):
        source, target = (side.astype(np.int64) for side in lengths(pairs, seed=pairs))
        order = np.argsort(target) if sort else np.arange(pairs)
        expected = list(plain_spans(source[order].tolist(), target[order].tolist(), tokens, max_padding, least))
        assert list(spans(source[order], target[order], tokens, max_padding, least)) == expected


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("tokens", [300, 2048, 16_384])
def test_micro_batches_hold_the_update_once_in_equal_numbers_within_the_limit(tokens: int, ranks: int) -> None:
    plan = plan_of()
    source, target = lengths()
    for update in islice(plan.updates(0), 5):
        parts = micro_batches(plan, update, tokens, ranks)
        assert len(parts) == ranks
        assert len({len(mine) for mine in parts}) == 1
        every = [part for mine in parts for part in mine]
        np.testing.assert_array_equal(np.sort(np.concatenate(every)), np.sort(update))
        work = [sum(plan.target_tokens(part) for part in mine) for mine in parts]
        assert tokens > 300 or max(work) < 1.5 * min(work)
        for part in every:
            assert len(part) == 1 or len(part) * max(source[part].max() + 1, target[part].max() + 1) <= tokens


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("tokens", [60, 300, 2048, 25_000])
def test_where_padding_does_not_count_micro_batches_are_few_and_alike(tokens: int, ranks: int) -> None:
    plan = plan_of(25_000)
    for update in islice(plan.updates(0), 3):
        parts = micro_batches(plan, update, tokens, ranks, None)
        every = [part for mine in parts for part in mine]
        assert len({len(mine) for mine in parts}) == 1
        np.testing.assert_array_equal(np.sort(np.concatenate(every)), np.sort(update))
        sides = np.array([[lengths.sum() for lengths in plan.lengths(part)] for part in every])
        assert all(len(part) == 1 or side.max() <= tokens for part, side in zip(every, sides, strict=True))
        assert len(parts[0]) <= len(micro_batches(plan, update, tokens, ranks, 1.0)[0])
        if tokens > 300:
            assert len(every) <= (-(-sides.sum(0).max() // (tokens * ranks)) + 1) * ranks
            assert (sides.max(0) < 1.2 * sides.min(0)).all()


@pytest.mark.parametrize("max_padding", [MAX_PADDING, None])
def test_of_fewer_pairs_than_ranks_each_is_one_micro_batch(max_padding: float | None) -> None:
    plan = plan_of(pairs=3)
    parts = micro_batches(plan, np.arange(3), 10_000, 8, max_padding)
    assert [len(mine) for mine in parts] == [1] * 8
    sizes = sorted(len(mine[0]) for mine in parts)
    assert sizes == [0] * 5 + [1] * 3
    plan = EpochPlan(np.array([3, 1, 2], np.int32), np.array([4, 1, 7], np.int32), 1000, 1)
    assert plan.target_tokens(np.array([0, 2])) == 5 + 8


@pytest.mark.parametrize(
    ("batch_tokens", "tokens", "pairs"),
    [(25_000, 25_000, 100_000), (25_000, 3125, 100_000), (4096, 2048, PAIRS), (4096, 1024, PAIRS)],
)
def test_padding_stays_below_8_percent(batch_tokens: int, tokens: int, pairs: int) -> None:
    """Base's update whole and in eight on a corpus of some size; a small machine's update on a small corpus."""
    plan, real, padded = plan_of(batch_tokens, pairs=pairs), 0, 0
    for update in plan.updates(0):
        for part in micro_batches(plan, update, tokens)[0]:
            source, target = plan.lengths(part)
            real += int(source.sum() + target.sum())
            padded += len(part) * int(source.max() + target.max())
    assert 0.001 < 1.0 - real / padded < 0.08


def test_a_batch_has_its_symbols_and_padding_in_place() -> None:
    pairs = [([10, 11, 12], [20]), ([13], [21, 22])]
    batch = collate([(np.array(source, np.uint16), np.array(target, np.uint16)) for source, target in pairs])
    assert batch.src.tolist() == [[10, 11, 12, EOS], [13, EOS, PAD, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 20, PAD], [BOS, 21, 22]]
    assert batch.tgt_out.tolist() == [[20, EOS, PAD], [21, 22, EOS]]
    assert batch.src_lengths.tolist() == [4, 2]
    assert batch.tgt_lengths.tolist() == [2, 3]
    assert {tensor.dtype for tensor in vars(batch).values()} == {torch.int64}


def test_ids_beyond_16_bits_survive_and_an_empty_side_is_its_symbol_alone() -> None:
    batch = collate([(np.array([65_000], np.uint16), np.array([100_000], np.uint32))])
    assert (batch.src.tolist(), batch.tgt_out.tolist()) == ([[65_000, EOS]], [[100_000, EOS]])
    batch = collate([(np.array([], np.uint16),) * 2])
    assert (batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist()) == ([[EOS]], [[BOS]], [[EOS]])
