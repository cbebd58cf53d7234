"""Faster replacements for parts of the core, which stays complete without them.

    apply_kernels(model, "training")   compute model ──▶ the same model with faster modules (cpu_training/, gpu_training/)
    apply_kernels(model, "decoding")   converted model ──▶ with faster linear maps, and another decoder (cpu_decoding/, gpu_decoding/)

Every kernel has a function `supports(…)`. It checks the exact types of the modules, and returns "" or the reason why the
kernel declines. Modules that no kernel supports stay plain torch. `KernelsInUse.summary` reports them; the log and
`nmt info` print it. A kernel computes the same as the module that it replaces: a parity test compares both for all norms,
residuals, activations and positions. NMT_KERNELS=off in the environment switches all kernels off.

To add a kernel, add a file with the module and its `supports`, and a line in `_for_training` or `_for_decoding`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch
from torch import nn

from ..hardware import cpu_flags, fast_precision
from ..model.attention import CrossAttention, SelfAttention
from ..model.layers import FeedForward
from ..model.precision import Bf16Linear, Int8Linear, convert, replace_modules
from ..model.residuals import DropoutAdd
from ..model.transformer import Transformer
from ..recipe import ModelSection
from . import onednn
from .cpu_decoding import decoder, linear, products, whole_steps
from .cpu_decoding.decoder import NativeDecoder, NativeModel
from .cpu_decoding.on_tensors import extend_beam as compiled_extend_beam
from .cpu_decoding.on_tensors import log_softmax_ as compiled_log_softmax
from .cpu_decoding.on_tensors import top_candidates as compiled_top_candidates
from .cpu_decoding.whole_steps import WholeStepDecoder, WholeSteps
from .cpu_training import attention, dropout
from .cpu_training import linear as training_linear
from .gpu_decoding import decoder as graph_decoder
from .gpu_decoding.decoder import GraphDecoder, GraphModel
from .gpu_training import attention as packed_attention
from .protocols import ExtendBeam, LogSoftmax, TopCandidates
from .switch import switched_off

Purpose = Literal["training", "decoding"]
COMPILED_DECODER, CUDA_GRAPHS = "compiled decoder", "CUDA graphs"


@dataclass(frozen=True)
class KernelsInUse:
    """A model with kernels applied, and the names of these kernels."""

    model: Transformer
    purpose: Purpose
    native: NativeModel | None = None
    """The model of the compiled decoder; None if this decoder declined."""
    whole_steps: WholeSteps | None = None
    """The model of the decoder that compiles whole steps; None if `whole_steps.supports` is False."""
    graphs: GraphModel | None = None
    """The model of the decoder with CUDA graphs; None if this decoder declined."""
    used: tuple[str, ...] = ()
    declined: dict[str, str] = field(default_factory=dict)
    """Part of the model → the reason why its kernel declined."""

    def native_decoder(self, sources: Sequence[Sequence[int]], beam: int) -> NativeDecoder | GraphDecoder | None:
        """Return a faster decoder over sentences with these ids, end symbols included; None if all such decoders declined."""
        if self.graphs is not None:
            return GraphDecoder(self.graphs, sources, beam)
        if self.whole_steps is not None:
            return WholeStepDecoder(self.whole_steps, sources, beam)
        return NativeDecoder(self.native, sources, beam) if self.native is not None else None

    def without_compiled_decoder(self, reason: str) -> KernelsInUse:
        """Return the same kernels without a faster decoder, and record `reason` as the reason why it declines."""
        if self.native is None and self.graphs is None:
            return self
        used = tuple(name for name in self.used if name not in (COMPILED_DECODER, CUDA_GRAPHS))
        return replace(
            self, native=None, whole_steps=None, graphs=None, used=used, declined={**self.declined, "decoder": reason}
        )

    @property
    def top_candidates(self) -> TopCandidates | None:
        """The compiled function that ranks candidates; None if the compiled decoder declined."""
        return compiled_top_candidates if self.native is not None else None

    @property
    def log_softmax(self) -> LogSoftmax | None:
        """The compiled log-softmax; None if plain torch computes it."""
        return compiled_log_softmax if self.native is not None else None

    @property
    def extend_beam(self) -> ExtendBeam | None:
        """The compiled step of beam search; None if plain torch computes it."""
        return compiled_extend_beam if self.native is not None else None

    @property
    def unknown_forms(self) -> list[str]:
        """The reasons that concern a type of module in the model, such as its norm. Such a model may run slower than users expect."""
        return list(
            dict.fromkeys(
                reason for reason in self.declined.values() if "no kernel" in reason and not reason.startswith("device")
            )
        )

    @property
    def summary(self) -> str:
        """One line for people: the kernels in use, and the reasons why other parts run as plain torch."""
        parts = [*self.used, *(f"plain torch: {reason}" for reason in dict.fromkeys(self.declined.values()))]
        return f"{self.purpose}: {'; '.join(parts) or 'plain torch'}"


def apply_kernels(model: Transformer, purpose: Purpose, release: bool = False) -> KernelsInUse:
    """Return the model with every kernel that supports its modules; `model` itself and its parameters stay as they are.

    For decoding, `model` comes from `model.precision.convert`. With `release`, its weights are freed while the kernels copy them,
    and `model` must not be used afterwards.
    """
    if switched_off():
        return KernelsInUse(model, purpose, declined={"all": "NMT_KERNELS=off"})
    return _for_training(model) if purpose == "training" else _for_decoding(model, release)


def _for_decoding(model: Transformer, release: bool) -> KernelsInUse:
    device, declined = model.device, dict[str, str]()
    for module in model.modules():
        if isinstance(module, nn.Linear | Bf16Linear | Int8Linear | FeedForward) and (
            reason := linear.supports(module, device)
        ):
            declined[type(module).__name__] = reason
    replaced = linear.replace_linear(model, release)
    used = {linear.name_of(module) for module in replaced.modules() if isinstance(module, linear.KernelLinear)}
    if device.type == "cuda":
        reason = graph_decoder.supports(replaced)
        graphs = None if reason else GraphModel(replaced)
        return KernelsInUse(
            replaced,
            "decoding",
            graphs=graphs,
            used=(CUDA_GRAPHS,) if graphs else (),
            declined={**declined, "decoder": reason} if reason else declined,
        )
    if reason := decoder.supports(replaced):
        return KernelsInUse(replaced, "decoding", used=tuple(sorted(used)), declined={**declined, "decoder": reason})
    native = NativeModel(replaced)
    steps = WholeSteps(native) if whole_steps.supports(native) else None
    return KernelsInUse(replaced, "decoding", native, steps, used=(COMPILED_DECODER, *sorted(used)), declined=declined)


def _for_training(model: Transformer) -> KernelsInUse:
    device, dtype = model.device, model.output_weight.dtype
    used, declined = dict[str, None](), dict[str, str]()

    def chosen(what: str, name: str, reason: str) -> bool:
        if reason:
            declined[what] = reason
        else:
            used[name] = None
        return not reason

    def rule(module: nn.Module, name: str) -> nn.Module | None:
        if isinstance(module, nn.Dropout | DropoutAdd) and chosen(
            "dropout", "dropout by 16-bit draws", dropout.supports(module, device)
        ):
            return (
                dropout.FastDropout(module.p)
                if isinstance(module, nn.Dropout)
                else dropout.FastDropoutAdd(module.dropout.p)
            )
        if isinstance(module, SelfAttention | CrossAttention) and device.type == "cuda":
            return (
                packed_attention.replacement(module)
                if chosen("attention", "packed attention", packed_attention.supports(module, device, dtype))
                else None
            )
        if isinstance(module, SelfAttention | CrossAttention) and chosen(
            "attention", "short attention", attention.supports(module, device)
        ):
            new = copy.copy(module)
            new.attend = attention.attend_short
            new._modules = {
                key: child if child is None else replace_modules(child, rule) for key, child in module._modules.items()
            }
            return new
        maps = dtype == torch.bfloat16 and isinstance(module, nn.Linear | FeedForward)
        if maps and chosen(
            type(module).__name__, "fused bf16 linear maps", training_linear.supports(module, device, dtype)
        ):
            return (
                training_linear.FusedFeedForward(module)
                if isinstance(module, FeedForward)
                else training_linear.FusedLinear(cast(nn.Linear, module))
            )
        return None

    replaced = cast(Transformer, replace_modules(model, rule))
    return KernelsInUse(replaced, "training", used=tuple(used), declined=declined)


def summaries(config: ModelSection, device: str, training_dtype: torch.dtype) -> dict[Purpose, str]:
    """Return `KernelsInUse.summary` for training in `training_dtype` and for decoding in the fastest precision.

    Kernels depend on the types and sizes of the layers, not on their number. So the model that is built here has one layer per side.
    """
    small = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1, "max_positions": 8})
    with torch.random.fork_rng([]):
        model = Transformer(small, 8, 8)
    training = apply_kernels(model.to(device).to(training_dtype), "training")
    decoding = apply_kernels(convert(model.to(torch.float32), fastest_precision(device)), "decoding")
    return {"training": training.summary, "decoding": decoding.summary}


def has_int8() -> bool:
    """Return whether int8 has kernels on this CPU."""
    return onednn.has_int8_linear() or products.multiplies(torch.int8)


def fastest_precision(device: str) -> str:
    """Return the precision in which this device translates fastest.

    It is int8 on a CPU that has instructions or compiled matrix products for int8, else `hardware.fast_precision`.
    """
    if device != "cpu":
        return fast_precision(device)
    if switched_off():
        return fast_precision(device)
    has_instructions = bool(cpu_flags() & {"avx512_vnni", "avx_vnni", "amx_int8"}) and onednn.has_int8_linear()
    return "int8" if has_instructions or products.multiplies(torch.int8) else fast_precision(device)
