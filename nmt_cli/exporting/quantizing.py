"""A model folder in int8: the integers and scales with which `--precision int8` computes, instead of fp32 weights.

fp32 model folder ──▶ `model.folder.quantized_weights` ──▶ model folder with precision int8, which translates the same
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from ..console import status
from ..data.tokenizer import LARGEST
from ..errors import ModelError, write_failed
from ..files import follow_links, read_bounded, system_error
from ..model.contents import WEIGHTS, not_quantized
from ..model.folder import load_model, quantized_weights, write_model
from ..output_paths import check_output_folder, output_folder

WHAT = "the model in int8"


@dataclass(frozen=True)
class Quantized:
    """A model folder in int8."""

    path: Path
    parameters: int
    weights: tuple[int, int]
    """Size of the weights in bytes: of the original model, and of this one."""


def quantize(model: Path, out: Path) -> Quantized:
    """Write the model folder `model` in int8 to `out`.

    Raises ModelError if `model` is damaged or already in int8, UsageError if `out` is neither free nor an earlier result.
    """
    check_output_folder(out, WHAT, not_quantized, [model])
    loaded = load_model(model)
    config = loaded.config
    try:
        with (
            status(f"rounding {config.parameters:,} parameters"),
            output_folder(out, WHAT, not_quantized, [model], ModelError) as aside,
        ):
            tokenizers = {name: read_bounded(model / name, LARGEST) for name in config.tokenizers}
            write_model(
                aside,
                quantized_weights(loaded.model),
                loaded.recipe,
                config.vocabularies,
                tokenizers,
                {"quantized": follow_links(model).name},
                "int8",
                config.safe_length,
            )
    except SafetensorError as error:
        raise write_failed(system_error(error), out, WHAT, ModelError) from None
    return Quantized(out, config.parameters, ((model / WEIGHTS).stat().st_size, (out / WEIGHTS).stat().st_size))
