"""Faster replacements for parts of training, which stays complete without them.

    apply_kernels(model)   compute model ──▶ the same model with faster modules (cpu_training/, gpu_training/)

Every kernel has a function `supports(…)`. It checks the exact types of the modules, and returns "" or the reason why
the kernel declines. Modules that no kernel supports stay plain torch. `KernelsInUse.summary` reports them; the log and
`nmt info` print it. A kernel computes the same as the module that it replaces: a parity test compares both for all
norms, residuals, activations and positions. NMT_KERNELS=off in the environment switches all kernels off.

To add a kernel, add a file with the module and its `supports`, and a line in `apply_kernels`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from ..model.attention import CrossAttention, SelfAttention
from ..model.layers import FeedForward
from ..model.precision import replace_modules
from ..model.residuals import DropoutAdd
from ..model.transformer import Transformer
from ..recipe import ModelSection
from .cpu_training import attention, dropout
from .cpu_training import linear as training_linear
from .gpu_training import attention as packed_attention


def switched_off() -> bool:
    """Return whether the environment forbids all kernels: NMT_KERNELS=off."""
    return os.environ.get("NMT_KERNELS", "").lower() in ("off", "0", "no")


@dataclass(frozen=True)
class KernelsInUse:
    """A model with kernels applied, and the names of these kernels."""

    model: Transformer
    used: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    """The reasons why kernels declined."""

    @property
    def summary(self) -> str:
        """One line for people: the kernels in use, and the reasons why other parts run as plain torch."""
        parts = [*self.used, *(f"plain torch: {reason}" for reason in self.declined)]
        return f"training: {'; '.join(parts) or 'plain torch'}"


def apply_kernels(model: Transformer) -> KernelsInUse:
    """Return the model with every kernel that supports its modules; `model` itself does not change."""
    if switched_off():
        return KernelsInUse(model, declined=("NMT_KERNELS=off",))
    device, dtype = model.device, model.output_weight.dtype
    used, declined = dict[str, None](), dict[str, None]()

    def rule(module: nn.Module, name: str) -> nn.Module | None:
        make: Any = None  # module -> its replacement
        if isinstance(module, nn.Dropout | DropoutAdd):
            kernel, make = "dropout by 16-bit draws", dropout.replacement
            reason = dropout.supports(module, device)
        elif isinstance(module, SelfAttention | CrossAttention) and device.type == "cuda":
            kernel, make = "packed attention", packed_attention.replacement
            reason = packed_attention.supports(module, device, dtype)
        elif isinstance(module, SelfAttention | CrossAttention):
            kernel, reason = "short attention", attention.supports(module, device)
        elif isinstance(module, nn.Linear | FeedForward) and dtype == torch.bfloat16:
            kernel, make = "fused bf16 linear maps", training_linear.replacement
            reason = training_linear.supports(module, device, dtype)
        else:
            return None
        (declined if reason else used)[reason or kernel] = None
        return cast(nn.Module, make(module)) if make and not reason else None

    replaced = cast(Transformer, replace_modules(model, rule))
    for module in replaced.modules():  # copies of the modules of `model`
        if isinstance(module, SelfAttention | CrossAttention) and not attention.supports(module, device):
            module.attend = attention.attend_short
    return KernelsInUse(replaced, tuple(used), tuple(declined))


def summary(config: ModelSection, device: str, dtype: torch.dtype) -> str:
    """Return `KernelsInUse.summary` for training in `dtype`.

    Kernels depend on the types and sizes of the layers, not on their number: the model built here has one layer per
    side.
    """
    small = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1, "max_positions": 8})
    with torch.random.fork_rng([]):
        model = Transformer(small, 8, 8)
    return apply_kernels(model.to(device).to(dtype)).summary
