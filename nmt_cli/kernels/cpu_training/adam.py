"""The norm of the gradient, and a step of Adam, each in one pass over memory, on a CPU.

torch.optim.Adam(fused=True) is the reference.
"""

from __future__ import annotations

import ctypes

from torch import Tensor

from ...engine.library import library
from .calls import Address, Double, Int, address, pointer, structure

_Form = structure(
    "CAdam",
    (Int, "count step"),
    (Address, "params first second grads rounded"),
    (Double, "scale rate beta1 beta2 epsilon"),
)


def norm(x: Tensor) -> float:
    """Return the Euclidean norm of x, fp32 (P,)."""
    result = Double()
    library().nmt_norm(x.numel(), address(x), ctypes.addressof(result))
    return result.value


def adam_step(
    params: Tensor,
    grads: Tensor,
    first: Tensor,
    second: Tensor,
    rounded: Tensor | None,
    step: int,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    scale: float,
) -> None:
    """Change the parameters and their moments `first` and `second`, all fp32 (P,), by Adam's step number `step`.

    Gradients are multiplied by `scale` before. `rounded`, bf16 (P,), gets the new parameters.
    """
    arrays = map(address, (params, first, second, grads, rounded))
    form = _Form(params.numel(), step, *arrays, scale, rate, beta1, beta2, epsilon)
    library().nmt_adam_step(pointer(form))
