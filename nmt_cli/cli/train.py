"""`nmt train`: train a model from a recipe and shards into a run folder."""

from __future__ import annotations

import json
import os
from typing import Annotated

from ..console import say, say_next, spoken_range
from ..interface import commands
from ..interface.commands import TrainOptions
from .arguments import Overrides, argument, option, recipes
from .typed_options import options_of


@options_of(TrainOptions)
def train(
    *,
    recipe: Annotated[
        str, argument("Name of a recipe, or path of a .toml file.", "RECIPE", autocompletion=recipes)
    ] = "demo",
    options: TrainOptions,
    tensorboard: Annotated[
        bool, option("The same as --logger tensorboard (needs the extra).", names=("--tensorboard",))
    ] = False,
    dry_run: Annotated[
        bool,
        option(
            "Make every check, measure some micro-batches, and say how long the training would take. Nothing "
            "is written.",
            names=("--dry-run",),
        ),
    ] = False,
    overrides: Overrides = None,
    as_rank: Annotated[str, option("The options of `commands.train` as JSON.", names=("--as-rank",), hidden=True)] = "",
) -> None:
    """Train a model, or resume its training.

    Ctrl-C saves a checkpoint before the end; the same command resumes. On several machines: `torchrun … -m -- nmt_cli
    train RECIPE`.
    """
    # Torch reads this when it is loaded. Its warnings about lost connections contain C++ stack frames.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if as_rank:  # one of the processes of --devices
        commands.train(**json.loads(as_rank))
        return
    loggers = tuple(dict.fromkeys([*options.loggers, *["tensorboard"] * tensorboard]))
    chosen = {**vars(options), "loggers": loggers, "overrides": overrides or []}
    if dry_run:
        forecast = commands.forecast(recipe, **chosen)
        say(
            f"{forecast.name}: {forecast.parameters:,} parameters, {forecast.pairs:,} pairs, "
            f"{forecast.updates:,} "
            f"updates{f', {forecast.updates_done:,} of them done' if forecast.updates_done else ''}\n"
            f"{forecast.devices} × {forecast.device} in {forecast.precision}: {forecast.speed.slowest:.3g} s per "
            f"update, {spoken_range(*forecast.seconds)} in all{' without --compile' * options.compiled}, until "
            f"{forecast.end:%a %d %b %H:%M} at the latest\n"
            "dry run: all checks passed, nothing was written"
        )
        return
    done = commands.train(recipe, **chosen)
    if os.environ.get("RANK", "0") == "0":  # of several processes, one alone says it
        say_next("nmt", "average", done.path, *(["--data", options.data] if options.data else []))
