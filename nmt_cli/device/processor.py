"""The processor: its instructions, its cores, whether others use them, and whether its products are reproducible."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .. import console
from . import control_groups

STRICT = 1 << 16
"""The bit of MKL's mode that says: the same product whatever the number of rows, columns and threads."""


def expect_reproducible_products() -> None:
    """Warn once if MKL, which multiplies fp32 matrices for torch on Intel's processors, is not in a strict mode.

    It is not if the user's own $MKL_CBWR names another mode, or if MKL computed before `nmt_cli` was imported. Call
    this where torch will compute in fp32 on a CPU.
    """
    import torch

    if not torch.backends.mkl.is_available() or "GenuineIntel" not in _cpuinfo():  # type: ignore[no-untyped-call]
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


def _cpuinfo() -> str:
    """Return Linux's description of the processor; "" elsewhere."""
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return ""


def cpu_flags() -> set[str]:
    """Return the instruction sets that the system reports for this CPU, by Linux's names; empty if it reports none."""
    if sys.platform == "darwin":
        reported = ctypes.CDLL(None).sysctlbyname
        value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
        missing = reported(b"hw.optional.arm.FEAT_DotProd", ctypes.byref(value), ctypes.byref(size), None, 0)
        return set() if missing or not value.value else {"asimddp"}
    for line in _cpuinfo().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def cores() -> int:
    """Return how many cores this process may use: those it may run on, or its control groups' CPU time, rounded up."""
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
