"""How a C++ program is compiled with the sources of the engine."""

import os
import shutil
from pathlib import Path

INCLUDED = Path(__file__).parents[2] / "nmt_cli" / "engine" / "src"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
FLAGS = "-std=c++17 -fno-fast-math -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd"
FLAGS += ' -fvisibility=hidden -pthread -DNMT_INSTRUCTIONS=""'
AVX2 = "-mavx2 -mfma -mf16c -mbmi -mbmi2"
AVX512 = f"{AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mprefer-vector-width=512"
SETS = {
    "portable": "",
    "avx2": AVX2,
    "avx2-vnni": f"{AVX2} -mavxvnni",
    "avx512": AVX512,
    "avx512-vnni": f"{AVX512} -mavx512vnni",
    "avx512-amx": f"{AVX512} -mavx512vnni -mamx-tile -mamx-int8",
    "neon": "-march=armv8-a",
    "neon-dotprod": "-march=armv8.2-a+dotprod",
}
"""The compiler's flags for each library of the engine."""
