"""The hardware of this machine: a device, the precision in which it multiplies matrices fast, memory and cores.

A recipe does not depend on the hardware. `Hardware.find` detects it, and command-line options can override it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import math
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import console, control_groups
from .errors import NeedsTorch, UsageError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Files of Linux, one of which exists where torch can see a CUDA device: of Nvidia's driver, of Windows' subsystem, of
AMD's driver."""


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program."""


@contextmanager
def blocked(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Block these signals. New processes inherit the block; this process receives the signals afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def loading_torch(what: str, shown: bool = True) -> Iterator[None]:
    """Let the block import torch, and show that meanwhile.

    Raises NeedsTorch with `what` needs it, if torch is not installed.
    """
    try:
        with console.status("loading torch", shown=shown), blocked(ENDING):  # torch drops an interrupt, or aborts
            yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NeedsTorch(what) from None


@dataclass(frozen=True)
class Hardware:
    """The device of one rank: its torch name, the precision of its matrix products, and the memory in bytes that the
    rank may use.
    """

    device: str
    precision: str
    memory: int

    @staticmethod
    def find(device: str = "auto", precision: str = "auto", local_rank: int = 0, limit: int = 0) -> Hardware:
        """Return the best device (CUDA, then CPU), or the named one, with its free memory or `limit` in bytes.

        Raises UsageError for a device that does not exist.
        """
        device = device_named(device, local_rank)
        if device.startswith("cuda"):
            import torch

            torch.backends.cuda.enable_cudnn_sdp(
                False
            )  # it compiles attention for each new shape, and almost every batch has one
            memory = torch.cuda.mem_get_info(device)[0]
        elif device.startswith("mps"):
            import torch

            memory = torch.mps.recommended_max_memory()
        else:
            memory = free_memory()
        if precision == "auto":
            precision = fast_precision(device)
        return Hardware(device, precision, min(memory, limit) if limit else memory)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of matrix products. Sums, norms and weights are in fp32."""
        import torch

        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self.precision]


def device_named(device: str = "auto", local_rank: int = 0) -> str:
    """Return torch's name of the device that `--device` names; "cuda" means GPU number `local_rank`.

    Raises UsageError if it does not exist, NeedsTorch.
    """
    if device == "cpu" or (device == "auto" and not torch_build()):
        return "cpu"
    with loading_torch(f"--device {device}"):
        import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        device = f"cuda:{local_rank}"
    if re.fullmatch(r"cuda:\d+", device):
        if not torch.cuda.is_available():
            raise UsageError(
                f"--device {device!r}: torch {torch.__version__} sees no CUDA device here. Use --device cpu."
            )
        if int(device[5:]) >= torch.cuda.device_count():
            raise UsageError(
                f"--device {device!r}: torch sees {torch.cuda.device_count()} CUDA devices here, counted from 0."
            )
    elif device in ("mps", "mps:0"):
        device = "mps:0"
        if not torch.backends.mps.is_available():
            raise UsageError(f"--device mps: torch {torch.__version__} sees no GPU of Apple's here. Use --device cpu.")
    elif device != "cpu":
        raise UsageError(f"--device {device!r}: expected auto, cpu, cuda, cuda:N or mps.")
    return device


def torch_build() -> str:
    """Return torch's own file about its version and its libraries, without loading torch; "" if there is none."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or ()) if found else ():
        with suppress(OSError):
            return (Path(folder) / "version.py").read_text(encoding="utf-8")
    return ""


def surely_cpu(device: str) -> bool:
    """Return whether `--device` surely means the CPU.

    This does not load torch: for "auto", torch is built without GPUs or is not installed, or Linux has no device of a
    GPU.
    """
    if device != "auto":
        return device == "cpu"
    build = torch_build()
    if not build:
        return True
    if re.search(r"^cuda\b.*= None$", build, re.MULTILINE) and re.search(r"^hip\b.*= None$", build, re.MULTILINE):
        return True
    return sys.platform == "linux" and not any(Path(path).exists() for path in GPU_DEVICES)


def fast_precision(device: str) -> str:
    """Return the precision in which the device multiplies matrices fast: bf16, else fp16 on a CUDA device with tensor
    cores for fp16, else fp32.
    """
    if device == "cpu":
        return "bf16" if cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"} else "fp32"
    if not device.startswith("cuda"):
        return "fp32"
    import torch

    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next allocation.

    Every training pass allocates the same sizes again, and new pages take up to a tenth of the time of small models.
    With another C library this does nothing.
    """
    _mallopt({MMAP_THRESHOLD: 2**30, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26})


