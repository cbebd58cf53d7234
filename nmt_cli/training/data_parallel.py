"""The gradients of several processes, summed by torch's `DistributedDataParallel` (DDP).

    LossModel ──▶ DDP: every rank its own micro-batches ──backward──▶ Weights.main_grads, summed over ranks

DDP's defaults are for a mean loss over equal parts, in one dtype. Training here differs in four points:

    a sum, not a mean     the loss is already divided by the target tokens of the whole update: `_sum_over_ranks`
    fp32                  DDP holds the fp32 parameters. In bf16, `_Rounded` passes their rounded values to the model,
                          and converts each gradient back to fp32: micro-batches and ranks are summed in fp32
    one reduction         only the last micro-batch of an update reduces; the others run under `no_sync`
    stable buckets        DDP changes the order of its buckets after its first backward pass. With three or more
                          ranks, another order gives other roundings. `_settle` runs this first pass before
                          training begins, so a resumed run has the same roundings as an uninterrupted one

Each parameter's gradient is a view of `main_grads`, so nothing is copied for the optimizer. `fully_shard` would divide
parameters and optimizer state among the ranks. This is not needed: for big (214M parameters) they take 4.3 GB, which
fit into every GPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

from ..device.torch_device import random_state, restore_random_state
from .loader import PackedBatch
from .parameters import Weights
from .process_group import ProcessGroup

BUCKET_MB = 32
"""The size of the gradients that are reduced together, in MB of fp32."""


class ReplicatedGradients:
    """Gradients of several processes, each with a replica of the model. Its interface is that of `FlatGradients`."""

    def __init__(self, weights: Weights, loss_model: nn.Module, group: ProcessGroup, any_rows: PackedBatch) -> None:
        """Set up DDP.

        `loss_model` is the `LossModel` over `weights.compute_model`; `any_rows` is any small batch, to settle the
        buckets.

        Every rank must call it. Rank 0's parameters replace the parameters of the other ranks.
        """
        self.weights, self.group = weights, group
        self._failed = False
        """Whether the sum of a bucket over the ranks failed."""
        module = loss_model if weights.compute_params.dtype == torch.float32 else _InFp32(weights, loss_model)
        with group.collective():
            self.losses = self.ddp = DistributedDataParallel(module, bucket_cap_mb=BUCKET_MB, **_no_buffers())
            self.ddp.register_comm_hook(None, lambda _, bucket: self._sum_over_ranks(bucket.buffer()))
        weights.refresh_compute_params()
        weights.refresh_frozen()
        owner = weights.compute_model if module is loss_model else weights.model
        for name, parameter in owner.named_parameters():
            if parameter.requires_grad:
                parameter.grad = weights.view(weights.main_grads, name)
        self._settle(any_rows)

    @contextmanager
    def accumulating(self, first: bool, last: bool) -> Iterator[None]:
        """See `FlatGradients`. Raises TrainingError when another rank does not answer, or memory runs out."""
        if first:
            self.weights.main_grads.zero_()
        with self.group.collective(lambda: self._failed), nullcontext() if last else self.ddp.no_sync():
            yield

    def _sum_over_ranks(self, bucket: Tensor) -> torch.futures.Future[Tensor]:
        """Start the sum of a bucket of gradients over all ranks. This is DDP's communication hook."""
        with self._noted():
            work = dist.all_reduce(bucket, async_op=True)
        assert work is not None
        return work.get_future().then(self._first)  # type: ignore[no-any-return]

    def _first(self, future: torch.futures.Future[list[Tensor]]) -> Tensor:
        with self._noted():
            return future.value()[0]

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Remember that the exchange failed: its error looks like one of the pass."""
        try:
            yield
        except RuntimeError:
            self._failed = True
            raise

    def _settle(self, rows: PackedBatch) -> None:
        """Run two passes so that DDP sets the order of its buckets: it observes the first backward pass, and reorders
        in the second forward pass.
        """
        device = str(rows.src.device)
        before = random_state(device)
        for _ in range(2):
            with self.accumulating(first=True, last=True):
                self.losses(rows)[0].backward()
        restore_random_state(device, before)


class _InFp32(nn.Module):
    """A `LossModel` in bf16 whose parameters are those of `Weights.model`, in fp32."""

    def __init__(self, weights: Weights, loss_model: nn.Module) -> None:
        super().__init__()
        self.model = weights.model
        # not a submodule, so that DDP does not see its parameters
        self._in_bf16: Callable[[], nn.Module] = lambda: loss_model
        self._rounded = weights.by_name(weights.compute_params)

    def forward(self, rows: PackedBatch) -> tuple[Tensor, Tensor]:
        parameters = {  # frozen ones are in the model that is called
            f"model.{name}": _Rounded.apply(parameter, self._rounded[name])  # type: ignore[no-untyped-call]
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }
        return functional_call(self._in_bf16(), parameters, (rows,))  # type: ignore[no-any-return]


class _Rounded(torch.autograd.Function):
    """Replaces a parameter by its value in bf16, which is already computed.

    The gradient goes to the parameter in fp32.
    """

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, rounded: Tensor) -> Tensor:
        ctx.dtype = parameter.dtype
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to(ctx.dtype), None


def _no_buffers() -> dict[str, Any]:
    """Return the options with which DDP sends no buffers (tables of positions): every rank has them.

    The option's name changed in torch 2.13.
    """
    name = "forward_sync_buffers"
    return {name if name in inspect.signature(DistributedDataParallel).parameters else "broadcast_buffers": False}
