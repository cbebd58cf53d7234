"""The gradients of several processes, summed over all of them.

    micro-batches ──backward──▶ the buckets of Weights.main_grads ──all_reduce, one after another──▶ their sums

In the backward pass of an update's last micro-batch, the sum of a bucket over the ranks starts as soon as that bucket
and all before it are complete. So the ranks exchange gradients while they compute the next ones. All ranks start the
sums in the same order, and a resumed run in the order of an uninterrupted one. With three or more ranks, other buckets
give other roundings.

torch's `DistributedDataParallel` averages gradients in the dtype of the passes, each parameter in a tensor of its own.
Here the loss is already divided by the target tokens of the whole update, so the sum is no mean, and `main_grads` is
one tensor in fp32. `fully_shard` would divide parameters and optimizer state among the ranks. This is not needed: for
big (214M parameters) they take 4.3 GB, which fit into every GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from .gradients import FlatGradients
from .parameters import Weights
from .process_group import ProcessGroup


class ReplicatedGradients(FlatGradients):
    """Gradients of several processes, each with a replica of the model."""

    def __init__(self, weights: Weights, loss_model: nn.Module, group: ProcessGroup) -> None:
        """Rank 0's parameters replace the parameters of the other ranks. Every rank must call it."""
        super().__init__(weights, loss_model)
        self.group = group
        self._failed = False
        """Whether the sum of a bucket over the ranks failed."""
        frozen = [parameter for parameter in weights.model.parameters() if not parameter.requires_grad]
        with group.collective():
            for parameter in (weights.main_params, *frozen):
                dist.broadcast(parameter.data, 0)
        weights.refresh_compute_params()
        weights.refresh_frozen()
        self._sums: list[dist.Work] | None = None  # of the first buckets; None: the pass is not the update's last

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """See `FlatGradients`. Raises TrainingError when another rank does not answer, or memory runs out."""
        self._sums = [] if last else None
        with self.group.collective(lambda: self._failed):
            with super().accumulating(first, last):
                yield
            with self._noted():
                for work in self._sums or ():
                    work.wait()
        self._sums = None

    def _add(self, number: int) -> None:
        super()._add(number)
        while self._sums is not None and len(self._sums) < len(self.buckets) and not self._missing[len(self._sums)]:
            with self._noted():
                work = dist.all_reduce(self.buckets[len(self._sums)].sums, async_op=True)
            assert work is not None
            self._sums.append(work)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Remember that the exchange failed: its error looks like one of the pass."""
        try:
            yield
        except RuntimeError:
            self._failed = True
            raise
