"""Which pairs make an update, and how an update becomes tensors (section 5.1; DESIGN: "the experiment, not the machine").

    lengths ──▶ epoch: pairs sorted by approximate length, cut into cells, cells shuffled, k cells an update
    an update's pairs ──▶ micro_batches: chunks of like length that fit the hardware, the same number for every rank
    a chunk's pairs ──▶ collate: Batch(src, tgt_in, tgt_out)

A *cell* holds at most `cell_tokens` source and as many target tokens, padding counted: the paper's update is eight
cells, one on each of its GPUs. An update's pairs depend on the lengths, `batch_tokens`, the seed and the epoch alone;
the machine only decides how they are cut again. No pair is left out of an epoch.

    B pairs   S source length   T target length, end symbol counted in both
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tokenizer import BOS, EOS, PAD

Indices = NDArray[np.int64]
Lengths = NDArray[np.int32]
Pair = tuple[NDArray[np.integer], NDArray[np.integer]]

CELLS = 8
"""Cells of an update: the paper's GPUs."""
SMALLEST_CELL = 2048
"""Tokens; smaller updates are made of fewer cells."""
WASTE = 0.08
"""Share of padding above which micro-batches are cut between unlike lengths, if both parts are worth running."""


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
    """The updates of each epoch: `updates(epoch)` is a list of arrays of pair numbers."""

    def __init__(self, source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int) -> None:
        self.source = source_lengths.astype(np.int64) + 1  # EOS
        self.target = target_lengths.astype(np.int64) + 1
        self.seed = seed
        self.cells_an_update, self.cell_tokens = cells_of(batch_tokens, int(max(self.source.max(initial=0), self.target.max(initial=0))))
        self._cached: tuple[int, list[Indices]] | None = None

    def updates(self, epoch: int) -> list[Indices]:
        """The pair numbers of every update of `epoch`, counted from 0; each pair stands in exactly one update."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._plan(epoch))
        return self._cached[1]

    def _plan(self, epoch: int) -> list[Indices]:
        random = np.random.default_rng((self.seed, epoch))
        order = by_length(self.source + random.uniform(-1.0, 1.0, len(self.source)), self.target)
        cells = [order[first:last] for first, last in spans(self.source[order], self.target[order], self.cell_tokens)]
        shuffled = [cells[i] for i in random.permutation(len(cells))]
        count = -(-len(cells) // self.cells_an_update)
        groups = np.array_split(np.arange(len(cells)), count)
        return [np.concatenate([shuffled[i] for i in group]) for group in groups]

    def target_tokens(self, pairs: Indices) -> int:
        """Target tokens of these pairs, end symbols counted."""
        return int(self.target[pairs].sum())


def by_length(source: NDArray[Any], target: NDArray[Any]) -> Indices:
    """An order in which neighbours have like lengths: by target, within it by source, up and down in turn."""
    return np.lexsort((np.where(target % 2 == 0, source, -source), target))


def spans(source: Indices, target: Indices, tokens: int, waste: float = 1.0, least: int = SMALLEST_CELL) -> Iterator[tuple[int, int]]:
    """Cut a run of pairs, in the order given, where a padded side would exceed `tokens`; at least one pair each.

    Also cut where padding would exceed the share `waste` of a part that already has `least` tokens.
    """
    first = widest_source = widest_target = real = 0
    for index, (s, t) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        rows, wide_s, wide_t = index - first + 1, max(widest_source, s), max(widest_target, t)
        padded = rows * (wide_s + wide_t)
        full = rows * max(wide_s, wide_t) > tokens or (real > 2 * least and padded - real - s - t > waste * padded)
        if full and rows > 1:
            yield first, index
            first, wide_s, wide_t, real = index, s, t, 0
        widest_source, widest_target, real = wide_s, wide_t, real + s + t
    if len(source):
        yield first, len(source)


def micro_batches(plan: EpochPlan, pairs: Indices, tokens: int, ranks: int = 1) -> list[list[Indices]]:
    """Cut an update into micro-batches of at most `tokens` a side: for each rank a list, all of the same length.

    Together they hold each of `pairs` once. With fewer pairs than ranks some micro-batches are empty.
    """
    order = pairs[by_length(plan.source[pairs], plan.target[pairs])]
    parts = [order[a:b] for a, b in spans(plan.source[order], plan.target[order], tokens, WASTE)]
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
            real += int(plan.source[part].sum() + plan.target[part].sum())
            padded += len(part) * int(plan.source[part].max() + plan.target[part].max())
    return 1.0 - real / padded


