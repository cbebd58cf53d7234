"""The data loader: for each update, the micro-batches of one rank.

    EpochPlan ──▶ rank_batches(…) ──▶ one RankBatch per update, with the same number of micro-batches on every rank

Micro-batches are packed on the CPU. For a GPU, worker processes do this ahead of time, so that the training loop never
waits for lengths or masks:

    worker process: RankBatch ──▶ FlatBatch ──shared memory──▶ pinned memory ──one copy──▶ RankBatch on the GPU

All numbers of an update travel in one tensor: one file descriptor, one block of pinned memory, one copy. The workers
live as long as the training.

    B pairs   N, N' source and target tokens of a packed batch (see model/packing.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..data.batches import MAX_PADDING, Batch, EpochPlan, Indices, Pair, collate, micro_batches
from ..data.shards import Corpus
from ..data.tokenizer import PAD
from ..device.hardware import Hardware
from ..device.torch_device import copies_from_pinned_memory, is_host, split_like, to_device
from ..model.packing import Packing
from .process_group import ProcessGroup

Variation = Callable[[Pair, int, int], Pair]
"""(a pair, the epoch, the pair's index in the corpus) → the pair to read in this epoch. The result depends on nothing
else."""
WORKERS = 2
"""The number of processes that prepare batches for a GPU. Training on a CPU uses none, because it needs all cores
itself."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch without padding: ids src (N,), tgt_in (N',), tgt_out (N',), as `source` and `target` describe."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    source: Packing
    target: Packing

    @staticmethod
    def of(batch: Batch, passes: int = 1, numbers: Sequence[int] | None = None) -> PackedBatch:
        """Pack the padded `batch`, and repeat all its pairs for each pass, one pass after the other.

        `numbers` (B,) are the pairs' indices in the corpus; without them the pairs are numbered from 0.
        """
        pairs = torch.tensor(range(len(batch.src)) if numbers is None else numbers)
        each = (pairs * passes + torch.arange(passes)[:, None]).flatten()  # every pass has a number of its own
        source, target = (
            Packing(lengths.repeat(passes), numbers=each) for lengths in (batch.src_lengths, batch.tgt_lengths)
        )
        src, tgt_in, tgt_out = (side.repeat(passes, 1) for side in (batch.src, batch.tgt_in, batch.tgt_out))
        return PackedBatch(source.pack(src), target.pack(tgt_in), target.pack(tgt_out), source, target)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in int64."""
        return [self.src, self.tgt_in, self.tgt_out, *self.source.parts, *self.target.parts]

    def with_tensors(self, tensors: Sequence[Tensor]) -> PackedBatch:
        """Return the same batch with these copies of its `tensors`."""
        src, tgt_in, tgt_out, *parts = tensors
        half = len(parts) // 2
        return PackedBatch(src, tgt_in, tgt_out, self.source.of(parts[:half]), self.target.of(parts[half:]))

    def to(self, device: str) -> PackedBatch:
        """Return the batch on `device`."""
        return self if str(self.src.device) == device else self.with_tensors(to_device(self.tensors, device))


@dataclass(frozen=True)
class MicroBatch:
    """The pairs of one forward and backward pass."""

    packed: PackedBatch
    weight: float
    """The factor of the loss: 1 / passes. It is 0 for a filler, which a rank gets when there are too few pairs for all
    ranks."""
    passes: int = 1
    """How many times `packed` holds each pair: 2 for R-Drop."""

    @staticmethod
    def of(batch: Batch, passes: int = 1, is_filler: bool = False, numbers: Sequence[int] | None = None) -> MicroBatch:
        """Return the micro-batch of `batch`, packed. `numbers`: see `PackedBatch.of`."""
        return MicroBatch(PackedBatch.of(batch, passes, numbers), 0.0 if is_filler else 1 / passes, passes)

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.packed.source.sentences // self.passes

    def padded(self) -> Batch:
        """Return the pairs, padded, in the host's memory."""
        packed, source, target = self.packed, self.packed.source, self.packed.target
        tensors = (
            source.unpack(packed.src, PAD),
            source.lengths,
            target.unpack(packed.tgt_in, PAD),
            target.unpack(packed.tgt_out, PAD),
            target.lengths,
        )
        return Batch(*(tensor[: self.pairs].to("cpu") for tensor in tensors))

    def split(self) -> list[MicroBatch]:
        """Return two micro-batches with half of the pairs each. There are at least two."""
        batch, middle = self.padded(), self.pairs // 2
        assert self.packed.source.numbers is not None
        numbers = (self.packed.source.numbers[: self.pairs] // self.passes).tolist()
        return [
            MicroBatch.of(batch.part(first, end), self.passes, numbers=numbers[first:end])
            for first, end in ((0, middle), (middle, self.pairs))
        ]

    def __str__(self) -> str:
        return (
            f"{self.pairs} pairs of up to {self.packed.source.longest} source and {self.packed.target.longest} "
            "target tokens"
        )


@dataclass(frozen=True)
class RankBatch:
    """One rank's part of an update."""

    micro_batches: list[MicroBatch]
    target_tokens: int
    """Target tokens of the whole update, over all ranks, end symbols counted."""
    pairs: Indices
    """The pairs of the whole update, as indices into the corpus."""
    epoch: int
    """The epoch of the update, counted from 0."""

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of all micro-batches, in int64."""
        return [tensor for micro_batch in self.micro_batches for tensor in micro_batch.packed.tensors]

    def with_tensors(self, tensors: Sequence[Tensor]) -> RankBatch:
        """Return the same batch with these copies of its `tensors`."""
        each = len(tensors) // len(self.micro_batches)
        micro_batches = [
            replace(micro_batch, packed=micro_batch.packed.with_tensors(tensors[i * each : (i + 1) * each]))
            for i, micro_batch in enumerate(self.micro_batches)
        ]
        return replace(self, micro_batches=micro_batches)

    def split(self, index: int) -> RankBatch:
        """Return the rank batch with the micro-batch at `index` split in two."""
        micro_batches = self.micro_batches.copy()
        micro_batches[index : index + 1] = micro_batches[index].split()
        return replace(self, micro_batches=micro_batches)


@dataclass(frozen=True)
class FlatBatch:
    """A `RankBatch` in one tensor."""

    numbers: Tensor
    """int64: all tensors of all micro-batches, one after another."""
    outline: RankBatch
    """The batch with tensors on torch's meta device: they have the shapes, but no numbers."""

    @staticmethod
    def of(batch: RankBatch) -> FlatBatch:
        """Return the batch in one tensor."""
        tensors = batch.tensors
        return FlatBatch(
            torch.cat([tensor.flatten() for tensor in tensors]),
            batch.with_tensors([tensor.to("meta") for tensor in tensors]),
        )

    def pin_memory(self) -> FlatBatch:
        """Return the batch in pinned memory. A thread of torch's DataLoader calls this method."""
        return replace(self, numbers=self.numbers.pin_memory())

    def to(self, device: str) -> RankBatch:
        """Start the copy of the batch to `device`, and return the batch without waiting for the copy's end."""
        return self.outline.with_tensors(split_like(self.numbers.to(device, non_blocking=True), self.outline.tensors))


@dataclass(frozen=True)
class TrainingText:
    """The pairs that training reads: their corpus, their division into updates, and their variations."""

    corpus: Corpus
    plan: EpochPlan
    variations: Sequence[Variation] = ()
    passes: int = 1
    """How often each pair of an update goes through the model: 2 for R-Drop."""
    max_padding: float | None = MAX_PADDING
    """The largest share of padding in a micro-batch; None: padding does not count. See `data.batches.micro_batches`."""

    def pair(self, number: int, epoch: int) -> Pair:
        """Return the ids of the corpus's pair `number`, with the variations of `epoch`."""
        pair: Pair = self.corpus.pair(number)
        for vary in self.variations:
            pair = vary(pair, epoch, number)
        return pair


def rank_batches(
    text: TrainingText, epoch: int, start: int, tokens: int, group: ProcessGroup, hardware: Hardware
) -> Iterator[RankBatch]:
    """Yield this rank's batch of every update, from update `start` of `epoch` on, epoch after epoch without end.

    `tokens` is the size limit of a micro-batch, per side, all passes counted.
    """
    strided = partial(_strided, text, epoch, start, tokens, group)
    if is_host(hardware.device):
        yield from strided()
        return
    pinned = copies_from_pinned_memory(hardware.device)
    for flat in DataLoader(_FlatBatches(strided), batch_size=None, num_workers=WORKERS, pin_memory=pinned):
        yield flat.to(hardware.device)


def _strided(
    text: TrainingText, first_epoch: int, start: int, tokens: int, group: ProcessGroup, first: int = 0, step: int = 1
) -> Iterator[RankBatch]:
    """Yield the batches of `rank_batches` with numbers `first`, `first` + `step`, …, in the host's memory."""
    plan, passes = text.plan, text.passes
    updates = chain.from_iterable(
        ((epoch, pairs) for pairs in plan.updates(epoch, start if epoch == first_epoch else 0))
        for epoch in count(first_epoch)
    )
    for epoch, pairs in islice(updates, first, None, step):
        all_parts = micro_batches(plan, pairs, max(1, tokens // passes), group.world_size, text.max_padding)
        parts = all_parts[group.rank]
        numbers = [(part if len(part) else pairs[:1]).tolist() for part in parts]
        if text.variations:  # a variation changes lengths: read the pairs of all ranks to count their tokens
            ids = {number: text.pair(number, epoch) for number in pairs.tolist()}
            target_tokens = sum(len(target) + 1 for _, target in ids.values())
        else:
            ids = {number: text.pair(number, epoch) for row in numbers for number in row}
            target_tokens = plan.target_tokens(pairs)
        batches = [
            MicroBatch.of(collate([ids[number] for number in row]), passes, not len(part), row)
            for row, part in zip(numbers, parts, strict=True)
        ]
        yield RankBatch(batches, target_tokens, pairs, epoch)


class _FlatBatches(IterableDataset[FlatBatch]):
    """Iterates over batches as `FlatBatch`es.

    With n worker processes, worker i prepares updates i, i + n, i + 2n, …
    """

    def __init__(self, strided: Callable[[int, int], Iterator[RankBatch]]) -> None:
        self.strided = strided

    def __iter__(self) -> Iterator[FlatBatch]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(FlatBatch.of, self.strided(first, step))
