"""nmt: the Transformer of "Attention Is All You Need" as a command-line translation toolkit, and from Python.

    import nmt_cli as nmt
    nmt.preprocess("demo"); nmt.train("demo")
    with nmt.load("runs/demo") as translator:
        print(translator.translate(["The rabbit sleeps."])[0].text)

A name is imported when it is first used: `import nmt_cli` loads neither torch nor other modules (see
`__main__.leave_working_folder`). docs/python.md describes the names, and `interface` defines them.
"""

import os
from contextlib import suppress

__version__ = "0.1.0"

SPINS = "1000"
"""How often a thread of OpenMP that waits for others looks again before it sleeps: some ten microseconds. By GNU's
default it looks 300,000 times, longer than the system lets a thread run. On a busy machine, the threads that wait then
take the cores from those that they wait for: training took up to five times as long (benchmarks/RESULTS.md)."""

if "OMP_WAIT_POLICY" not in os.environ:  # GNU's OpenMP reads both when torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

# torch compiles a kernel for each shape of matrix product, some 0.4 MB each, and keeps 1,024 of them twice. A training
# meets hundreds of shapes; to compile one again takes 0.2 ms.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "192")
os.environ.setdefault("LRU_CACHE_CAPACITY", "128")

# In this mode MKL, torch's library for fp32 products, computes the same product whatever the number of rows, columns
# and threads. A processor without AVX-512 takes the best that it has. MKL reads it when it first computes. On AMD's
# processors it is the other way round: in any mode a product depends on the threads, and without one it does not.
with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as _file:
    if "GenuineIntel" in _file.read(200):
        os.environ.setdefault("MKL_CBWR", "AVX512,STRICT")

_DEFINED = {
    "interface.init": "init",
    "interface.planning": "Initialized",
    "interface.fetching": "fetch datasets",
    "interface.information": "info",
    "interface.models": "models available get_model",
    "interface.commands": "preprocess train forecast average quantize export import_model Run",
    "interface.translator": "load Translator",
    "translation.line": "Line Translation Candidate",
    "interface.parsing": "Parse",
    "interface.evaluation": "evaluate Evaluation",
    "interface.calibration": "calibrate Calibrated",
    "interface.attention": "attend Attended",
    "interface.trees": "trees brackets TreeFiles",
    "interface.progress": "Progress",
    "errors": "NmtError",
}
"""Modules and the public names that they define. `__init__.pyi` declares the same names for type checkers."""
_NAMES = {name: module for module, names in _DEFINED.items() for name in names.split()}

__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
