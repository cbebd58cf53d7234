"""Sums the gradients of micro-batches in `Weights.main_grads`.

    with gradients.accumulating(first, last):      around the forward and backward pass of a micro-batch
        loss, nll = gradients.losses(rows)         LossModel: the model with its loss
        (loss * weight).backward()                 adds to main_grads

`FlatGradients` is for one process: a backward pass adds each gradient to `main_grads` as soon as it is computed, and
then frees it. `data_parallel.ReplicatedGradients` is for several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from .parameters import Weights


class FlatGradients:
    """Gradients of one process."""

    def __init__(self, weights: Weights, loss_model: nn.Module) -> None:
        self.weights, self.losses = weights, loss_model
        self._without_grad: set[str] = set()  # parameters that have no gradient yet in this update
        self._names = tuple(weights.by_name(weights.main_grads))
        for name, parameter in weights.compute_model.named_parameters():
            if not parameter.requires_grad:
                continue
            parameter.register_post_accumulate_grad_hook(self._accumulate_hook(name))  # type: ignore[no-untyped-call]

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """Wrap the forward and backward pass of a micro-batch.

        The gradient of the update's `first` micro-batch replaces `main_grads`; the gradients of the others are added.
        After the `last` micro-batch, `main_grads` holds the sum over all ranks. A pass that fails leaves in
        `main_grads` the gradients that it has already added.
        """
        if first:
            self._without_grad = set(self._names)
        try:
            yield
        finally:
            for parameter in self.weights.compute_model.parameters():
                parameter.grad = None  # a pass that ran out of memory may leave a gradient
            for name in self._without_grad:
                self.weights.view(self.weights.main_grads, name).zero_()
            self._without_grad = set()

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

        return accumulate
