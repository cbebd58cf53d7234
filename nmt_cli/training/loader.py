"""What a rank takes through the model: an update's pairs, cut into micro-batches and laid in rows.

    EpochPlan ──▶ feed(…) ──▶ for each update this rank's Share: the same number of micro-batches on every rank

Everything here is made on the CPU, ahead of a GPU in processes of its own, so that the training loop never waits for a
length or a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..data.batches import Batch, EpochPlan, Indices, collate, micro_batches
from ..data.shards import Corpus
from ..hardware import Hardware
from ..model.packing import Packing
from .process_group import Ranks

WORKERS = 2  # processes that collate ahead of a GPU; a CPU has no time to spare for them


@dataclass(frozen=True)
class Rows:
    """A batch without padding: src (N,), tgt_in and tgt_out (N',) ids in rows as `source` and `target` say."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    source: Packing
    target: Packing

    @staticmethod
    def of(batch: Batch) -> Rows:
        source, target = Packing(batch.src_lengths), Packing(batch.tgt_lengths)
        return Rows(source.pack(batch.src), target.pack(batch.tgt_in), target.pack(batch.tgt_out), source, target)

    def to(self, device: str) -> Rows:
        """The same on `device`; copies from pinned memory do not wait."""
        if device == "cpu":
            return self
        src, tgt_in, tgt_out = (ids.pin_memory().to(device, non_blocking=True) for ids in (self.src, self.tgt_in, self.tgt_out))
        return Rows(src, tgt_in, tgt_out, self.source.to(device), self.target.to(device))


@dataclass(frozen=True)
class MicroBatch:
    """What goes through the model at once; its weight is 0 where there were fewer pairs than ranks, else 1."""

    batch: Batch
    rows: Rows
    weight: float

    @staticmethod
    def of(batch: Batch, weight: float = 1.0) -> MicroBatch:
        return MicroBatch(batch, Rows.of(batch), weight)

    def halves(self) -> list[MicroBatch]:
        """Two of half the pairs each; of a single pair the second has weight 0."""
        pairs = len(self.batch.src)
        if pairs == 1:
            return [self, replace(self, weight=0.0)]
        return [MicroBatch.of(self.batch.part(0, pairs // 2), self.weight), MicroBatch.of(self.batch.part(pairs // 2, pairs), self.weight)]

    def __str__(self) -> str:
        return f"{len(self.batch.src)} pairs of up to {self.batch.src.size(1)} source and {self.batch.tgt_out.size(1)} target tokens"


@dataclass(frozen=True)
class Share:
    """A rank's part of an update."""

    micro_batches: list[MicroBatch]
    target_tokens: int
    """Of the whole update, over all ranks."""
    pairs: Indices
    """Of the whole update: numbers of its pairs in the corpus."""

    def halved(self, index: int) -> Share:
        """The same with the micro-batch at `index` cut in two."""
        cut = self.micro_batches[:index] + self.micro_batches[index].halves() + self.micro_batches[index + 1 :]
        return replace(self, micro_batches=cut)


class _Shares(IterableDataset[Share]):
    """The shares of an epoch from the update at `start` on; of several worker processes each makes every so-many-th."""

    def __init__(self, corpus: Corpus, plan: EpochPlan, epoch: int, start: int, tokens: int, ranks: Ranks) -> None:
        self.corpus, self.plan, self.epoch, self.start, self.tokens, self.ranks = corpus, plan, epoch, start, tokens, ranks

    def __iter__(self) -> Iterator[Share]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(self._share, islice(self.plan.updates(self.epoch, self.start), first, None, workers))

    def _share(self, pairs: Indices) -> Share:
        mine = micro_batches(self.plan, pairs, self.tokens, self.ranks.world)[self.ranks.rank]
        batches = [(part, 1.0) if len(part) else (pairs[:1], 0.0) for part in mine]
        made = [MicroBatch.of(collate([self.corpus.pair(int(i)) for i in part]), weight) for part, weight in batches]
        return Share(made, self.plan.target_tokens(pairs), pairs)


def feed(corpus: Corpus, plan: EpochPlan, epoch: int, start: int, tokens: int, ranks: Ranks, hardware: Hardware) -> Iterator[Share]:
    """This rank's shares of the updates of `epoch`, from the one at `start` on; micro-batches of at most `tokens`."""
    shares = _Shares(corpus, plan, epoch, start, tokens, ranks)
    if hardware.device == "cpu":
        return iter(shares)
    return iter(DataLoader(shares, batch_size=None, num_workers=WORKERS))
