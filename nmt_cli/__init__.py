"""nmt: the Transformer of "Attention Is All You Need" as a command-line translation toolkit."""

import os

from .hardware import cpu_flags

__version__ = "0.1.0"

# MKL, torch's library for matrix products in fp32, reads this at its first product: the same numbers whatever the
# number of rows, of columns and of threads. On processors that are not Intel's it does nothing.
os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if "avx512f" in cpu_flags() else "AVX2,STRICT")
