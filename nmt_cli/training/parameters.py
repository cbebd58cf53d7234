"""Weights as training holds them: three flat tensors, which the model's matrices are views of.

    master    (P,) fp32            what Adam steps and checkpoints keep       model     a Transformer over it
    working   (P,) fp32 or bf16    what forward and backward passes read      computer  a Transformer over it
    gradient  (P,) fp32            sums over micro-batches, then over ranks

In bf16 the working copy is rounded from the master once an update, not once a pass; in fp32 both are one tensor. A
gradient joins `gradient` as soon as the backward pass has it, and is freed. With several ranks, the last micro-batch's
backward pass sends finished stretches of `gradient` while it goes on; the stretches go in one order on every rank.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..hardware import out_of_memory
from ..model.transformer import Transformer
from .process_group import Ranks

ALIGN = 64
"""Every matrix begins at a multiple of so many numbers, as vector instructions like it."""
STRETCH = 8_000_000
"""Numbers of `gradient` that go over the network together: 32 MB."""


class Weights:
    """The weights of `model`, which becomes the one over `master`."""

    def __init__(self, model: Transformer, dtype: torch.dtype, ranks: Ranks) -> None:
        self.model, self.computer, self.ranks = model, copy.deepcopy(model).to(dtype), ranks
        device = next(model.parameters()).device
        self._spans: dict[str, tuple[int, torch.Size]] = {}
        end = 0
        for name, parameter in model.named_parameters():
            self._spans[name] = end, parameter.shape
            end += -(-parameter.numel() // ALIGN) * ALIGN
        self.master = nn.Parameter(torch.zeros(end, device=device))
        self.working = self.master.data if dtype == torch.float32 else torch.zeros(end, dtype=dtype, device=device)
        self.gradient = torch.zeros(end, device=device)
        self.master.grad = self.gradient
        for name, parameter in model.named_parameters():
            view = self.view(self.master.data, name)
            view.copy_(parameter.data)
            parameter.data = view
        for name, parameter in self.computer.named_parameters():
            parameter.data = self.view(self.working, name)
            parameter.register_post_accumulate_grad_hook(self._collector(name))  # type: ignore[no-untyped-call]
        self.refresh()
        self._missing: set[str] = set()
        self._waiting: set[str] = set()
        self._stretches = _stretches(self._spans, end)
        self._sent: list[dist.Work] = []

    def view(self, flat: Tensor, name: str) -> Tensor:
        """The part of a flat tensor that belongs to the matrix `name`, in its shape."""
        start, shape = self._spans[name]
        return flat[start : start + shape.numel()].view(shape)

    def by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat tensor as matrices by name."""
        return {name: self.view(flat, name) for name in self._spans}

    def refresh(self) -> None:
        """Round the working copy from the master."""
        if self.working.dtype != torch.float32:
            self.working.copy_(self.master.data)

    @contextmanager
    def collecting(self, first: bool, last: bool) -> Iterator[None]:
        """Around a micro-batch's forward and backward pass: the first replaces `gradient`, the others add to it.

        With several ranks the last sends it, and at the end it is the sum over all; after a pass that ran out of memory
        too, so that no rank waits for another. Any other exception ends this rank: it sends nothing more.
        """
        if first:
            self._missing = set(self._spans)
        sends = last and self.ranks.world > 1
        self._waiting, self._sent = set(self._spans) if sends else set(), []
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                self._complete(sends)
            raise
        else:
            self._complete(sends)

    def _complete(self, sends: bool) -> None:
        """Fill what is missing of `gradient` with zeros, send what is not sent yet, and wait for the sums."""
        for parameter in self.computer.parameters():
            parameter.grad = None  # of a pass that broke off
        for name in self._missing:
            self.view(self.gradient, name).zero_()
        self._missing = set()
        if sends:
            self._waiting = set()
            with self.ranks.together():
                self._send()
                for work in self._sent:
                    work.wait()

    def _collector(self, name: str) -> Callable[[Tensor], None]:
        def collect(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if name in self._missing:
                self.view(self.gradient, name).copy_(parameter.grad)
                self._missing.discard(name)
            else:
                self.view(self.gradient, name).add_(parameter.grad)
            parameter.grad = None
            if self._waiting:
                self._waiting.discard(name)
                with self.ranks.together():
                    self._send()

        return collect

    def _send(self) -> None:
        """Send the stretches that are complete, in their order."""
        while len(self._sent) < len(self._stretches):
            start, end, names = self._stretches[len(self._sent)]
            if self._waiting & names:
                return
            work = dist.all_reduce(self.gradient[start:end], async_op=True)
            assert work is not None
            self._sent.append(work)


def _stretches(spans: dict[str, tuple[int, torch.Size]], end: int) -> list[tuple[int, int, frozenset[str]]]:
    """Start, end and matrices of each stretch, from the last matrix to the first, as a backward pass comes by them."""
    found: list[tuple[int, int, frozenset[str]]] = []
    names: set[str] = set()
    for name, (start, _) in reversed(spans.items()):
        names.add(name)
        if end - start >= STRETCH or start == 0:
            found.append((start, end, frozenset(names)))
            names, end = set(), start
    return found
