"""The compiled parts of decoding on a CPU: `kernels.cpp` and what it includes, made once by the machine's own C++ compiler
and kept.

    library() ──▶ `compiling`: compiled for this processor into the cache folder, checked, loaded ──▶ typed; None: there are none
    decoder ──▶ library.nmt_…(sizes, addresses of tensors)          best_continuations: `continuations.Best` in one pass

They take no part of torch and know its tensors by address alone. Without a compiler, without a folder to write to, or
with NMT_KERNELS=off in the environment, torch's operators decode (`fast.CachedDecoder`): slower, and the same translations
in fp32.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ... import console
from ...cache import explained
from .compiling import compiled_library

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
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
OPTIONAL = {"nmt_product"}
"""For some processors only: see nmt_has_product."""


def switched_off() -> bool:
    """Whether the environment forbids all kernels: NMT_KERNELS=off."""
    return os.environ.get("NMT_KERNELS", "").lower() in ("off", "0", "no")


@cache
def library() -> ctypes.CDLL | None:
    """The library, compiled if need be; None where it cannot be had, which a warning says, or is not wanted."""
    if switched_off():
        return None
    try:
        found = compiled_library([name for name in FUNCTIONS if name not in OPTIONAL])
    except OSError as error:
        console.warn(f"translating with torch's operators, which are slower than the compiled kernels: {explained(error)}. NMT_KERNELS=off in the environment chooses them without this warning.")
        return None
    if found is not None:
        for name, (result, parameters) in FUNCTIONS.items():
            if name not in OPTIONAL or found.nmt_has_product():
                function = getattr(found, name)
                function.restype, function.argtypes = result, parameters
    return found


def best_continuations(
    logits: Tensor, so_far: Tensor, rows: Tensor, count: int, never: Sequence[int], only: Tensor | None, banned: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See `continuations.Best`: tensors of the CPU, `library()` is not None."""
    functions = library()
    assert functions is not None
    logits, so_far, rows = logits.contiguous(), so_far.contiguous(), rows.contiguous()
    batch, beam = so_far.shape
    values, flat = torch.empty(batch, count), torch.empty(batch, count, dtype=torch.int64)
    ids = torch.tensor(never, dtype=torch.int64)
    functions.nmt_best(
        batch, beam, len(rows), rows.data_ptr(), logits.size(1), logits.data_ptr(), so_far.data_ptr(), len(ids), ids.data_ptr(),
        *(each.data_ptr() if each is not None else None for each in (banned, only)), count, values.data_ptr(), flat.data_ptr(),
    )  # fmt: skip
    return values, flat
