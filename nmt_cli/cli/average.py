"""`nmt average`: average checkpoints into one model folder."""

from __future__ import annotations

from ..console import say, say_next, warn
from ..interface import commands
from .arguments import argument, option, output_path
from .typed_options import Given, options_from


@options_from(
    commands.average,
    runs=argument("A run folder, or several checkpoints or model folders.  [default: runs/latest]", "RUN"),
    last=option(
        "Average the last N checkpoints.  [default: the recipe's train.average]",
        "N",
        min=0,
        max=1_000_000,
        show_default=False,
    ),
    best=option(
        "Average the N checkpoints with the best validation score.", "N", min=0, max=1_000_000, show_default=False
    ),
    out=option(
        "Model folder to write: a new one, or an earlier average.  [default: RUN/averaged]", "DIR", parser=output_path
    ),
    data=option("Folder of the run's shards, to validate the average.  [default: data/RECIPE]", "DIR"),
)
def average(options: Given) -> None:
    """Average a run's checkpoints into one model folder.

    RUN/averaged, which commands use that are given RUN, is the average, or the best checkpoint if this scores better on
    the validation text.
    """
    model = commands.average(**options)
    if model.comparison:
        say(str(model.comparison))
    names, count = ", ".join(model.averaged), len(model.averaged)
    if model.comparison and model.comparison.kept:
        say(f"the average is worse: {model.path} is {names}")
    else:
        say(f"averaged {count} checkpoint{'s' * (count != 1)} ({names}) into {model.path}")
        if model.comparison and model.comparison.is_worse:
            warn(f"the average is worse than {model.comparison.other}.")
    say_next("nmt", "translate", "--model", model.path, end=" < input")
