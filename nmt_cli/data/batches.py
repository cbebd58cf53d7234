"""Chooses the pairs of each update, and turns an update into tensors (section 5.1; DESIGN: "the experiment, not the
machine").

    lengths ──▶ windows of about a million pairs, drawn from the whole corpus
    a window ──▶ pairs sorted by approximate length, cut into buckets, buckets shuffled, k buckets per update
    the pairs of an update ──▶ micro_batches: parts of similar length that fit the hardware, equally many for every rank
    the pairs of a micro-batch ──▶ collate: Batch(src, tgt_in, tgt_out)

A bucket holds at most `bucket_tokens` source tokens and as many target tokens, padding counted. The paper's update has
eight buckets, one on each of its GPUs. The pairs of an update depend only on the lengths, `batch_tokens`, the seed and
the epoch. The hardware decides how they are cut into micro-batches. Every pair occurs once per epoch.

Where nothing computes padding, sentences need not be of similar length: then the parts are few, and alike.

Memory holds one window, however large the corpus is. A window consists of short runs of pairs (`RUN`) from random
positions of the corpus, so its updates are as mixed as the corpus. A corpus of at most `WINDOW` pairs is one window.

    B pairs   S source length   T target length (both count the end symbol)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .tokenizer import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch import Tensor

Indices = NDArray[np.int64]
Pair = tuple[NDArray[np.integer], NDArray[np.integer]]

BUCKETS = 8
"""Maximum number of buckets per update: the number of the paper's GPUs."""
SMALLEST_BUCKET = 2048
"""Minimum size of a bucket in tokens. Small updates have fewer buckets."""
MAX_PADDING = 0.08
"""Largest share of padding in a micro-batch on a CPU. Above this share the micro-batch is cut, if the parts are not too
small.

A GPU is faster with few large micro-batches: it computes little for padding, and needs the same time to start a small
one.
"""
WINDOW = 2**20
"""Number of pairs that are sorted together."""
RUN = 256
"""Number of consecutive pairs of the corpus that go into the same window."""


class Lengths(Protocol):
    """The lengths of one side in tokens without the end symbol: an array, or an object that reads them from shards."""

    def __len__(self) -> int: ...

    def __getitem__(self, pairs: Indices, /) -> NDArray[np.integer]: ...

    def max(self, *, initial: int) -> Any: ...


@dataclass(frozen=True)
class Batch:
    """Padded pairs: src (B, S) ends in EOS, tgt_in (B, T) starts with BOS, tgt_out (B, T) ends in EOS; lengths (B,)."""

    src: Tensor
    src_lengths: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_lengths: Tensor

    def part(self, first: int, end: int) -> Batch:
        """Return the pairs from `first` to before `end`, without padding that only the other pairs needed."""
        src_lengths, tgt_lengths = self.src_lengths[first:end], self.tgt_lengths[first:end]
        s, t = int(src_lengths.max()), int(tgt_lengths.max())
        return Batch(
            self.src[first:end, :s], src_lengths, self.tgt_in[first:end, :t], self.tgt_out[first:end, :t], tgt_lengths
        )


