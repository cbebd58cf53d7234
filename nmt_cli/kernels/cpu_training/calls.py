"""What the engine's operations of training share: their arguments, and dropout by counter.

    Counter(seed)   its `update` is set before each update; `places` numbers a pass's dropouts in their order
    Rows            which pair of sentences and which position each row of a packed batch is
    Dropout         one dropout of one pass ──▶ nmt_dropout of nmt.h

A unit's mask depends on the seed, the update, the place, and the row's pair and position alone. It does not depend on
threads, micro-batches or ranks. It is not stored: the backward pass computes it again.

    N rows of a packing
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...engine.library import library

DTYPES = {torch.float32: 0, torch.bfloat16: 1}
"""dtypes of rows, as in nmt.h."""
LEVELS = 65_536
"""A unit draws one of so many numbers."""

Int, Double, Address = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def structure(name: str, *fields: tuple[Any, str]) -> type[ctypes.Structure]:
    """Return a structure of nmt.h: a type and its fields' names, separated by spaces, and so on."""
    each = [(field, kind) for kind, names in fields for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": each})


CDropout = structure("CDropout", (Int, "seed update place dropped"), (Address, "pairs positions"))


@dataclass(frozen=True)
class Rows:
    """The pair and the position of each row of a packing, int32 (N,)."""

    pairs: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Dropout:
    """A dropout of one pass; `rate` is the share of units that become 0, to within 2**-17."""

    seed: int
    update: int
    place: int
    rate: float
    rows: Rows

    def form(self) -> Any:
        """Return nmt_dropout."""
        rows = self.rows
        dropped = min(round(self.rate * LEVELS), LEVELS - 1)
        return CDropout(self.seed, self.update, self.place, dropped, rows.pairs.data_ptr(), rows.positions.data_ptr())


class Counter:
    """Numbers the dropouts of a training."""

    def __init__(self, seed: int) -> None:
        self.seed, self.update, self.place = (seed ^ seed >> 32) & 0xFFFF_FFFF, 0, 0

    def dropout(self, rate: float, rows: Rows) -> Dropout | None:
        """Return the pass's next dropout; None if it drops nothing."""
        self.place += 1
        return Dropout(self.seed, self.update, self.place, rate, rows) if rate else None


def address(tensor: Tensor | None) -> int | None:
    """Return where the numbers of a tensor are; None: NULL."""
    return None if tensor is None else tensor.data_ptr()


def pointer(form: ctypes.Structure | None) -> Any:
    """Return the address of a structure, as another one holds it; None: NULL. The structure must live as long."""
    return None if form is None else ctypes.addressof(form)


def use_threads(count: int) -> None:
    """Let the engine's operations use `count` threads: those that torch's own operators use, libgomp's.

    Without libgomp they use one.
    """
    library().nmt_train_threads(_team(), count)


@functools.cache
def _team() -> Any:
    """Return the address of libgomp's GOMP_parallel in torch, or None."""
    try:
        return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, Address)
    except (AttributeError, OSError):
        return None


def sums_like(tensor: Tensor | None, needed: bool) -> Tensor | None:
    """Return memory for a gradient in fp32, if it is needed."""
    return torch.empty(tensor.shape, dtype=torch.float32) if tensor is not None and needed else None
