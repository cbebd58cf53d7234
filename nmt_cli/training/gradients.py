"""Sums the gradients of micro-batches in `Weights.main_grads`.

    with gradients.accumulating(first, last):      around the forward and backward pass of a micro-batch
        loss, nll = gradients.losses(rows)         LossModel: the model with its loss
        (loss * weight).backward()                 adds to main_grads

`main_grads` is cut into buckets: the gradients of some parameters side by side. A backward pass begins with the last
parameters. As soon as it has computed the gradients of a bucket, they are added to `main_grads` together, and freed.

`FlatGradients` is for one process, `data_parallel.ReplicatedGradients` is for several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .parameters import Weights

BUCKET_BYTES = 32 * 2**20
"""The least size of a bucket."""


@dataclass(frozen=True)
class Bucket:
    """Parameters, and the part of `main_grads` for them."""

    sums: Tensor
    parameters: list[nn.Parameter]
    of_parameters: list[Tensor]
    """The part of `sums` for each parameter."""


class FlatGradients:
    """Gradients of one process."""

    def __init__(self, weights: Weights, loss_model: nn.Module) -> None:
        self.weights, self.losses = weights, loss_model
        self.buckets = list(_buckets(weights))
        """In the order in which a backward pass completes them: from the end of `main_grads`."""
        self._first = False
        self._missing: list[int] = []  # gradients of each bucket that the pass has not computed yet
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """Wrap the forward and backward pass of a micro-batch.

        The gradient of the update's `first` micro-batch replaces `main_grads`; the gradients of the others are added.
        After the `last` micro-batch, `main_grads` holds the sum over all ranks. A pass that fails leaves in
        `main_grads` the gradients that it has already added.
        """
        self._first, self._missing = first, [len(bucket.parameters) for bucket in self.buckets]
        try:
            yield
            for number, missing in enumerate(self._missing):
                if missing:  # the pass has no gradient of a parameter
                    self._add(number)
        finally:
            for bucket in self.buckets:
                for parameter in bucket.parameters:
                    parameter.grad = None  # a pass that ran out of memory may leave a gradient

    def _hook(self, number: int) -> Callable[[nn.Parameter], None]:
        """Return what autograd calls when the gradient of a parameter of bucket `number` is there."""

        def computed(_: nn.Parameter) -> None:
            self._missing[number] -= 1
            if not self._missing[number]:
                self._add(number)

        return computed

    def _add(self, number: int) -> None:
        """Add the gradients of a bucket to its sums."""
        bucket = self.buckets[number]
        self._missing[number] = 0
        pairs = zip(bucket.of_parameters, bucket.parameters, strict=True)
        there = {part: parameter.grad for part, parameter in pairs if parameter.grad is not None}
        if self._first and len(there) < len(bucket.parameters):
            bucket.sums.zero_()
        if there:
            add_all = torch._foreach_copy_ if self._first else torch._foreach_add_
            add_all(list(there), list(there.values()))
        for parameter in bucket.parameters:
            parameter.grad = None


def _buckets(weights: Weights) -> Iterator[Bucket]:
    """Yield the buckets of `main_grads`, from its end to its beginning."""
    sums, end = weights.main_grads, weights.main_grads.numel()
    of_parameters, parameters, trained = list[Tensor](), list[nn.Parameter](), weights.by_name(weights.main_grads)
    compute = dict(weights.compute_model.named_parameters())
    for name, part in reversed(trained.items()):
        of_parameters.append(part)
        parameters.append(compute[name])
        start = int(part.storage_offset())
        if sums[start:end].nbytes >= BUCKET_BYTES or not start:
            yield Bucket(sums[start:end], parameters, of_parameters)
            of_parameters, parameters, end = [], [], start
