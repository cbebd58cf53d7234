"""Faster parts of training, which stays complete without them.

    apply_kernels(model, seed)   compute model ──▶ the same model with faster parts (cpu_training/, gpu_training/)

On a CPU, a `FusedTransformer` replaces the passes through the model; its operations are the engine's, and
NMT_ENGINE=off in the environment leaves them out. On a GPU, modules are replaced. What a kernel does not know stays
plain torch. `KernelsInUse.summary` reports it; the log and `nmt info` print it. A kernel computes the same as plain
torch: a parity test compares both for all norms, residuals, activations and positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ..engine.library import library, missing
from ..model.precision import replace_modules
from ..model.transformer import Transformer
from ..recipe import ModelSection
from .chunked_loss import chunked_loss
from .cpu_training.calls import DTYPES, Counter
from .cpu_training.loss import block_loss
from .cpu_training.transformer import FusedTransformer, plain_parts
from .gpu_training import attention as packed_attention

BY_COUNTER, PACKED = "dropout by counter", "packed attention"
"""In a summary: dropout does not draw from torch's generator; attention on a GPU."""


@dataclass(frozen=True)
class KernelsInUse:
    """A model with kernels applied, and the names of these kernels."""

    model: Transformer
    used: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    """The reasons why other parts are plain torch."""

    @property
    def pads_nothing(self) -> bool:
        """Whether all attention is over packed sentences. No other part of the model pads them."""
        return PACKED in self.used and not self.declined

    @property
    def summary(self) -> str:
        """One line for people: the kernels in use, and the reasons why other parts run as plain torch."""
        parts = [*self.used, *(f"plain torch: {reason}" for reason in self.declined)]
        return f"training: {'; '.join(parts) or 'plain torch'}"


def apply_kernels(model: Transformer, seed: int = 0, allowed: bool = True) -> KernelsInUse:
    """Return the model with every kernel that supports its parts; `model` itself does not change.

    `seed` is that of dropout by counter. Kernels are not `allowed` where torch compiles the passes for a CPU.
    """
    if not allowed:
        return KernelsInUse(model, declined=("--compile",))
    if model.device.type == "cuda":
        return _on_gpu(model)
    if model.device.type != "cpu":
        return KernelsInUse(model)
    if library() is None:
        return KernelsInUse(model, declined=(missing(),))
    if model.output_weight.dtype not in DTYPES:
        return KernelsInUse(model, declined=(f"{model.output_weight.dtype} has no kernel",))
    return KernelsInUse(
        FusedTransformer(model, Counter(seed)),
        (f"the engine's fused operations, {BY_COUNTER}",),
        tuple(plain_parts(model)),
    )


def loss_function(model: Transformer) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Return the faster function for `training.loss.label_smoothed_loss` over this model's vocabulary, or None."""
    if isinstance(model, FusedTransformer):
        return block_loss
    return chunked_loss if model.device.type == "cuda" else None


def _on_gpu(model: Transformer) -> KernelsInUse:
    used, declined = dict[str, None](), dict[str, None]()

    def rule(module: nn.Module, _: str) -> nn.Module | None:
        if not isinstance(module, packed_attention.KINDS):
            return None
        reason = packed_attention.supports(module)
        (declined if reason else used)[reason or PACKED] = None
        return None if reason else packed_attention.replacement(module)

    return KernelsInUse(cast(Transformer, replace_modules(model, rule)), tuple(used), tuple(declined))


def summary(config: ModelSection, device: str, dtype: torch.dtype) -> str:
    """Return `KernelsInUse.summary` for training in `dtype`.

    Kernels depend on the types and sizes of the layers, not on their number: the model built here has one layer per
    side.
    """
    small = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1, "max_positions": 8})
    with torch.random.fork_rng([]):
        model = Transformer(small, 8, 8)
    return apply_kernels(model.to(device).to(dtype)).summary
