"""The compiled functions of decoding on a CPU: sources/kernels.cpp, compiled once by the machine's own C++ compiler, and kept.

    library() ──▶ `compiling`: compiled for this processor into the cache folder, checked, loaded ──▶ typed; None: no library
    decoder ──▶ library.nmt_…(sizes, addresses of numbers)

The functions call nothing of torch, and this file does not load it; they get the addresses of tensors (`on_tensors`) or arrays. Without a compiler, without a cache folder, or
with NMT_KERNELS=off in the environment, plain torch decodes (`decoding.cached_decoder`). It is slower, and in fp32 gives
the same translations.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

from ... import console
from ...cache import explained
from ..switch import switched_off
from .compiling import Library, compiled_library

if TYPE_CHECKING:
    from ..protocols import BeamState

FP32, BF16, INT8, UINT8 = 0, 1, 2, 3
"""The numbers of the dtypes in the sources."""

_int, _float, _at, _kind = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_int
_out = (_at, _kind, _float)
_shape = (_int, _int, _int, _float)
FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "nmt_norm": (None, (_int, _int, _at, _at, _kind, _at, _at, _float, _kind, *_out)),
    "nmt_activate": (None, (_kind, _int, _int, _at)),
    "nmt_embed": (None, (_int, _int, _at, _at, _at, _float, _at, _at, _at)),
    "nmt_rotate": (None, (_int, _int, _int, _int, _at, _at, _at, _kind)),
    "nmt_attend_range": (None, (_int, *_shape, _at, _at, _at, _kind, _int, _int, _at, _at, *_out)),
    "nmt_history_new": (_at, (_int,)),
    "nmt_history_delete": (None, (_at,)),
    "nmt_history_add": (None, (_at, _int, _int, _int)),
    "nmt_history_reorder": (None, (_at, _at)),
    "nmt_history_keep": (None, (_at, _int, _at, _int, _at)),
    "nmt_history_step": (_int, (_at, _int, _at, _at)),
    "nmt_attend_history": (None, (_at, *_shape, _at, _kind, _at, _kind, *_out)),
    "nmt_attend_memory": (None, (_at, *_shape, _at, _kind, _at, _kind, *_out)),
    "nmt_multiplies": (_kind, ()),
    "nmt_pack_fp32": (None, (_int, _int, _at, _at)),
    "nmt_pack_int8": (None, (_int, _int, _at, _at, _at)),
    "nmt_multiply": (None, (_at, _int, _at, _kind, _int, _at, _kind, _float)),
    "nmt_stack_step": (None, (_at, _at, _int, _at, _at, _at, _at, _at, _int, _at)),
    "nmt_stack_encode": (None, (_at, _int, _at, _at, _at, _at, _int, _at)),
    "nmt_stack_memory": (None, (_at, _int, _at, _int, _at, _int, _at)),
    "nmt_log_softmax": (None, (_int, _int, _at)),
    "nmt_top_candidates": (None, (_int, _int, _int, _at, _int, _at, _kind, _at, _int, _at, _at, _at, _int, _at, _at)),
    "nmt_extend_beam": (None, (_at, _at, _at, _at, _at)),
    "nmt_search": (_int, (_at, _at, _at, _at, _at, _int, _int, _int, ctypes.c_double, _at)),
    "nmt_best_outputs": (None, (_at, _at, _int, _int, _int, _at, _at, _int, _at, _at, _at, _int, _int, _at, _at)),
}
"""The types of the result and the parameters of each function, as in the sources."""


class Map(ctypes.Structure):
    """See sources/matmul.hpp."""

    _fields_ = (
        ("d_in", _int),
        ("d_out", _int),
        ("weight", _at),
        ("sums", _at),
        ("scales", _at),
        ("bias", _at),
        ("input_scale", _float),
        ("relu", ctypes.c_int32),
    )


class Norm(ctypes.Structure):
    """See sources/stack.hpp."""

    _fields_ = (("weight", _at), ("bias", _at), ("epsilon", _float))


class Sublayer(ctypes.Structure):
    """See sources/stack.hpp."""

    _fields_ = (("kind", _int), ("layer", _int), ("first", _at), ("last", _at))


class Stack(ctypes.Structure):
    """See sources/stack.hpp."""

    _fields_ = (
        *((name, _int) for name in ("size", "heads", "key", "value", "count")),
        ("factor", _float),
        ("scale", _float),
        ("post", ctypes.c_int32),
        ("cache", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        *((name, _at) for name in ("table", "table_scales", "positions", "rotations", "sublayers", "norms", "output")),
    )


class Beam(ctypes.Structure):
    """See sources/beam.hpp."""

    _fields_ = (
        *((name, _int) for name in ("batch", "beam", "count", "kept", "longest", "eos", "lookahead")),
        *(
            (name, _at)
            for name in (
                "penalties",
                "lengths",
                "max_lengths",
                "newest",
                "tokens",
                "log_probs",
                "done_tokens",
                "done_lengths",
                "done_log_probs",
                "done_scores",
                "missing",
            )
        ),
        *((name, _int) for name in ("always_banned", "banned_too_early", "banned_count")),
        ("banned", _at),
        ("textless_count", _int),
        ("textless", _at),
    )

    @classmethod
    def of(cls, state: BeamState, candidates: int) -> Beam:
        """Return the structure with the addresses of the state's tensors, for this number of candidates per sentence."""
        opened, finished, banned = state.open, state.finished, state.banned
        tensors = (
            state.penalties,
            state.lengths,
            state.max_lengths,
            opened.newest,
            opened.tokens,
            opened.log_probs,
            finished.tokens,
            finished.lengths,
            finished.log_probs,
            finished.scores,
            opened.missing,
        )
        assert all(tensor.is_contiguous() for tensor in tensors)
        return cls(
            *opened.newest.shape,
            candidates,
            finished.scores.size(1),
            opened.tokens.size(2),
            state.eos,
            state.lookahead,
            *(tensor.data_ptr() for tensor in tensors),
            banned.always,
            banned.too_early,
            len(banned.tokens),
            banned.tokens.data_ptr(),
            len(banned.textless),
            banned.textless.data_ptr(),
        )


@cache
def library() -> Library | None:
    """Return the library, compiled if needed; None if it is switched off, or cannot be compiled (a warning gives the reason)."""
    if switched_off():
        return None
    try:
        compiled = compiled_library(list(FUNCTIONS))
    except OSError as error:
        console.warn(
            f"translating with torch's operators, which are slower than the compiled kernels: {explained(error)}. NMT_KERNELS=off in the environment chooses them without this warning."
        )
        return None
    if compiled is not None:
        for name, (result, parameters) in FUNCTIONS.items():
            function = getattr(compiled, name)
            function.restype, function.argtypes = result, parameters
    return compiled
