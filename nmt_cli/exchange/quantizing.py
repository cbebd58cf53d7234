"""A model folder in int8: the integers and scales with which `--precision int8` computes, instead of fp32 weights.

fp32 model folder ──▶ mapped weights ──▶ `weights.quantize_weights` ──▶ model folder with precision int8

It translates the same as the model with --precision int8. This file does not load torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..console import status
from ..data.tokenizer import LARGEST
from ..errors import ModelError
from ..model.folder_files import (
    CARD,
    WEIGHTS,
    check_fp32,
    checked_recipe,
    not_quantized,
    origin_of,
    read_config,
    read_metrics,
)
from ..model.weights import check_weights, forms_of, mapped_weights, quantize_weights, write_model
from ..storage.files import follow_links, read_bounded
from ..storage.output_paths import check_output_folder, output_folder

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

    Raises ModelError if `model` is damaged or already in int8, UsageError if `out` is neither free nor an earlier
    result.
    """
    check_output_folder(out, WHAT, not_quantized, [model])
    config = read_config(model)
    check_fp32(model, config)
    if config.precision == "int8":
        raise ModelError(f"the model {str(model)!r} is in int8 already: it has the integers of the imported model.")
    recipe = checked_recipe(model, config)
    check_weights(model, config, recipe)
    with (
        status(f"rounding {config.parameters:,} parameters"),
        output_folder(out, WHAT, not_quantized, [model], ModelError) as aside,
    ):
        tokenizers = {name: read_bounded(model / name, LARGEST) for name in config.tokenizers}
        write_model(
            aside,
            quantize_weights(mapped_weights(model / WEIGHTS), forms_of(recipe.model, config.vocabularies, "int8")),
            recipe,
            config.vocabularies,
            tokenizers,
            {"quantized": follow_links(model).name, **origin_of(read_metrics(model))},
            "int8",
            config.safe_length,
            read_bounded(model / CARD, LARGEST) if (model / CARD).is_file() else b"",
        )
    return Quantized(out, config.parameters, ((model / WEIGHTS).stat().st_size, (out / WEIGHTS).stat().st_size))