def buckets_of(batch_tokens: int, longest: int = 0) -> tuple[int, int]:
    """Return the number of buckets in an update of `batch_tokens`, and the tokens per bucket.

    The `longest` sentence fits into a bucket.
    """
    count = max(1, min(BUCKETS, batch_tokens // max(SMALLEST_BUCKET, longest)))
    return count, batch_tokens // count


class EpochPlan:
    """The updates of each epoch, as arrays of pair indices."""

    def __init__(
        self, source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, window: int = WINDOW
    ) -> None:
        self._sides = (source_lengths, target_lengths)
        self.pairs, self.seed, self.window = len(source_lengths), seed, window
        self.longest = (int(source_lengths.max(initial=0)) + 1, int(target_lengths.max(initial=0)) + 1)
        """Tokens of the longest source and target side, end symbol counted."""
        self.buckets_per_update, self.bucket_tokens = buckets_of(batch_tokens, max(self.longest))
        self._latest: tuple[tuple[int, int], list[Indices]] | None = None

    def lengths(self, pairs: Indices) -> tuple[Indices, Indices]:
        """Return the lengths of the source and target sides of `pairs` in tokens, end symbols counted."""
        source, target = (side[pairs].astype(np.int64) + 1 for side in self._sides)
        return source, target

    def updates(self, epoch: int, start: int = 0) -> Iterator[Indices]:
        """Yield the pair indices of every update of `epoch` (counted from 0), beginning with update `start`.

        Each pair is in exactly one update.
        """
        for window in range(self._windows):
            updates = self._window(epoch, window)
            yield from updates[start:]
            start = max(0, start - len(updates))

    @property
    def updates_per_epoch(self) -> int:
        """Return the number of updates in an epoch.

        For several windows this is an estimate: updates of the first window, times the number of windows.
        """
        return len(self._window(0, 0)) * self._windows if self.pairs else 0

    def target_tokens(self, pairs: Indices) -> int:
        """Return the number of target tokens in `pairs`, end symbols counted."""
        return int(self.lengths(pairs)[1].sum())

    @property
    def _windows(self) -> int:
        return -(-self.pairs // self.window)

    def _window(self, epoch: int, window: int) -> list[Indices]:
        """Return the updates of one window. The latest window is cached."""
        if self._latest is None or self._latest[0] != (epoch, window):
            self._latest = ((epoch, window), self._plan(epoch, window))
        return self._latest[1]

    def _plan(self, epoch: int, window: int) -> list[Indices]:
        pairs = self._drawn(epoch, window)
        source, target = self.lengths(pairs)
        random = np.random.default_rng((self.seed, epoch, window) if self._windows > 1 else (self.seed, epoch))
        order = by_length(source + random.uniform(-1.0, 1.0, len(source)), target)
        buckets = [pairs[order[first:last]] for first, last in spans(source[order], target[order], self.bucket_tokens)]
        shuffled = [buckets[i] for i in random.permutation(len(buckets))]
        count = -(-len(buckets) // self.buckets_per_update)
        groups = np.array_split(np.arange(len(buckets)), count)
        return [np.concatenate([shuffled[i] for i in group]) for group in groups]

    def _drawn(self, epoch: int, window: int) -> Indices:
        """Return the pairs of one window.

        With several windows, each window gets random runs of the corpus, drawn anew in each epoch.
        """
        if self._windows == 1:
            return np.arange(self.pairs)
        runs = np.random.default_rng((self.seed, epoch)).permutation(-(-self.pairs // RUN))
        mine = np.array_split(runs, self._windows)[window]
        pairs = (mine[:, None] * RUN + np.arange(RUN)).reshape(-1)
        return pairs[pairs < self.pairs]


def by_length(source: NDArray[Any], target: NDArray[Any]) -> Indices:
    """Return an order in which neighbours have similar lengths: by target, then source length, up and down in turn."""
    return np.lexsort((np.where(target % 2 == 0, source, -source), target))


def spans(
    source: Indices, target: Indices, tokens: int, max_padding: float = 1.0, least: int = SMALLEST_BUCKET
) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of consecutive parts.

    Each padded side of a part has at most `tokens`; a part has at least one pair.

    A part also ends where padding would exceed the share `max_padding` and the part already has `least` tokens per
    side.
    """
    first, pairs = 0, len(source)
    while first < pairs:
        most = max(1, tokens // max(int(source[first]), int(target[first])))  # more pairs cannot be narrower
        s, t = source[first : first + most + 1], target[first : first + most + 1]
        rows, wide_s, wide_t = np.arange(1, len(s) + 1), np.maximum.accumulate(s), np.maximum.accumulate(t)
        padded, real = rows * (wide_s + wide_t), np.cumsum(s + t)
        full = (rows * np.maximum(wide_s, wide_t) > tokens) | (
            (real - s - t > 2 * least) & (padded - real > max_padding * padded)
        )
        full[0] = False
        last = first + (int(full.argmax()) if full.any() else len(s))
        yield first, last
        first = last


def micro_batches(
    plan: EpochPlan, pairs: Indices, tokens: int, ranks: int = 1, max_padding: float | None = MAX_PADDING
) -> list[list[Indices]]:
    """Cut an update into micro-batches of at most `tokens` per side; return one list per rank, all equally long.

    The micro-batches together hold each of `pairs` once. With fewer pairs than ranks, some micro-batches are empty.
    Padding counts, see `spans`; with `max_padding` None it does not.
    """
    source, target = plan.lengths(pairs)
    order, most = by_length(source, target), 1.0 if max_padding is None else max_padding
    parts = [order[a:b] for a, b in spans(source[order], target[order], tokens, most)]
    if max_padding is None:
        fewest = -(-max(source.sum(), target.sum()) // (tokens * ranks)) * ranks
        parts = _alike(source, target, order, tokens, range(fewest, len(parts) + ranks, ranks)) or parts
    while len(parts) % ranks:
        largest = max(range(len(parts)), key=lambda i: len(parts[i]))
        middle = len(parts[largest]) // 2
        parts[largest : largest + 1] = [parts[largest][:middle], parts[largest][middle:]]
    return [[pairs[part] for part in parts[rank::ranks]] for rank in range(ranks)]


def _alike(source: Indices, target: Indices, order: Indices, tokens: int, counts: range) -> list[Indices]:
    """Return `order`, cut into parts of at most `tokens` per side, each with pairs of all lengths.

    The number of parts is the first that will do of `counts`; if none does, there are no parts.
    """
    for count in counts:
        parts = [order[first::count] for first in range(count)]
        if max(max(source[part].sum(), target[part].sum()) for part in parts) <= tokens:
            return parts
    return []


def collate(pairs: Sequence[Pair]) -> Batch:
    """Return pairs of id arrays, without BOS and EOS, as a padded Batch."""
    sources, targets = zip(*pairs, strict=True)
    src, src_lengths = _padded(sources)
    tgt_out, tgt_lengths = _padded(targets)
    tgt_in, _ = _padded(targets, shift=1)
    return Batch(src, src_lengths, tgt_in, tgt_out, tgt_lengths)


def _padded(rows: Sequence[NDArray[np.integer]], shift: int = 0) -> tuple[Tensor, Tensor]:
    """Return padded rows and their lengths. Each row ends in EOS; with a `shift` of 1 it starts with BOS instead."""
    import torch

    lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max())), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, shift : shift + len(row)] = row
        padded[i, 0 if shift else len(row)] = BOS if shift else EOS
    return torch.from_numpy(padded), torch.from_numpy(lengths)
