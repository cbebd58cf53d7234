"""The parameters in training: three flat tensors of P numbers. The parameters of two models are views of them.

    main_params     (P,) fp32            what Adam updates and checkpoints hold        model          its views
    compute_params  (P,) fp32 or bf16    what forward and backward passes read         compute_model  its views
    main_grads      (P,) fp32            sums over micro-batches, then over ranks

In bf16, `compute_params` are rounded from `main_params` once per update, not once per pass. In fp32 both are one tensor.

A backward pass adds each gradient to `main_grads` as soon as it is computed, and frees it. With several ranks,
`main_grads` is reduced in buckets during the last micro-batch's backward pass, each bucket as soon as its gradients are
complete. Every rank reduces the buckets in the same order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..hardware import out_of_memory
from ..model.transformer import Transformer
from .process_group import ProcessGroup

ALIGNMENT = 64
"""Every parameter begins at a multiple of this many numbers, for vector instructions."""
BUCKET_SIZE = 8_000_000
"""Numbers of `main_grads` that are reduced together: 32 MB."""


@dataclass(frozen=True)
class Bucket:
    """The part of `main_grads` from `start` to before `end`, and the names of its parameters."""

    start: int
    end: int
    names: frozenset[str]


class Weights:
    """The flat tensors, and the two models over them. `model` itself becomes the one over `main_params`."""

    def __init__(self, model: Transformer, dtype: torch.dtype, group: ProcessGroup) -> None:
        """Move the parameters of `model` into flat tensors; `dtype` is that of forward and backward passes."""
        self.model, self.compute_model, self.group = model, copy.deepcopy(model).to(dtype), group
        device = next(model.parameters()).device
        self._spans: dict[str, tuple[int, torch.Size]] = {}
        size = 0
        for name, parameter in model.named_parameters():
            self._spans[name] = size, parameter.shape
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.main_params = nn.Parameter(torch.zeros(size, device=device))
        self.compute_params = self.main_params.data if dtype == torch.float32 else torch.zeros(size, dtype=dtype, device=device)
        self.main_grads = torch.zeros(size, device=device)
        self.main_params.grad = self.main_grads
        for name, parameter in model.named_parameters():
            view = self.view(self.main_params.data, name)
            view.copy_(parameter.data)
            parameter.data = view
        for name, parameter in self.compute_model.named_parameters():
            parameter.data = self.view(self.compute_params, name)
            parameter.register_post_accumulate_grad_hook(self._accumulate_hook(name))  # type: ignore[no-untyped-call]
        self.refresh_compute_params()
        self._without_grad: set[str] = set()  # parameters that have no gradient yet in this update
        self._unfinished: set[str] = set()  # parameters whose gradient the running backward pass will still add to
        self._buckets = _buckets(self._spans, size)
        self._reductions: list[dist.Work] = []

    def view(self, flat: Tensor, name: str) -> Tensor:
        """Return the part of a flat tensor that belongs to the parameter `name`, in its shape."""
        start, shape = self._spans[name]
        return flat[start : start + shape.numel()].view(shape)

    def by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the parts of a flat tensor by parameter name, in the parameters' shapes."""
        return {name: self.view(flat, name) for name in self._spans}

    def refresh_compute_params(self) -> None:
        """Round `main_params` to `compute_params`."""
        if self.compute_params.dtype != torch.float32:
            self.compute_params.copy_(self.main_params.data)

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """Wrap the forward and backward pass of a micro-batch, whose gradients go to `main_grads`.

        The update's `first` micro-batch replaces `main_grads`, the others add to it. During the `last` one, several
        ranks reduce `main_grads`; at the end it holds the sum over ranks. They also reduce it after a pass that ran out
        of memory, so that no rank waits for another. After any other exception this rank ends, and reduces nothing more.
        """
        if first:
            self._without_grad = set(self._spans)
        reduces = last and self.group.world_size > 1
        self._unfinished, self._reductions = set(self._spans) if reduces else set(), []
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                self._finish_pass(reduces)
            raise
        else:
            self._finish_pass(reduces)

    def _finish_pass(self, reduces: bool) -> None:
        """Set gradients that are still missing to zero. With `reduces`, wait until every bucket is reduced."""
        for parameter in self.compute_model.parameters():
            parameter.grad = None  # left by a pass that ran out of memory
        for name in self._without_grad:
            self.view(self.main_grads, name).zero_()
        self._without_grad, self._unfinished = set(), set()
        if reduces:
            self._reduce_buckets()
            with self.group.collective():
                for reduction in self._reductions:
                    reduction.wait()
            self._reductions = []  # gloo has a thread as long as there is a Work

    def _accumulate_hook(self, name: str) -> Callable[[Tensor], None]:
        """Return the hook that adds the gradient of the parameter `name` to `main_grads`."""

        def accumulate(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if name in self._without_grad:
                self.view(self.main_grads, name).copy_(parameter.grad)
                self._without_grad.discard(name)
            else:
                self.view(self.main_grads, name).add_(parameter.grad)
            parameter.grad = None
            if self._unfinished:
                self._unfinished.discard(name)
                self._reduce_buckets()

        return accumulate

    def _reduce_buckets(self) -> None:
        """Start to reduce, in their order, the buckets whose gradients are finished."""
        with self.group.collective():
            while len(self._reductions) < len(self._buckets):
                bucket = self._buckets[len(self._reductions)]
                if self._unfinished & bucket.names:
                    return
                reduction = dist.all_reduce(self.main_grads[bucket.start : bucket.end], async_op=True)
                assert reduction is not None
                self._reductions.append(reduction)


def _buckets(spans: dict[str, tuple[int, torch.Size]], size: int) -> list[Bucket]:
    """Return the buckets from the last parameter to the first, the order in which a backward pass finishes them."""
    buckets: list[Bucket] = []
    names: set[str] = set()
    end = size
    for name, (start, _) in reversed(spans.items()):
        names.add(name)
        if end - start >= BUCKET_SIZE or start == 0:
            buckets.append(Bucket(start, end, frozenset(names)))
            names, end = set(), start
    return buckets
