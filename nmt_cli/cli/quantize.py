"""`nmt quantize`: write a model folder in int8."""

from __future__ import annotations

from ..console import say, say_next
from ..interface import commands
from .arguments import ModelFolder, out_option
from .inputs import found
from .typed_options import Given, options_from


@options_from(
    commands.quantize, model=ModelFolder, out=out_option("Model folder to write: a new one, or an earlier result.")
)
def quantize(options: Given) -> None:
    """Write a trained model in int8, in a quarter of the size.

    It translates exactly as MODEL does with --precision int8, and in no other precision. It cannot be trained, averaged
    or exported: keep MODEL.
    """
    out = options["out"]
    quantized = commands.quantize(found(options["model"]), out)
    before, after = (size / 2**20 for size in quantized.weights)
    say(f"wrote {out}: {quantized.parameters:,} parameters in int8, {after:,.1f} MiB ({before:,.1f} MiB in fp32)")
    say_next("nmt", "translate", "--model", out, end=" < input")
