"""`nmt quantize`: write a model folder in int8."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..console import say, say_next
from .arguments import argument, option, output_path
from .completion import runs


def quantize(
    model: Annotated[
        Path,
        argument(
            "Model folder, or run folder (its averaged model, else the best, else the last).",
            "MODEL",
            autocompletion=runs,
        ),
    ],
    out: Annotated[
        Path,
        option(
            "Model folder to write: a new one, or an earlier result.", "DIR", names=("--out", "-o"), parser=output_path
        ),
    ],
) -> None:
    """Write a trained model in int8, in a quarter of the size.

    It translates exactly as MODEL does with --precision int8, and in no other precision. It cannot be trained, averaged
    or exported: keep MODEL.
    """
    from ..interface import commands
    from ..model.folder_files import find_model

    folder = find_model(model)
    if folder != model:
        say(f"model: {folder}")
    quantized = commands.quantize(folder, out)
    before, after = (size / 2**20 for size in quantized.weights)
    say(f"wrote {out}: {quantized.parameters:,} parameters in int8, {after:,.1f} MiB ({before:,.1f} MiB in fp32)")
    say_next("nmt", "translate", "--model", out, end=" < input")
