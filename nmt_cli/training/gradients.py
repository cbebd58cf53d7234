"""Sums the gradients of micro-batches, and then those of the ranks, in `Weights.main_grads`.

    with gradients.accumulating(first, last):      around the forward and backward pass of a micro-batch
        loss, nll = loss_model(rows)
        (loss * weight).backward()                 adds to main_grads

A backward pass adds each gradient to `main_grads`, in fp32, as soon as it is computed, and then frees it. In the last
micro-batch of an update, the sums over the ranks begin while the backward pass still runs: the parts of `main_grads`
are summed one after another, its last part first, as their gradients are complete. The parts and their order are always
the same. So a resumed run has the same roundings as an uninterrupted one, also with three or more ranks.

torch's `DistributedDataParallel` would take the mean, sum in the dtype of the gradients, and change the order of the
parts after its first update. `fully_shard` would divide parameters and optimizer state among the ranks. This is not
needed: for big (214M parameters) they take 4.3 GB, which fit into every GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from .parameters import Weights
from .process_group import ProcessGroup

PART = 2**23
"""Fewest numbers of `main_grads` that the ranks sum together: 32 MB of fp32."""


class Gradients:
    """The gradients of one rank, and their sums over all ranks."""

    def __init__(self, weights: Weights, group: ProcessGroup) -> None:
        """Add a hook to each parameter of `weights.compute_model`.

        Every rank must call it. Rank 0's parameters replace the parameters of the other ranks.
        """
        self.weights, self.group = weights, group
        self.parts = weights.parts(PART)
        self._without_grad: set[str] = set()  # parameters that have no gradient yet in this update
        self._incomplete: set[str] = set()  # parameters whose gradient the last backward pass has not computed yet
        self._sums: list[dist.Work | None] = []  # the sums over the ranks that have begun, of the first of the parts
        for name, parameter in weights.compute_model.named_parameters():
            parameter.register_post_accumulate_grad_hook(self._accumulate_hook(name))  # type: ignore[no-untyped-call]
        if group.world_size > 1:
            with group.collective():
                dist.broadcast(weights.main_params.data, 0)
            weights.refresh_compute_params()

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """Wrap the forward and backward pass of a micro-batch.

        The gradient of the update's `first` micro-batch replaces `main_grads`; the gradients of the others are added.
        After the `last` micro-batch, `main_grads` holds the sum over all ranks. A pass that fails leaves in
        `main_grads` the gradients that it has already added. Raises TrainingError when another rank does not answer.
        """
        if first:
            self._without_grad = {name for name, _ in self.weights.compute_model.named_parameters()}
        reduces = last and self.group.world_size > 1
        self._incomplete = set().union(*(names for _, names in self.parts)) if reduces else set()
        self._sums = []
        with self.group.collective():
            try:
                yield
            finally:
                for parameter in self.weights.compute_model.parameters():
                    parameter.grad = None  # a pass that ran out of memory may leave a gradient
                for name in self._without_grad:
                    self.weights.view(self.weights.main_grads, name).zero_()
                self._without_grad = set()
            if reduces:
                self._incomplete = set()
                self._sum_complete_parts()
                for sums in self._sums:
                    assert sums is not None
                    sums.wait()

    def _accumulate_hook(self, name: str) -> Callable[[nn.Parameter], None]:
        """Return the hook that adds the gradient of the parameter `name` to `main_grads`."""
        sum_of_grads = self.weights.view(self.weights.main_grads, name)

        def accumulate(parameter: nn.Parameter) -> None:
            assert parameter.grad is not None
            if name in self._without_grad:
                sum_of_grads.copy_(parameter.grad)
                self._without_grad.discard(name)
            else:
                sum_of_grads.add_(parameter.grad)
            parameter.grad = None
            if self._incomplete:
                self._incomplete.discard(name)
                self._sum_complete_parts()

        return accumulate

    def _sum_complete_parts(self) -> None:
        """Begin the sums of the next parts over the ranks, up to a part whose gradients are not complete."""
        while len(self._sums) < len(self.parts):
            span, names = self.parts[len(self._sums)]
            if names & self._incomplete:
                return
            self._sums.append(dist.all_reduce(self.weights.main_grads[span], async_op=True))
