"""What the core asks of a device without knowing its kind: whether it is the host, its memory, its queue of work.

`device` is torch's name of it, such as "cpu" or "cuda:1". On the host, memory is the process's (Linux: /proc/self); on an
accelerator it is that of torch's allocator.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


def is_host(device: str | torch.device) -> bool:
    """Return whether the device is the host's own processor: it shares the host's memory, and work is done when a call returns."""
    return str(device) == "cpu"


def copies_from_pinned_memory(device: str) -> bool:
    """Return whether copies to the device from pinned memory run beside other work."""
    return _is_cuda(device)


def to_device(tensors: Sequence[Tensor], device: str) -> list[Tensor]:
    """Return copies of tensors of one dtype on `device`. They travel together, from pinned memory, and nothing waits for them."""
    import torch

    flat = torch.cat([tensor.flatten() for tensor in tensors])
    if copies_from_pinned_memory(device):
        flat = flat.pin_memory()
    parts = torch.split(flat.to(device, non_blocking=True), [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def widest_float(device: str | torch.device) -> torch.dtype:
    """Return the widest dtype of floating-point numbers that the device has."""
    import torch

    return torch.float32 if str(device).startswith("mps") else torch.float64


def start_process(device: str) -> None:
    """Make a GPU the one that torch uses where none is named, in a process that uses no other."""
    if _is_cuda(device):
        import torch

        torch.cuda.set_device(device)
        torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles attention for each new shape, and almost every batch has one


def start_training(device: str) -> None:
    """See `start_process`; and let a GPU multiply fp32 matrices in TF32."""
    start_process(device)
    if _is_cuda(device):
        import torch

        torch.backends.cuda.matmul.fp32_precision = "tf32"


def current(device: str | torch.device) -> AbstractContextManager[object]:
    """Return a context in which the device is the one that torch uses where none is named, as for pinned memory."""
    if _is_cuda(str(device)):
        import torch

        return torch.cuda.device(device)
    return nullcontext()


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if not is_host(device):
        import torch

        torch.cuda.synchronize(device) if _is_cuda(device) else torch.mps.synchronize()


def release_cached_memory(device: str) -> None:
    """Return memory that torch has cached but does not use to the device."""
    if not is_host(device):
        import torch

        torch.cuda.empty_cache() if _is_cuda(device) else torch.mps.empty_cache()


def accelerator_memory(device: str | torch.device) -> int:
    """Return the bytes of memory that an accelerator has; 0 for the host, and where torch does not report it."""
    import torch

    if _is_cuda(str(device)):
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if str(device).startswith("mps") else 0


def memory_in_use(device: str) -> int:
    """Return the bytes that this process uses now, on the device."""
    if is_host(device):
        return _process_status("VmRSS")
    import torch

    return int(torch.cuda.memory_allocated(device) if _is_cuda(device) else torch.mps.driver_allocated_memory())


def reset_peak_memory(device: str) -> None:
    """Let `peak_memory` start again from the memory in use."""
    if _is_cuda(device):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    if not is_host(device):
        return release_cached_memory(device)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory; without this a smaller batch would seem as large
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: resets VmHWM


def peak_memory(device: str) -> int:
    """Return the largest number of bytes in use since `reset_peak_memory`."""
    if is_host(device):
        return _process_status("VmHWM")
    if not _is_cuda(device):
        return memory_in_use(device)  # torch's allocator there returns nothing by itself
    import torch

    return int(torch.cuda.max_memory_reserved(device))


def random_state(device: str) -> list[Tensor]:
    """Return the states of torch's generators of random numbers: the host's, and the device's own."""
    import torch

    if is_host(device):
        return [torch.get_rng_state()]
    return [torch.get_rng_state(), torch.cuda.get_rng_state(device) if _is_cuda(device) else torch.mps.get_rng_state()]


def restore_random_state(device: str, states: Sequence[Tensor]) -> None:
    """Set the generators to what `random_state` returned."""
    import torch

    torch.set_rng_state(states[0])
    if _is_cuda(device):
        torch.cuda.set_rng_state(states[1], device)
    elif not is_host(device):
        torch.mps.set_rng_state(states[1])


def communication(device: str) -> dict[str, Any]:
    """Return options of `torch.distributed.init_process_group` for a rank on `device`.

    A GPU's rank names it, so that NCCL connects at once: before memory is measured, and to the right device.
    """
    import torch

    return {"backend": "cpu:gloo,cuda:nccl", "device_id": torch.device(device)} if _is_cuda(device) else {"backend": "gloo"}


def abort_communication(device: str) -> None:
    """Give up collectives that run on a GPU: to wait for them after a rank has died could take for ever."""
    if _is_cuda(device):
        import torch.distributed as dist

        if (group := dist.group.WORLD) is not None:
            with suppress(RuntimeError):  # a backend that cannot
                group.abort()


def _is_cuda(device: str) -> bool:
    return device.startswith("cuda")


def _process_status(key: str) -> int:
    """Return an entry of /proc/self/status in bytes; 0 without such a file."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0
