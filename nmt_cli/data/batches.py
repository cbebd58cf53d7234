"""Which pairs make an update, and how an update becomes tensors (section 5.1; DESIGN: "the experiment, not the machine").

    lengths ──▶ windows of about a million pairs, drawn from the whole corpus
    a window ──▶ pairs sorted by approximate length, cut into cells, cells shuffled, k cells an update
    an update's pairs ──▶ micro_batches: chunks of like length that fit the hardware, the same number for every rank
    a chunk's pairs ──▶ collate: Batch(src, tgt_in, tgt_out)

A *cell* holds at most `cell_tokens` source and as many target tokens, padding counted: the paper's update is eight
cells, one on each of its GPUs. An update's pairs depend on the lengths, `batch_tokens`, the seed and the epoch alone;
the machine only decides how they are cut again. No pair is left out of an epoch.

Memory holds one window, however large the corpus: a window is made of short runs of pairs (`RUN`) drawn from anywhere,
so its updates are as mixed as the corpus, and the lengths are looked up where they lie. A corpus of at most `WINDOW` pairs
is one window.

    B pairs   S source length   T target length, end symbol counted in both
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tokenizer import BOS, EOS, PAD

Indices = NDArray[np.int64]
Pair = tuple[NDArray[np.integer], NDArray[np.integer]]

CELLS = 8
"""Cells of an update: the paper's GPUs."""
SMALLEST_CELL = 2048
"""Tokens; smaller updates are made of fewer cells."""
WASTE = 0.08
"""Share of padding above which micro-batches are cut between unlike lengths, if both parts are worth running."""
WINDOW = 2**20
"""Pairs that are sorted together."""
RUN = 256
"""Pairs in a row of the corpus that come into the same window."""


class Lengths(Protocol):
    """Tokens of each pair's side, end symbol not counted: an array, or what looks them up in the shards."""

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
        """The pairs from `first` to before `end`, without padding that only others needed."""
        src_lengths, tgt_lengths = self.src_lengths[first:end], self.tgt_lengths[first:end]
        s, t = int(src_lengths.max()), int(tgt_lengths.max())
        return Batch(self.src[first:end, :s], src_lengths, self.tgt_in[first:end, :t], self.tgt_out[first:end, :t], tgt_lengths)


