"""nmt: the Transformer of "Attention Is All You Need" as a command-line translation toolkit."""

import os

__version__ = "0.1.0"


def _cpu_has(flag: str) -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return any(flag in line.split() for line in file if line.startswith("flags"))
    except OSError:
        return False


# MKL, torch's library for matrix products in fp32, reads this at its first product: then it computes the same numbers
# whatever the number of rows, of columns and of threads. On processors that are not Intel's it does nothing.
os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if _cpu_has("avx512f") else "AVX2,STRICT")