def return_freed_memory() -> None:
    """Let glibc return what large arrays leave at once, where memory counts more than new pages."""
    _mallopt({MMAP_THRESHOLD: 2**21})


def _mallopt(values: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in values.items():
            mallopt(parameter, value)


TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's function `mallopt`."""
STRICT = 1 << 16
"""The bit of MKL's mode that says: the same product whatever the number of rows, columns and threads."""


def expect_reproducible_products() -> None:
    """Warn once if MKL, which multiplies fp32 matrices for torch on Intel's processors, is not in a strict mode.

    It is not if the user's own $MKL_CBWR names another mode, or if MKL computed before `nmt_cli` was imported. Call
    this where torch will compute in fp32 on a CPU.
    """
    import torch

    if not torch.backends.mkl.is_available() or not _is_intel():  # type: ignore[no-untyped-call]
        return
    with suppress(OSError, AttributeError):  # MKL is a library of its own, and reads the variable too
        mode = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).mkl_serv_cbwr_get(-1)
        if mode & STRICT:
            return
        named = os.environ.get("MKL_CBWR", "")
        why, remedy = "torch computed before nmt_cli was imported", "Import nmt_cli first, or set"
        if "STRICT" not in named.upper():
            why, remedy = f"MKL_CBWR={named} in the environment is not strict", "Remove it, or set"
        console.warn_once(
            f"{why}: in fp32 by torch, a translation may depend on the lines beside it. {remedy} "
            "MKL_CBWR=AVX512,STRICT."
        )


def _is_intel() -> bool:
    with suppress(OSError):
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return False


def out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that an allocation failed.

    On a CPU, torch reports this only in the text of the error.
    """
    import torch

    words = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "out of memory", "not enough memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(word in str(error).lower() for word in words)


def cpu_flags() -> set[str]:
    """Return the instruction sets that the operating system reports for this CPU, by Linux's names; empty if it reports
    none.
    """
    if sys.platform == "darwin":
        reported = ctypes.CDLL(None).sysctlbyname
        value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))

        name = b"hw.optional.arm.FEAT_DotProd"
        missing = reported(name, ctypes.byref(value), ctypes.byref(size), None, 0)
        return set() if missing or not value.value else {"asimddp"}
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


def cores() -> int:
    """Return the number of CPU cores that this process may use: those that it may run on, or the CPU time that its
    control groups allow, rounded up.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_THREAD_LIMIT", "")  # with more threads than this limit, torch computes wrong results
    named = int(limit) if limit.isdecimal() else 0
    return math.ceil(min(count, named or count, control_groups.cpu_quota()))


def threads_by_default() -> int:
    """Return the number of threads with which one computation runs: $OMP_NUM_THREADS, else all cores."""
    named = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(named), cores()) if named.isdecimal() and int(named) else cores()


BUSY = 0.85
"""A machine is busy if threads get less than this share of the processor time that they could use."""
WATCHED = 0.4
"""For how many seconds `busy` uses the processor."""


def busy(threads: int) -> str:
    """Return a remark if other work, or a limit, takes processor time away from `threads` threads; else "".

    The threads compute for WATCHED seconds, and their processor time is compared with the time on the wall.
    """
    with ThreadPoolExecutor(threads) as pool:
        share = sum(pool.map(_computes, range(threads))) / WATCHED
    if share >= BUSY * threads:
        return ""
    return (
        f"this machine is busy: {threads} thread{'s' * (threads > 1)} get{'s' * (threads == 1)} the time of "
        f"{share:.1f} cores. All times are as measured beside the other work"
    )


def _computes(_: int) -> float:
    """Compute for WATCHED seconds, outside Python's lock, and return the processor time that this thread got."""
    block, start, end = bytes(2**16), time.thread_time(), time.monotonic() + WATCHED
    while time.monotonic() < end:
        hashlib.sha256(block).digest()
    return time.thread_time() - start


def free_memory() -> int:
    """Return the free memory in bytes: the system's available memory, or less if a control group leaves less."""
    available = 4 * 2**30
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    return max(int(min(available, control_groups.memory_left())), 2**28)
