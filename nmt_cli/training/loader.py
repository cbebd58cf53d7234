"""The data loader: for each update, the micro-batches of one rank.

    EpochPlan ──▶ rank_batches(…) ──▶ one RankBatch per update, with the same number of micro-batches on every rank

Micro-batches are packed on the CPU. For a GPU, worker processes do this ahead of time, so that the training loop never
waits for lengths or masks.

    B pairs   N, N' source and target tokens of a packed batch (see model/packing.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..data.batches import Batch, EpochPlan, Indices, collate, micro_batches
from ..data.shards import Corpus
from ..device import is_host
from ..hardware import Hardware
from ..model.packing import Packing
from .process_group import ProcessGroup

WORKERS = 2
"""Processes that prepare batches for a GPU. Training on a CPU has none: it needs all cores itself."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch without padding: ids src (N,), tgt_in (N',) and tgt_out (N',), laid out by the packings of both sides."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    source: Packing
    target: Packing

    @staticmethod
    def of(batch: Batch) -> PackedBatch:
        """Return the padded `batch`, packed."""
        source, target = Packing(batch.src_lengths), Packing(batch.tgt_lengths)
        return PackedBatch(source.pack(batch.src), target.pack(batch.tgt_in), target.pack(batch.tgt_out), source, target)

    def to(self, device: str) -> PackedBatch:
        """Return the batch on `device`. Copies to a GPU are asynchronous, from pinned memory."""
        if is_host(device):
            return self
        src, tgt_in, tgt_out = (ids.pin_memory().to(device, non_blocking=True) for ids in (self.src, self.tgt_in, self.tgt_out))
        return PackedBatch(src, tgt_in, tgt_out, self.source.to(device), self.target.to(device))


@dataclass(frozen=True)
class MicroBatch:
    """The pairs of one forward and backward pass."""

    batch: Batch
    packed: PackedBatch
    weight: float
    """A factor of the loss: 1, or 0 for a filler on a rank for which no pairs are left."""

    @staticmethod
    def of(batch: Batch, weight: float = 1.0) -> MicroBatch:
        """Return the micro-batch of `batch`, packed."""
        return MicroBatch(batch, PackedBatch.of(batch), weight)

    def split(self) -> list[MicroBatch]:
        """Return two micro-batches with half of the pairs each. For a single pair the second one has weight 0."""
        pairs = len(self.batch.src)
        if pairs == 1:
            return [self, replace(self, weight=0.0)]
        return [MicroBatch.of(self.batch.part(0, pairs // 2), self.weight), MicroBatch.of(self.batch.part(pairs // 2, pairs), self.weight)]

    def __str__(self) -> str:
        return f"{len(self.batch.src)} pairs of up to {self.batch.src.size(1)} source and {self.batch.tgt_out.size(1)} target tokens"


@dataclass(frozen=True)
class RankBatch:
    """One rank's part of an update."""

    micro_batches: list[MicroBatch]
    target_tokens: int
    """Target tokens of the whole update, over all ranks, end symbols counted."""
    pairs: Indices
    """The whole update's pairs, by their numbers in the corpus."""

    def split(self, index: int) -> RankBatch:
        """Return the rank batch with the micro-batch at `index` split in two."""
        micro_batches = [*self.micro_batches[:index], *self.micro_batches[index].split(), *self.micro_batches[index + 1 :]]
        return replace(self, micro_batches=micro_batches)


def rank_batches(corpus: Corpus, plan: EpochPlan, epoch: int, start: int, tokens: int, group: ProcessGroup, hardware: Hardware) -> Iterator[RankBatch]:
    """Yield this rank's batch for each update of `epoch`, from update `start` of the epoch on.

    `tokens` is the size limit of a micro-batch, per side, padding counted.
    """
    dataset = _RankBatches(corpus, plan, epoch, start, tokens, group)
    if is_host(hardware.device):
        return iter(dataset)
    return iter(DataLoader(dataset, batch_size=None, num_workers=WORKERS))


class _RankBatches(IterableDataset[RankBatch]):
    """Iterates over `rank_batches`. Of n worker processes, worker i prepares updates i, i + n, i + 2n, …"""

    def __init__(self, corpus: Corpus, plan: EpochPlan, epoch: int, start: int, tokens: int, group: ProcessGroup) -> None:
        self.corpus, self.plan, self.epoch, self.start, self.tokens, self.group = corpus, plan, epoch, start, tokens, group

    def __iter__(self) -> Iterator[RankBatch]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(self._rank_batch, islice(self.plan.updates(self.epoch, self.start), first, None, workers))

    def _rank_batch(self, pairs: Indices) -> RankBatch:
        """Return this rank's part of the update with these pairs."""
        parts = micro_batches(self.plan, pairs, self.tokens, self.group.world_size)[self.group.rank]
        weighted = [(part, 1.0) if len(part) else (pairs[:1], 0.0) for part in parts]
        batches = [MicroBatch.of(collate([self.corpus.pair(int(i)) for i in part]), weight) for part, weight in weighted]
        return RankBatch(batches, self.plan.target_tokens(pairs), pairs)