def cells_of(batch_tokens: int, longest: int = 0) -> tuple[int, int]:
    """How many cells make an update of `batch_tokens`, and the tokens of one; a cell holds the `longest` sentence."""
    count = max(1, min(CELLS, batch_tokens // max(SMALLEST_CELL, longest)))
    return count, batch_tokens // count


class EpochPlan:
    """The updates of each epoch, as arrays of pair numbers."""

    def __init__(self, source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, window: int = WINDOW) -> None:
        self._sides = (source_lengths, target_lengths)
        self.pairs, self.seed, self.window = len(source_lengths), seed, window
        self.longest = (int(source_lengths.max(initial=0)) + 1, int(target_lengths.max(initial=0)) + 1)
        """Tokens of the longest source and target side, end symbol counted."""
        self.cells_an_update, self.cell_tokens = cells_of(batch_tokens, max(self.longest))
        self._latest: tuple[tuple[int, int], list[Indices]] | None = None

    def lengths(self, pairs: Indices) -> tuple[Indices, Indices]:
        """Tokens of these pairs' source and target sides, end symbols counted."""
        source, target = (side[pairs].astype(np.int64) + 1 for side in self._sides)
        return source, target

    def updates(self, epoch: int, start: int = 0) -> Iterator[Indices]:
        """The pair numbers of every update of `epoch`, counted from 0, from the one at `start` on.

        Each pair stands in exactly one update.
        """
        for window in range(self._windows):
            updates = self._window(epoch, window)
            yield from updates[start:]
            start = max(0, start - len(updates))

    @property
    def updates_an_epoch(self) -> int:
        """How many updates an epoch has; of a corpus of several windows about: as if all had as many as the first."""
        return len(self._window(0, 0)) * self._windows if self.pairs else 0

    def target_tokens(self, pairs: Indices) -> int:
        """Target tokens of these pairs, end symbols counted."""
        return int(self.lengths(pairs)[1].sum())

    @property
    def _windows(self) -> int:
        return -(-self.pairs // self.window)

    def _window(self, epoch: int, window: int) -> list[Indices]:
        """The updates of one window; the latest is remembered."""
        if self._latest is None or self._latest[0] != (epoch, window):
            self._latest = ((epoch, window), self._plan(epoch, window))
        return self._latest[1]

    def _plan(self, epoch: int, window: int) -> list[Indices]:
        pairs = self._drawn(epoch, window)
        source, target = self.lengths(pairs)
        random = np.random.default_rng((self.seed, epoch, window) if self._windows > 1 else (self.seed, epoch))
        order = by_length(source + random.uniform(-1.0, 1.0, len(source)), target)
        cells = [pairs[order[first:last]] for first, last in spans(source[order], target[order], self.cell_tokens)]
        shuffled = [cells[i] for i in random.permutation(len(cells))]
        count = -(-len(cells) // self.cells_an_update)
        groups = np.array_split(np.arange(len(cells)), count)
        return [np.concatenate([shuffled[i] for i in group]) for group in groups]

    def _drawn(self, epoch: int, window: int) -> Indices:
        """The pairs of one window: of several, runs of the corpus in an order shuffled for this epoch."""
        if self._windows == 1:
            return np.arange(self.pairs)
        runs = np.random.default_rng((self.seed, epoch)).permutation(-(-self.pairs // RUN))
        mine = np.array_split(runs, self._windows)[window]
        pairs = (mine[:, None] * RUN + np.arange(RUN)).reshape(-1)
        return pairs[pairs < self.pairs]


def by_length(source: NDArray[Any], target: NDArray[Any]) -> Indices:
    """An order in which neighbours have like lengths: by target, within it by source, up and down in turn."""
    return np.lexsort((np.where(target % 2 == 0, source, -source), target))


def spans(source: Indices, target: Indices, tokens: int, waste: float = 1.0, least: int = SMALLEST_CELL) -> Iterator[tuple[int, int]]:
    """Cut a run of pairs, in the order given, where a padded side would exceed `tokens`; at least one pair each.

    Also cut where padding would exceed the share `waste` of a part that already has `least` tokens.
    """
    first, pairs = 0, len(source)
    while first < pairs:
        most = max(1, tokens // max(int(source[first]), int(target[first])))  # more can only be wider
        s, t = source[first : first + most + 1], target[first : first + most + 1]
        rows, wide_s, wide_t = np.arange(1, len(s) + 1), np.maximum.accumulate(s), np.maximum.accumulate(t)
        padded, real = rows * (wide_s + wide_t), np.cumsum(s + t)
        full = (rows * np.maximum(wide_s, wide_t) > tokens) | ((real - s - t > 2 * least) & (padded - real > waste * padded))
        full[0] = False
        last = first + (int(full.argmax()) if full.any() else len(s))
        yield first, last
        first = last


def micro_batches(plan: EpochPlan, pairs: Indices, tokens: int, ranks: int = 1) -> list[list[Indices]]:
    """Cut an update into micro-batches of at most `tokens` a side: for each rank a list, all of the same length.

    Together they hold each of `pairs` once. With fewer pairs than ranks some micro-batches are empty.
    """
    source, target = plan.lengths(pairs)
    order = by_length(source, target)
    parts = [pairs[order[a:b]] for a, b in spans(source[order], target[order], tokens, WASTE)]
    while len(parts) % ranks:
        largest = max(range(len(parts)), key=lambda i: len(parts[i]))
        middle = len(parts[largest]) // 2
        parts[largest : largest + 1] = [parts[largest][:middle], parts[largest][middle:]]
    return [parts[rank::ranks] for rank in range(ranks)]


def collate(pairs: Sequence[Pair]) -> Batch:
    """Pairs of id arrays, without BOS and EOS -> a padded Batch."""
    sources, targets = zip(*pairs, strict=True)
    src, src_lengths = _padded(sources, end=True)
    tgt_out, tgt_lengths = _padded(targets, end=True)
    tgt_in, _ = _padded(targets, start=True)
    return Batch(src, src_lengths, tgt_in, tgt_out, tgt_lengths)


def _padded(rows: Sequence[NDArray[np.integer]], start: bool = False, end: bool = False) -> tuple[Tensor, Tensor]:
    lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max())), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, int(start) : int(start) + len(row)] = row
        if start:
            padded[i, 0] = BOS
        if end:
            padded[i, len(row)] = EOS
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def padding_share(plan: EpochPlan, epoch: int, tokens: int) -> float:
    """Share of an epoch's padded tokens, both sides, that are padding."""
    real = padded = 0
    for update in plan.updates(epoch):
        for part in micro_batches(plan, update, tokens)[0]:
            source, target = plan.lengths(part)
            real += int(source.sum() + target.sum())
            padded += len(part) * int(source.max() + target.max())
    return 1.0 - real / padded


