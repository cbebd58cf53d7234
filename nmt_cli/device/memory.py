"""The memory of this machine and of its accelerators: what is free, what is in use, what is given back.

On the host, memory in use is that of the process (Linux: /proc/self); on an accelerator, of torch's allocator.
"""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, shown
from . import control_groups
from .torch_device import _is_cuda, is_host

if TYPE_CHECKING:
    import torch


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next allocation.

    Every training pass allocates the same sizes again, and new pages take up to a tenth of the time of small models.
    With another C library this does nothing.
    """
    _mallopt({MMAP_THRESHOLD: 2**30, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26})


def return_large_arrays() -> None:
    """Let glibc return what large arrays leave at once, where memory counts more than new pages."""
    _mallopt({MMAP_THRESHOLD: 2**21})


def _mallopt(values: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in values.items():
            mallopt(parameter, value)


TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's function `mallopt`."""


def out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that an allocation failed.

    On a CPU, torch reports this only in the text of the error.
    """
    import torch

    words = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "out of memory", "not enough memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(word in str(error).lower() for word in words)


def of_memory(error: BaseException) -> bool:
    """Return whether `error` means that Python, or torch if it is loaded, could not allocate memory."""
    of_torch = "torch" in sys.modules and isinstance(error, RuntimeError) and out_of_memory(error)
    return of_torch or isinstance(error, MemoryError)


UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def memory_size(text: str) -> int:
    """Return a size such as "2GiB", "800M", "1.5 GB" or a plain number, in bytes.

    Units are powers of 1,024. Raises UsageError.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    size = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not 2**26 <= size < 2**63:
        raise UsageError(
            f"{shown(text)} is no size of memory to work in: expected at least 64MiB, such as 4GiB, 800M or 2147483648."
        )
    return int(size)


def free_memory() -> int:
    """Return the free memory in bytes: the system's available memory, or less if a control group leaves less."""
    available = 4 * 2**30
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    return max(int(min(available, control_groups.memory_left())), 2**28)


def release_cached_memory(device: str) -> None:
    """Free memory on the device that torch has cached but does not use."""
    if not is_host(device):
        import torch

        torch.get_device_module(device).empty_cache()


def accelerator_memory(device: str | torch.device) -> int:
    """Return the memory of an accelerator in bytes; 0 for the host, and if torch does not report it."""
    import torch

    if _is_cuda(device):
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if str(device).startswith("mps") else 0


def memory_in_use(device: str) -> int:
    """Return the bytes of memory that this process now uses on the device."""
    if is_host(device):
        return _process_status("VmRSS")
    import torch

    return int(torch.cuda.memory_allocated(device) if _is_cuda(device) else torch.mps.driver_allocated_memory())


def reset_peak_memory(device: str) -> None:
    """Reset `peak_memory` to the memory that is in use now."""
    if _is_cuda(device):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    if not is_host(device):
        return release_cached_memory(device)
    return_freed_memory()  # without this call, a smaller batch would seem to need as much memory as a larger one
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: resets VmHWM


def return_freed_memory() -> None:
    """Let glibc return freed memory to the system. With another C library this does nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(device: str) -> int:
    """Return the largest number of bytes in use since `reset_peak_memory`."""
    if is_host(device):
        return _process_status("VmHWM")
    if not _is_cuda(device):
        return memory_in_use(device)  # on other accelerators torch's allocator never frees memory by itself
    import torch

    return int(torch.cuda.max_memory_reserved(device))


def _process_status(key: str) -> int:
    """Return an entry of /proc/self/status in bytes; 0 if it does not exist."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0
