"""`nmt average`: average checkpoints into one model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import say, status
from ..errors import UsageError
from .arguments import output_path
from .completion import runs


def average(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", autocompletion=runs, help="A run folder, or several checkpoints or model folders.  [default: runs/latest]", show_default=False)] = None,
    last: Annotated[int, typer.Option(metavar="N", min=0, max=1_000_000, help="Average the last N checkpoints.  [default: the recipe's train.average]", show_default=False)] = 0,
    best: Annotated[int, typer.Option(metavar="N", min=0, max=1_000_000, help="Average the N checkpoints with the best validation score.", show_default=False)] = 0,
    out: Annotated[Path | None, typer.Option(parser=output_path, metavar="DIR", help="Model folder to write: a new one, or an earlier average.  [default: RUN/averaged]")] = None,
) -> None:
    """Average the weights of a run's last or best checkpoints into a model folder."""
    folders = runs or [Path("runs/latest")]
    if len(folders) > 1 and (last or best):
        raise UsageError("--last and --best choose among the checkpoints of one run: name one run folder.")
    if len(folders) > 1 and out is None:
        raise UsageError("several folders are averaged: give --out DIR, the model folder to write.")

    from ..training.averaging import average as average_folders
    from ..training.averaging import choose

    chosen = choose(folders[0], last, best) if len(folders) == 1 else folders
    target = out or folders[0] / "averaged"
    with status(f"averaging {len(chosen)} checkpoints"):
        made_of = average_folders(chosen, target)
    say(f"averaged {len(chosen)} checkpoints ({', '.join(made_of['averaged'])}) into {target}")
    say(f"next: nmt translate --model {target} < input")
