"""Faster replacements for parts of training, which stays complete without them.

    apply_kernels(model)   compute model ──▶ the same model with faster modules (cpu_training/, gpu_training/)

The file of a kernel has `KINDS`, the modules that it may replace; `supports(module)`, which checks the exact type and
returns "" or the reason why the kernel declines; and `replacement(module)`. Modules that no kernel supports stay plain
torch. `KernelsInUse.summary` reports them; the log and `nmt info` print it. A kernel computes the same as the module
that it replaces: a parity test compares both for all norms, residuals, activations and positions. NMT_KERNELS=off in
the environment switches all kernels off.

To add a kernel, add its file, and a line in `kernels_for`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import cast

import torch
from torch import nn

from ..model.precision import replace_modules
from ..model.transformer import Transformer
from ..recipe import ModelSection
from .cpu_training import attention, dropout, linear
from .gpu_training import attention as packed_attention


def switched_off() -> bool:
    """Return whether the environment forbids all kernels: NMT_KERNELS=off."""
    return os.environ.get("NMT_KERNELS", "").lower() in ("off", "0", "no")


def kernels_for(device: torch.device, dtype: torch.dtype) -> dict[str, ModuleType]:
    """Return the files of the kernels for training on `device` in `dtype`, by the names that people read."""
    if device.type == "cuda":
        return {"packed attention": packed_attention}
    if device.type != "cpu":
        return {}
    kernels = {"dropout by 16-bit draws": dropout, "short attention": attention}
    return {**kernels, "fused bf16 linear maps": linear} if dtype == torch.bfloat16 else kernels


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
    replaced: nn.Module = model
    used, declined = dict[str, None](), dict[str, None]()

    def rule(name: str, kernel: ModuleType, module: nn.Module, _: str) -> nn.Module | None:
        if not isinstance(module, kernel.KINDS):
            return None
        reason = kernel.supports(module)
        (declined if reason else used)[reason or name] = None
        return None if reason else kernel.replacement(module)

    for name, kernel in kernels_for(model.device, model.output_weight.dtype).items():
        replaced = replace_modules(replaced, partial(rule, name, kernel))
    return KernelsInUse(cast(Transformer, replaced), tuple(used), tuple(declined))


def summary(config: ModelSection, device: str, dtype: torch.dtype) -> str:
    """Return `KernelsInUse.summary` for training in `dtype`.

    Kernels depend on the types and sizes of the layers, not on their number: the model built here has one layer per
    side.
    """
    small = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1, "max_positions": 8})
    with torch.random.fork_rng([]):
        model = Transformer(small, 8, 8)
    return apply_kernels(model.to(device).to(dtype)).summary
