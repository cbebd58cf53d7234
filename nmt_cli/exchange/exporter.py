"""The interface of an exporter, and functions that exporters share.

    model folder ──▶ SourceModel ──▶ check ──▶ write(folder) ──▶ read(folder) ──▶ Reader ──▶ verify

An exporter is one file with an `Exporter`, and one line in `registry.EXPORTERS`. It imports its library inside its
functions. Shared by exporters: the projections of an attention as four matrices, and the nearest length penalty.

    D d_model   H heads   K d_k or d_v   S source length   T target length   V target vocabulary
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.tokenizer import BOS, PAD, UNK, Vocabulary
from ..errors import ModelError, UsageError, install_command
from ..model.attention import CrossAttention, SelfAttention
from ..model.layers import EncoderLayer
from ..model.positions import Learned, Sinusoidal
from ..model.residuals import PostNorm, PreNorm
from ..model.transformer import Transformer
from ..recipe import Recipe
from ..registry import LENGTH_PENALTIES, load

BANNED = (PAD, UNK, BOS)
"""Ids that search never generates."""
LENGTHS = range(10, 61)
"""Output lengths, in tokens, over which the other library's length penalty is fitted."""


@dataclass(frozen=True)
class SourceModel:
    """The model to export, on the CPU in evaluation mode, with its recipe and vocabulary."""

    model: Transformer
    recipe: Recipe
    vocabulary: Vocabulary
    safe_length: int
    """The length, in source tokens, up to which nmt translates a line whole."""

    @property
    def length_penalty(self) -> float:
        """The length penalty nearest to the recipe's, for libraries that divide by |Y| ** length_penalty."""
        decode = self.recipe.decode
        return nearest_length_penalty(decode.alpha, load(LENGTH_PENALTIES, decode.length_penalty, "length penalty"))

    @property
    def divisor(self) -> str:
        """The formula by which nmt divides log P(Y), as text for people."""
        decode = self.recipe.decode
        return {
            "gnmt": f"((5 + |Y|) / 6)^{decode.alpha}",
            "average": "|Y|",
            "power": f"|Y|^{decode.alpha}",
            "none": "1",
        }.get(decode.length_penalty, f"{decode.length_penalty}(|Y|)")


@dataclass(frozen=True)
class Output:
    """The output of a model for one sentence."""

    tokens: list[int]
    """Tokens of greedy search, with the end symbol if it was reached."""
    logits: Tensor
    """(T, V), a row for each step of greedy search; the columns of BANNED mean nothing."""
    log_probs: Tensor
    """(T,), of the tokens of the target and its end symbol."""
    states: Tensor | None = None
    """(S, D), the encoder's output, if the library returns it."""


class Reader(Protocol):
    """An exported folder, loaded with its library in fp32 on the CPU."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the folder's own tokenizer, with the end symbol."""
        ...

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of target ids."""
        ...

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> Iterable[Output]:
        """Run one batch: greedy search up to `limit` tokens, and the log-probabilities of `targets`.

        Both sides end in EOS; an output may be EOS alone.
        """
        ...


@dataclass(frozen=True)
class Exporter:
    """An entry of `registry.EXPORTERS`: the three functions that export to a library."""

    check: Callable[[SourceModel], None]
    """Raises ModelError if the library cannot express the model, before anything is written, and UsageError if it is
    not installed."""
    write: Callable[[SourceModel, Path], None]
    """Fills the folder. Raises OSError."""
    read: Callable[[Path], Reader]
    """Loads the folder as its users do."""


def library(name: str) -> Any:
    """Import the library `name`. Raises UsageError with the name of its extra if it is not installed."""
    extra = {"transformers": "huggingface"}.get(name, name)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"--to {extra} needs the extra package {name} ({error}): {install_command(extra)}.") from None


def check_modules(model: Transformer, library_name: str, more: Sequence[type] = ()) -> None:
    """Raise ModelError if the model has a module that this export does not know.

    It checks norms, residuals, activations and positional encodings, and refuses hard monotonic attention. `more`:
    types of modules that this export knows and others do not.
    """
    if model.next_word is not None:
        raise ModelError(
            f"the model has hard monotonic attention (model.monotonic_attention), which {library_name} does not have."
        )
    known = (nn.LayerNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Identity, PostNorm, PreNorm, Sinusoidal, Learned, *more)
    parts: list[nn.Module] = [model.source_positions, model.target_positions, model.encoder_norm, model.decoder_norm]
    for layer in (*model.encoder, *model.decoder):
        parts.append(cast(EncoderLayer, layer).feed_forward.activation)
        for name, child in layer.named_children():
            parts += [child, getattr(child, "norm", child)] if name.startswith("around_") else []
    for part in parts:
        if type(part) not in known:
            names = ", ".join(module_type.__name__ for module_type in known if module_type is not nn.Identity)
            raise ModelError(
                f"the model has a {type(part).__name__} module, which the export to {library_name} does not "
                f"know: it knows {names}."
            )


def nearest_length_penalty(alpha: float, penalty: Callable[[int, float], float]) -> float:
    """Return the beta for which |Y| ** beta is nearest to `penalty`(|Y|, alpha), to two decimals.

    A constant factor changes no ranking, so beta is the slope of log(penalty) against log(n), by least squares.
    """
    x = torch.tensor([math.log(n) for n in LENGTHS], dtype=torch.float64)
    y = torch.tensor([math.log(penalty(n, alpha)) for n in LENGTHS], dtype=torch.float64)
    x, y = x - x.mean(), y - y.mean()
    return round(float((x * y).sum() / (x * x).sum()), 2)


def projections(attention: SelfAttention | CrossAttention, head_size: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return weight and bias of "query", "key", "value" and "output", by name.

    Heads are padded with zeros up to `head_size`.

    Zeros change neither q k^T nor the output. The scale 1 / sqrt(d_k) must still use the model's own key size.
    """
    heads = attention.num_heads
    if isinstance(attention, SelfAttention):
        parts = _apart(["query", "key", "value"], attention.query_key_value, attention.sizes)
    else:
        parts = _apart(["query"], attention.query, [attention.query.out_features])
        parts |= _apart(["key", "value"], attention.key_value, attention.sizes)
    filled = {
        name: (_filled(weight, heads, head_size), _filled(bias, heads, head_size))
        for name, (weight, bias) in parts.items()
    }
    weight, bias = attention.output.weight.detach(), attention.output.bias.detach()
    return {**filled, "output": (_filled(weight.T, heads, head_size).T, bias)}


def _apart(names: list[str], linear: torch.nn.Linear, sizes: list[int]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return, by name, the projections that `linear` computes in one matrix product."""
    weights, biases = torch.split(linear.weight.detach(), sizes), torch.split(linear.bias.detach(), sizes)
    return dict(zip(names, zip(weights, biases, strict=True), strict=True))


def _filled(rows: Tensor, heads: int, head_size: int) -> Tensor:
    """Pad each head with zeros: (H * K, ...) -> (H * head_size, ...)."""
    apart = rows.reshape(heads, rows.size(0) // heads, -1)  # (H, K, ...)
    return F.pad(apart, (0, 0, 0, head_size - apart.size(1))).reshape(heads * head_size, *rows.shape[1:])
