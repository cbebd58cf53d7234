"""The engine's library for this processor: found beside this file, loaded, and its functions declared.

    library() ──▶ the best lib/libnmt-NAME that this processor runs, or None; missing() says why; summary() says both

$NMT_ENGINE names another library, such as avx2, or is off: none is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..device.processor import cpu_flags
from ..errors import ModelError, UsageError, expected, printable, shown

if TYPE_CHECKING:
    import numpy.typing as npt

ABI = 5
"""The number of the interface in src/nmt.h. The library reports its own one, and they must be equal."""
FOLDER = Path(__file__).with_name("lib")
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
VARIABLE = "NMT_ENGINE"
OFF = "off"

AVX2 = frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}
AVX512_VNNI = AVX512 | {"avx512_vnni"}
X86 = {
    "avx512-amx": AVX512_VNNI | {"amx_tile", "amx_int8"},
    "avx512-vnni": AVX512_VNNI,
    "avx512": AVX512,
    "avx2-vnni": AVX2 | {"avx_vnni"},
    "avx2": AVX2,
}
ARM = {"neon-dotprod": frozenset({"asimddp"}), "neon": frozenset[str]()}
MACHINES = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}
NEEDS = {**MACHINES.get(platform.machine(), {}), "portable": frozenset[str]()}
"""Libraries for this kind of machine, the fastest first → the instruction sets that they need, as /proc/cpuinfo names
them."""

_int, _at, _handle = ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p


class _Array(ctypes.c_void_p):
    """An argument that is an array of NumPy, whose numbers the function gets, or None. The library checks no dtype."""

    @classmethod
    def from_param(cls, array: Any) -> Any:
        return None if array is None else ctypes.c_void_p(array.ctypes.data)


class CArray(ctypes.Structure):
    """nmt_array."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        *((name, _int) for name in ("dtype", "rows", "columns")),
        ("data", _at),
        ("mapped", _int),
    )


class CConfig(ctypes.Structure):
    """nmt_config. Its fields have the names of the recipe's section [model], as far as this has them."""

    _fields_ = (
        *(
            (name, _int)
            for name in (
                *("d_model", "num_heads", "key_size", "value_size", "d_ff", "encoder_layers", "decoder_layers"),
                *("max_positions", "source_vocab", "target_vocab", "norm", "activation", "positions", "decoder"),
                *("residual", "tie_embeddings", "monotonic_attention", "output_bias", "precision"),
            )
        ),
        ("epsilon", ctypes.c_double),
    )


class CResults(ctypes.Structure):
    """nmt_results."""

    _fields_ = (
        *((name, _int) for name in ("count", "nbest", "longest")),
        *((name, ctypes.POINTER(_int)) for name in ("ids", "lengths", "tokens")),
        *((name, ctypes.POINTER(ctypes.c_float)) for name in ("log_probs", "scores", "paths")),
    )


_ranking = (_Array, _int, _Array, _Array, _Array, _int, _Array, _Array)
FUNCTIONS: dict[str, tuple[Any, Sequence[Any]]] = {
    "nmt_abi": (ctypes.c_int32, ()),
    "nmt_instructions": (ctypes.c_char_p, ()),
    "nmt_error": (ctypes.c_char_p, ()),
    "nmt_use_threads": (None, (_int,)),
    "nmt_model_new": (_handle, (_at, _int, _at)),
    "nmt_model_delete": (None, (_handle,)),
    "nmt_search_new": (_handle, (_handle, _at)),
    "nmt_search_delete": (None, (_handle,)),
    "nmt_search_add": (_int, (_handle, _int, *(_Array,) * 4, _int, _Array, _Array)),
    "nmt_search_step": (_at, (_handle, _int, ctypes.c_double)),
    "nmt_search_drop": (_int, (_handle, _int, _Array)),
    "nmt_search_sentences": (_int, (_handle,)),
    "nmt_search_open": (_int, (_handle,)),
    "nmt_decoder_new": (_handle, (_handle, _int)),
    "nmt_decoder_delete": (None, (_handle,)),
    "nmt_decoder_add": (_int, (_handle, _int, _Array, _Array)),
    "nmt_decoder_step": (_int, (_handle, _int, _Array, _Array, _Array)),
    "nmt_decoder_best": (_int, (_handle, _int, _Array, _Array, *_ranking)),
    "nmt_decoder_reorder": (_int, (_handle, _Array)),
    "nmt_decoder_keep": (_int, (_handle, _int, _Array)),
    "nmt_rank": (_int, (_int, _int, _int, _Array, _int, _Array, _int, *_ranking)),
    "nmt_log_softmax": (_int, (_int, _int, _Array)),
    "nmt_pass": (_int, (_handle, _int, *(_Array,) * 9)),
    "nmt_train_threads": (None, (_at, _int)),
    "nmt_residual_forward": (_int, (_at,)),
    "nmt_residual_backward": (_int, (_at,) * 8),
    "nmt_activation_forward": (_int, (_at,) * 2),
    "nmt_activation_backward": (_int, (_at,) * 4),
    "nmt_attention_forward": (_int, (_at,)),
    "nmt_attention_backward": (_int, (_at,) * 8),
    "nmt_loss_rows": (_int, (_at,) * 3),
    "nmt_norm": (_int, (_int, _at, _at)),
    "nmt_adam_step": (_int, (_at,)),
}
"""Functions of the library → the types of the result and of the arguments, as in src/nmt.h. Each raises ModelError, or
MemoryError, if it fails."""


