"""What the machine has: a device, the precision its matrix products are fast in, memory and cores.

The recipe never says; `Hardware.find` looks, and what is found can be overruled on the command line.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UsageError, shown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Hardware:
    """One rank's device: its torch name, the precision of its matrix products, the bytes of memory it may take."""

    device: str
    precision: str
    memory: int

    @staticmethod
    def find(device: str = "auto", precision: str = "auto", local_rank: int = 0, limit: int = 0) -> Hardware:
        """The best device there is (CUDA, then CPU) unless one is named, with its free memory or the `limit` in bytes.

        Raises UsageError for a device that is not there.
        """
        import torch

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            device = f"cuda:{local_rank}"
        if device.startswith("cuda"):
            if not torch.cuda.is_available():
                raise UsageError(f"--device {device!r}: torch {torch.__version__} sees no CUDA device here. Use --device cpu.")
            memory = torch.cuda.mem_get_info(device)[0]
        elif device == "cpu":
            memory = free_memory()
        else:
            raise UsageError(f"--device {device!r}: expected auto, cpu, cuda or cuda:N.")
        if precision == "auto":
            precision = "bf16" if has_fast_bf16(device) else "fp32"
        return Hardware(device, precision, min(memory, limit) if limit else memory)

    @property
    def dtype(self) -> torch.dtype:
        """Of matrix products; sums, norms and weights stay in fp32."""
        import torch

        return torch.bfloat16 if self.precision == "bf16" else torch.float32


def keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next allocation instead of giving it back: every training pass asks for the
    same sizes again, and fresh pages cost up to a tenth of the time of small models. Elsewhere nothing happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((-3, 2**30), (-1, 2**31 - 1), (-2, 2**26)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
            mallopt(parameter, value)


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed; on a CPU torch says so in words alone."""
    import torch

    words = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "out of memory", "not enough memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(word in str(error).lower() for word in words)


def has_fast_bf16(device: str) -> bool:
    """Whether matrix products in bf16 run in hardware."""
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_flags()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def cpu_flags() -> set[str]:
    """Instruction sets that the kernel names for this CPU; empty where it names none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def memory_size(text: str) -> int:
    """Bytes of "2GiB", "800M", "1.5 GB" or a plain number; units are powers of 1,024. Raises UsageError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    size = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 2**26 <= size < 2**63:
        raise UsageError(f"{shown(text)} is no size of memory to work in: expected at least 64MiB, such as 4GiB, 800M or 2147483648.")
    return int(size)


def cores() -> int:
    """CPU cores that this process may use."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_THREAD_LIMIT", "")  # torch, given more threads than that, computes nonsense
    return min(there, int(limit)) if limit.isdecimal() and int(limit) else there


def free_memory() -> int:
    """Bytes of memory that can be had: the system's available memory, or what the control group still allows."""
    available = 4 * 2**30
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        if limit != "max":
            available = min(available, int(limit) - used)
    except (OSError, ValueError):
        pass
    return max(available, 2**28)
