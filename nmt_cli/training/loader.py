"""The data loader: for each update, the micro-batches of one rank.

    EpochPlan ──▶ rank_batches(…) ──▶ one RankBatch per update, with the same number of micro-batches on every rank

Micro-batches are packed on the CPU. For a GPU, worker processes do this ahead of time, so that the training loop never
waits for lengths or masks.

    B pairs   N, N' source and target tokens of a packed batch (see model/packing.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..data.batches import MAX_PADDING, Batch, EpochPlan, Indices, Pair, collate, micro_batches
from ..data.shards import Corpus
from ..device import is_host, to_device
from ..hardware import Hardware
from ..model.packing import Packing
from .process_group import ProcessGroup

Variation = Callable[[Pair, int, int], Pair]
"""(a pair, the epoch, the pair's number in the corpus) → the pair as it is read in this epoch: always the same one."""
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
    def of(batch: Batch, passes: int = 1) -> PackedBatch:
        """Return the padded `batch`, packed: all its pairs once for each pass, one pass after the other."""
        source, target = Packing(batch.src_lengths.repeat(passes)), Packing(batch.tgt_lengths.repeat(passes))
        src, tgt_in, tgt_out = (side.repeat(passes, 1) for side in (batch.src, batch.tgt_in, batch.tgt_out))
        return PackedBatch(source.pack(src), target.pack(tgt_in), target.pack(tgt_out), source, target)

    def to(self, device: str) -> PackedBatch:
        """Return the batch on `device`. Its tensors travel to a GPU as one, and nothing waits for them."""
        if is_host(device):
            return self
        source, target = self.source.parts, self.target.parts
        src, tgt_in, tgt_out, *parts = to_device([self.src, self.tgt_in, self.tgt_out, *source, *target], device)
        return PackedBatch(src, tgt_in, tgt_out, self.source.of(parts[: len(source)]), self.target.of(parts[len(source) :]))


@dataclass(frozen=True)
class MicroBatch:
    """The pairs of one forward and backward pass."""

    batch: Batch
    packed: PackedBatch
    weight: float
    """A factor of the loss: 1 over the passes, or 0 for a filler on a rank for which no pairs are left."""
    passes: int = 1
    """How often the pairs are in `packed`: 2 for R-Drop."""

    @staticmethod
    def of(batch: Batch, passes: int = 1, is_filler: bool = False) -> MicroBatch:
        """Return the micro-batch of `batch`, packed."""
        return MicroBatch(batch, PackedBatch.of(batch, passes), 0.0 if is_filler else 1 / passes, passes)

    def split(self) -> list[MicroBatch]:
        """Return two micro-batches with half of the pairs each. For a single pair the second one has weight 0."""
        pairs = len(self.batch.src)
        if pairs == 1:
            return [self, replace(self, weight=0.0)]
        halves = (self.batch.part(0, pairs // 2), self.batch.part(pairs // 2, pairs))
        return [MicroBatch.of(half, self.passes, not self.weight) for half in halves]

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


@dataclass(frozen=True)
class TrainingText:
    """The pairs that training reads: from where, in which updates, and how they are varied."""

    corpus: Corpus
    plan: EpochPlan
    variations: Sequence[Variation] = ()
    passes: int = 1
    """How often each pair of an update goes through the model: 2 for R-Drop."""

    def pair(self, number: int, epoch: int) -> Pair:
        """Return the ids of pair `number` of the corpus as they are in `epoch`."""
        pair: Pair = self.corpus.pair(number)
        for vary in self.variations:
            pair = vary(pair, epoch, number)
        return pair


def rank_batches(text: TrainingText, epoch: int, start: int, tokens: int, group: ProcessGroup, hardware: Hardware) -> Iterator[RankBatch]:
    """Yield this rank's batch for each update of `epoch`, from update `start` of the epoch on.

    `tokens` is the size limit of a micro-batch, per side, padding and all passes counted.
    """
    dataset = _RankBatches(text, epoch, start, tokens, group, max_padding(hardware))
    if is_host(hardware.device):
        return iter(dataset)
    return iter(DataLoader(dataset, batch_size=None, num_workers=WORKERS))


def max_padding(hardware: Hardware) -> float:
    """Return the largest share of padding in a micro-batch: on a GPU, only memory limits it."""
    return MAX_PADDING if is_host(hardware.device) else 1.0


class _RankBatches(IterableDataset[RankBatch]):
    """Iterates over `rank_batches`. Of n worker processes, worker i prepares updates i, i + n, i + 2n, …"""

    def __init__(self, text: TrainingText, epoch: int, start: int, tokens: int, group: ProcessGroup, max_padding: float) -> None:
        self.text, self.epoch, self.start, self.tokens, self.group, self.max_padding = text, epoch, start, tokens, group, max_padding

    def __iter__(self) -> Iterator[RankBatch]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(self._rank_batch, islice(self.text.plan.updates(self.epoch, self.start), first, None, workers))

    def _rank_batch(self, pairs: Indices) -> RankBatch:
        """Return this rank's part of the update with these pairs."""
        text, passes = self.text, self.text.passes
        parts = micro_batches(text.plan, pairs, max(1, self.tokens // passes), self.group.world_size, self.max_padding)[self.group.rank]
        numbers = [(part if len(part) else pairs[:1]).tolist() for part in parts]
        if text.variations:  # the tokens of all ranks' pairs are counted, so all are read
            ids = {number: text.pair(number, self.epoch) for number in pairs.tolist()}
            target_tokens = sum(len(target) + 1 for _, target in ids.values())
        else:
            ids = {number: text.pair(number, self.epoch) for row in numbers for number in row}
            target_tokens = text.plan.target_tokens(pairs)
        batches = [MicroBatch.of(collate([ids[number] for number in row]), passes, is_filler=not len(part)) for row, part in zip(numbers, parts, strict=True)]
        return RankBatch(batches, target_tokens, pairs)
