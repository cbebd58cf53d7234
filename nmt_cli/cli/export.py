"""`nmt export`: a model folder into another library's format, proven equal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import output_path

if TYPE_CHECKING:
    from ..export.convert import Exported


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, or run folder (its averaged model, else the best, else the last).")],
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="ctranslate2 or huggingface.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", parser=output_path, metavar="DIR", help="Folder to write; a new or an empty one.", show_default=False)],
    text: Annotated[Path | None, typer.Option("--text", metavar="FILE", help="Prove it on these lines too, the first 1,000 (plain, .gz, .xz, .bz2).", show_default=False)] = None,
) -> None:
    """Convert a trained model for CTranslate2 or Hugging Face transformers, then prove that it is equal.

    The folder is loaded with that library and compared on sentences, in fp32 on the CPU: token ids, encoder states
    (transformers), logits and log-probabilities within 0.0001, greedy outputs identical. Where they differ, the first
    difference is told, and the exit code is 1.
    """
    from ..console import say
    from ..export.convert import export as convert
    from ..model.contents import find_model

    folder = find_model(model)
    if folder != model:
        say(f"model: {folder}")
    exported = convert(folder, to, out, text)
    say(f"wrote {out}: {to}, {sum(parameter.numel() for parameter in exported.trained.model.parameters()):,} parameters, fp32")
    say(_proven(exported))
    say(_otherwise(exported))
    say(f"next: see {out / 'README.md'}")


def _proven(exported: Exported) -> str:
    proof = exported.proof
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in proof.largest.items())
    ties = f" ({proof.ties} ended in a tie of two tokens)" if proof.ties else ""
    return f"proven equal on {proof.sentences:,} sentences, {proof.steps:,} steps: same token ids, same greedy output{ties}; largest differences: {largest}"


def _otherwise(exported: Exported) -> str:
    """What the library does otherwise, whatever the model."""
    decode = exported.trained.recipe.decode
    return (
        f"not the same there: beams are ranked by log P / |Y|^length_penalty; length_penalty = {exported.trained.length_penalty} comes nearest to "
        f"((5 + |Y|) / 6)^{decode.alpha}. Outputs are limited by one number for a batch, not by each line's length + {decode.max_extra}."
    )
