"""Functions that hide the kind of a device from other files: its queue of work, random numbers, processes.

`device` is torch's name of the device, such as "cpu" or "cuda:1".
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


def is_host(device: str | torch.device) -> bool:
    """Return whether the device is the CPU. The CPU uses the host's memory, and work is done when a call returns."""
    return str(device) == "cpu"


def copies_from_pinned_memory(device: str) -> bool:
    """Return whether copies to the device from pinned memory run beside other work."""
    return _is_cuda(device)


def to_device(tensors: Sequence[Tensor], device: str) -> list[Tensor]:
    """Return copies on `device` of tensors of one dtype.

    They are copied together, from pinned memory if possible, and the call does not wait for the copy.
    """
    import torch

    flat = torch.cat([tensor.flatten() for tensor in tensors])
    if copies_from_pinned_memory(device):
        flat = flat.pin_memory()
    return split_like(flat.to(device, non_blocking=True), tensors)


def split_like(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of a flat tensor, which has the numbers of all `tensors`, in their shapes."""
    import torch

    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def widest_float(device: str | torch.device) -> torch.dtype:
    """Return the widest dtype of floating-point numbers that the device has."""
    import torch

    return torch.float32 if str(device).startswith("mps") else torch.float64


def start_process(device: str) -> None:
    """Make a GPU torch's default CUDA device, in a process that uses no other GPU."""
    if _is_cuda(device):
        import torch

        torch.cuda.set_device(device)
        # it compiles attention for each new shape, and almost every batch has one
        torch.backends.cuda.enable_cudnn_sdp(False)


def start_training(device: str) -> None:
    """Do the same as `start_process`, and let a GPU multiply fp32 matrices in TF32."""
    start_process(device)
    if _is_cuda(device):
        import torch

        torch.backends.cuda.matmul.fp32_precision = "tf32"


def current(device: str | torch.device) -> AbstractContextManager[object]:
    """Return a context in which a GPU is torch's default CUDA device, for example for pinned memory."""
    if _is_cuda(device):
        import torch

        return torch.cuda.device(device)
    return nullcontext()


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if not is_host(device):
        import torch

        torch.accelerator.synchronize(device)


def random_state(device: str) -> list[Tensor]:
    """Return the states of torch's random numbers: of the host, and of the current accelerator if there is one."""
    import torch

    own = [] if is_host(device) else [torch.get_device_module(device).get_rng_state()]
    return [torch.get_rng_state(), *own]


def restore_random_state(device: str, states: Sequence[Tensor]) -> None:
    """Restore the states of the generators that `random_state` returned."""
    import torch

    torch.set_rng_state(states[0])
    if not is_host(device):
        torch.get_device_module(device).set_rng_state(states[1])


def communication(device: str) -> dict[str, Any]:
    """Return options of `torch.distributed.init_process_group` for a rank on `device`.

    For a GPU the options name the device. Then NCCL connects at once, before memory is measured, and to the right
    device.
    """
    import torch

    if _is_cuda(device):
        return {"backend": "cpu:gloo,cuda:nccl", "device_id": torch.device(device)}
    return {"backend": "gloo"}


def abort_communication(device: str) -> None:
    """Abort collectives that run on a GPU: after a rank has died, waiting for them could take for ever."""
    if _is_cuda(device):
        import torch.distributed as dist

        if (group := dist.group.WORLD) is not None:
            with suppress(RuntimeError):  # a backend that cannot abort
                group.abort()


def _is_cuda(device: str | torch.device) -> bool:
    return str(device).startswith("cuda")


@cache
def let_forks_compute() -> None:
    """Let forks of this process compute with one thread of torch.

    A fork does not have the threads of torch's pool, and would wait for them for ever.
    """
    import torch

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