class Owner:
    """Owns what `handle` names in the library: `delete` frees it when the object is collected, in any thread.

    An object whose method a thread runs is referred to, so nothing is freed with which a thread computes when Python
    exits.
    """

    handle = 0
    delete: Any

    def __del__(self) -> None:
        if self.handle:
            self.delete(self.handle)


def library() -> Any:
    """Return the loaded library, or None (see `missing`). Raises UsageError for a wrong $NMT_ENGINE."""
    return _found()[0]


def missing() -> str:
    """Return why there is no library and what to do, in one sentence; "" if there is one. Raises as `library` does."""
    return _found()[1]


def summary() -> str:
    """Return which library runs and which others are installed, or why none runs. Raises as `library` does."""
    loaded, reason = _found()
    if loaded is None:
        return f"no engine: {reason}"
    running = loaded.nmt_instructions().decode()
    others = ", ".join(name for name in NEEDS if name != running and path_of(name).is_file())
    return f"{running} (also installed: {others or 'none'})"


def path_of(name: str) -> Path:
    """Return the path of the library with this name."""
    return FOLDER / f"libnmt-{name}{SUFFIX}"


@functools.cache
def _found() -> tuple[ctypes.CDLL | None, str]:
    """Return the library and "", or None and the reason. Raises UsageError."""
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return None, f"{VARIABLE} is {OFF}; unset it to use the engine"
    if named and named not in NEEDS:
        raise UsageError(f"{VARIABLE} = {shown(named)}: {expected(named, [*NEEDS, OFF])}")
    names = [named] if named else list(NEEDS)
    runs = next((name for name in names if path_of(name).is_file() and not _lacking(name)), "")
    loaded, reason = _loaded(path_of(runs)) if runs else (None, _unusable(names))
    if named and reason:
        raise UsageError(f"{VARIABLE} = {named!r}: {reason}. Or name another library, or unset {VARIABLE}.")
    return loaded, reason


def _lacking(name: str) -> list[str]:
    """Return the instruction sets that the library needs and this processor does not have."""
    return sorted(NEEDS[name] - cpu_flags())


def _unusable(names: list[str]) -> str:
    """Return why none of these libraries can be loaded."""
    if sys.byteorder == "big":
        return (
            f"the engine needs a little-endian processor, and this one, {platform.machine()}, is big-endian; "
            "translate with torch"
        )
    built = [name for name in names if path_of(name).is_file()]
    if not built:
        last = names[-1]
        that_knows = "" if last == "portable" else f" that knows {last}"
        return (
            f"there is no {path_of(last)}, because the package was built without a C++ compiler{that_knows}; "
            f"install g++ or clang++ (11 or later), then install the package again"
        )
    return f"{path_of(built[-1]).name} needs a processor with {', '.join(_lacking(built[-1]))}; use such a machine"


def _loaded(path: Path) -> tuple[ctypes.CDLL | None, str]:
    """Return the library with its functions declared, and ""; or None and the reason."""
    try:
        if lost := _missing_bytes(path):
            return None, f"{path} is cut off, {lost:,} bytes of it are missing; install the package again"
        loaded = ctypes.CDLL(str(path))
        if (found := loaded.nmt_abi()) != ABI:
            return None, f"{path} has interface {found}, expected {ABI}; install the package again"
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
            if result:
                function.errcheck = functools.partial(_checked, loaded)
    except (OSError, AttributeError) as error:  # damaged, or without one of the functions
        return None, f"{path} cannot be loaded ({error}); install the package again"
    return loaded, ""


def _checked(loaded: ctypes.CDLL, result: Any, *call: Any) -> Any:
    """Return the result of a call. Raises ModelError, or MemoryError, if it failed."""
    if result is None or result == -1:
        reason = printable(loaded.nmt_error().decode("utf-8", "replace"))
        raise MemoryError(reason) if reason == "out of memory" else ModelError(f"{reason}.")
    return result


def _missing_bytes(path: Path) -> int:
    """Return how many bytes an ELF file lacks at its end: to load it, cut off, would end the process.

    Raises OSError.
    """
    with path.open("rb") as stream:
        head = stream.read(64)
    if len(head) < 64 or not head.startswith(b"\x7fELF"):  # the loader says so itself
        return 0
    begin, size, count = struct.unpack("<40xQ10xHH2x", head)  # the table of sections, which is at the end
    return max(0, int(begin + size * count) - path.stat().st_size)


def integers(values: Any) -> npt.NDArray[Any]:
    """Return the values as the engine reads them."""
    import numpy as np  # here: `nmt info --help` reads this file, and needs no NumPy

    return np.ascontiguousarray(values, np.int64)


def flattened(sources: Sequence[Sequence[int]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the lengths of sequences of tokens, and their tokens one sequence after another."""
    return integers([len(source) for source in sources]), integers([token for source in sources for token in source])
