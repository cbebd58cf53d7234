"""The compiled parts of decoding on a CPU: `kernels.cpp` and what it includes, made once by the machine's own C++ compiler
and kept.

    kernels() ──▶ compiled for this processor into $XDG_CACHE_HOME/nmt (or ~/.cache/nmt), loaded, typed; None: there are none
    stepper ──▶ library.nmt_…(sizes, addresses of tensors)          best_continuations: `continuations.Best` in one pass

They take no part of torch and know its tensors by address alone. Without a compiler, without a folder to write to, or
with NMT_KERNELS=off in the environment, decoding goes on in torch's operators (`fast.FastStepper`): slower, and
the same translations in fp32.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ... import console
from ...hardware import cpu_flags

SOURCE = Path(__file__).with_name("kernels.cpp")
PARTS = sorted(SOURCE.parent.glob("*.[ch]pp"))
"""It and what it includes."""
COMPILERS = ("c++", "g++", "clang++")
"""Tried in this order, after $CXX."""
FLAGS = ("-O3", "-std=c++17", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
NATIVE = {"x86_64": ("-march=native", "-mprefer-vector-width=512"), "AMD64": ("-march=native",), "aarch64": ("-mcpu=native",), "arm64": ("-mcpu=native",)}
"""For this very processor, by its kind."""
PATIENCE = 120
"""Seconds that a compiler may take; it needs about two."""

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
"""What the kernels call numbers of these types."""

_int, _float, _at, _kind = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_int
_out = (_at, _kind, _float)
_shape = (_int, _int, _int, _float)
FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "nmt_norm": (None, (_int, _int, _at, _at, _kind, _at, _at, _float, _kind, *_out)),
    "nmt_embed": (None, (_int, _int, _at, _at, _float, _at, _at, _at)),
    "nmt_attend_range": (None, (_int, *_shape, _at, _at, _at, _kind, _int, _int, _at, _at, *_out)),
    "nmt_past_new": (_at, (_int,)),
    "nmt_past_delete": (None, (_at,)),
    "nmt_past_enter": (None, (_at, _int, _int, _int)),
    "nmt_past_reorder": (None, (_at, _at)),
    "nmt_past_keep": (None, (_at, _int, _at, _int, _at)),
    "nmt_past_step": (_int, (_at, _int, _at, _at)),
    "nmt_attend_past": (None, (_at, *_shape, _at, _kind, _at, _kind, *_out)),
    "nmt_attend_memory": (None, (_at, *_shape, _at, _kind, _at, _kind, *_out)),
    "nmt_has_product": (_kind, ()),
    "nmt_pack": (None, (_int, _int, _at, _at, _at)),
    "nmt_product": (None, (_int, _int, _int, _at, _kind, _at, _at, _at, _at, _kind, _at, _kind, _float)),
    "nmt_best": (None, (_int, _int, _int, _at, _int, _at, _at, _int, _at, _at, _at, _int, _at, _at)),
}
"""Of each function the result and the parameters, as in the sources."""


@cache
def kernels() -> ctypes.CDLL | None:
    """The library, compiled if need be; None where it cannot be had."""
    if os.environ.get("NMT_KERNELS", "").lower() in ("off", "0", "no"):
        return None
    try:
        flags = [*FLAGS, *NATIVE.get(platform.machine(), ())]
        known = hashlib.sha256("\n".join([*(part.read_text(encoding="utf-8") for part in PARTS), *flags, platform.machine(), *sorted(cpu_flags())]).encode()).hexdigest()
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"
        path = folder / f"kernels-{known[:20]}.so"
        if not path.is_file():
            compile_to(path, flags)
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # damaged
            compile_to(path, flags)
            library = ctypes.CDLL(str(path))
        for name, (result, parameters) in FUNCTIONS.items():
            if name == "nmt_product" and not library.nmt_has_product():
                continue
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
        return library
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError):  # no compiler, no home, no place to write to, …
        return None


def compile_to(path: Path, flags: Sequence[str]) -> None:
    """Compile aside, then give it its name: several processes may do so at once. Raises OSError, SubprocessError."""
    compiler = shlex.split(os.environ.get("CXX", "")) or [found for name in COMPILERS if (found := shutil.which(name))][:1]
    if not compiler:
        raise FileNotFoundError("there is no C++ compiler")
    if console.on_terminal():
        console.say("compiling the decoder's kernels for this processor, once")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside) / path.name
        subprocess.run([*compiler, *flags, "-o", str(made), str(SOURCE)], check=True, capture_output=True, timeout=PATIENCE)
        made.replace(path)


def best_continuations(
    logits: Tensor, so_far: Tensor, rows: Tensor, count: int, never: Sequence[int], only: Tensor | None, banned: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See `continuations.Best`: tensors of the CPU, `kernels()` is there."""
    library = kernels()
    assert library is not None
    logits, so_far, rows = logits.contiguous(), so_far.contiguous(), rows.contiguous()
    batch, beam = so_far.shape
    values, flat = torch.empty(batch, count), torch.empty(batch, count, dtype=torch.int64)
    ids = torch.tensor(never, dtype=torch.int64)
    library.nmt_best(
        batch, beam, len(rows), rows.data_ptr(), logits.size(1), logits.data_ptr(), so_far.data_ptr(), len(ids), ids.data_ptr(),
        *(each.data_ptr() if each is not None else None for each in (banned, only)), count, values.data_ptr(), flat.data_ptr(),
    )  # fmt: skip
    return values, flat
