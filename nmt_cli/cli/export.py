"""`nmt export`: write a model folder for another library, verified to be equal."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..console import say
from ..registry import EXPORTERS
from .arguments import argument, option, output_path
from .completion import runs

if TYPE_CHECKING:
    from ..exchange.convert import Export
    from ..exchange.verification import Verification


def export(
    model: Annotated[
        Path,
        argument(
            "Model folder, or run folder (its averaged model, else the best, else the last).",
            "MODEL",
            autocompletion=runs,
        ),
    ],
    to: Annotated[str, option(f"{' or '.join(EXPORTERS)}.", "LIBRARY")],
    out: Annotated[
        Path, option("Folder to write: a new or an empty one.", "DIR", names=("--out", "-o"), parser=output_path)
    ],
    text: Annotated[
        Path | None,
        option("Also compare on these lines, at most the first 1,000 (plain, .gz, .xz, .bz2, .zst).", "FILE"),
    ] = None,
) -> None:
    """Convert a model for another library, verified to be equal.

    If the two differ on test sentences, the first difference is printed, and the exit code is 1.
    """
    from ..interface import commands
    from ..model.folder_files import find_model

    folder = find_model(model)
    if folder != model:
        say(f"model: {folder}")
    exported = commands.export(folder, to, out, text=text)
    say(
        f"wrote {out}: {to}, "
        f"{sum(parameter.numel() for parameter in exported.source_model.model.parameters()):,} parameters, "
        "fp32"
    )
    say(verified(exported.verification))
    say(_different(exported))
    say(f"how to use it: {shlex.quote(str(out / 'README.md'))}")


def verified(verification: Verification) -> str:
    """Return how a verification ended, for people."""
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in verification.largest.items())
    ties = f" ({verification.ties} ended in a tie of two tokens)" if verification.ties else ""
    return (
        f"verified equal on {verification.sentences:,} sentences, {verification.steps:,} steps: same token "
        f"ids, same greedy output{ties}; largest differences: {largest}"
    )


def _different(exported: Export) -> str:
    """Return a remark on differences of the library in search, which exist for every model."""
    source_model = exported.source_model
    decode = source_model.recipe.decode
    return (
        "different there: beams are ranked by log P / |Y|^length_penalty; length_penalty = "
        f"{source_model.length_penalty} is nearest to "
        f"{source_model.divisor}. Outputs are limited by one number per batch, not by each line's length + "
        f"{decode.max_extra}."
    )
