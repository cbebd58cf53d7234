"""`nmt export`: write a model folder for another library, verified to be equal."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..console import say
from ..interface import commands
from ..registry import EXPORTERS
from .arguments import ModelFolder, VerifiedText, option, out_option
from .inputs import found
from .typed_options import Given, options_from

if TYPE_CHECKING:
    from ..exchange.convert import Export
    from ..exchange.verification import Verification


@options_from(
    commands.export,
    model=ModelFolder,
    to=option(f"{' or '.join(EXPORTERS)}.", "LIBRARY"),
    out=out_option("Folder to write: a new or an empty one."),
    text=VerifiedText,
)
def export(options: Given) -> None:
    """Convert a model for another library, verified to be equal.

    If the two differ on test sentences, the first difference is printed, and the exit code is 1.
    """
    exported = commands.export(**{**options, "model": found(options["model"])})
    out = options["out"]
    say(
        f"wrote {out}: {options['to']}, "
        f"{sum(parameter.numel() for parameter in exported.source_model.model.parameters()):,} parameters, fp32"
    )
    say(verified(exported.verification))
    say(_different(exported, options["to"]))
    say(f"how to use it: {shlex.quote(str(out / 'README.md'))}")


def verified(verification: Verification) -> str:
    """Return how a verification ended, for people."""
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in verification.largest.items())
    ties = f" ({verification.ties} ended in a tie of two tokens)" if verification.ties else ""
    return (
        f"verified equal on {verification.sentences:,} sentences, {verification.steps:,} steps: same token "
        f"ids, same greedy output{ties}; largest differences: {largest}"
    )


def _different(exported: Export, to: str) -> str:
    """Return a remark on differences of the library in search, which exist for every model."""
    source_model = exported.source_model
    decode = source_model.recipe.decode
    without = decode.word_penalty and to != "marian"
    return (
        "different there: beams are ranked by log P / |Y|^length_penalty; length_penalty = "
        f"{source_model.length_penalty} is nearest to "
        f"{source_model.divisor}. Outputs are limited by one number per batch, not by {source_model.longest}."
        + (f" There is no word penalty, which is {decode.word_penalty:g} in nmt." if without else "")
    )
