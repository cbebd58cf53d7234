"""`nmt average`: average checkpoints into one model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..console import say, say_next, warn
from .arguments import argument, option, output_path
from .completion import runs


def average(
    runs: Annotated[
        list[Path] | None,
        argument(
            "A run folder, or several checkpoints or model folders.  [default: runs/latest]", "RUN", autocompletion=runs
        ),
    ] = None,
    last: Annotated[
        int,
        option(
            "Average the last N checkpoints.  [default: the recipe's train.average]",
            "N",
            min=0,
            max=1_000_000,
            show_default=False,
        ),
    ] = 0,
    best: Annotated[
        int,
        option(
            "Average the N checkpoints with the best validation score.", "N", min=0, max=1_000_000, show_default=False
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        option(
            "Model folder to write: a new one, or an earlier average.  [default: RUN/averaged]",
            "DIR",
            parser=output_path,
        ),
    ] = None,
    data: Annotated[
        Path | None, option("Folder of the run's shards, to validate the average.  [default: data/RECIPE]", "DIR")
    ] = None,
) -> None:
    """Average a run's checkpoints into one model folder.

    If the average is worse than the run's best checkpoint (else its last), commands that are given the run use the
    checkpoint.
    """
    from ..interface import commands

    model = commands.average(runs or "runs/latest", last=last, best=best, out=out, data=data)
    count = len(model.averaged)
    say(f"averaged {count} checkpoint{'s' * (count != 1)} ({', '.join(model.averaged)}) into {model.path}")
    best_model = model.path
    if model.comparison:
        say(str(model.comparison))
        if model.comparison.is_worse:
            best_model = model.comparison.other
            run = best_model.parent.parent
            uses = f" Commands that are given {run} use the checkpoint." if model.path == run / "averaged" else ""
            warn(f"the average is worse than {best_model}.{uses}")
    say_next("nmt", "translate", "--model", best_model, end=" < input")
