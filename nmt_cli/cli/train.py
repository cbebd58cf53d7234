"""`nmt train`: train a model from a recipe and shards into a run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from ..console import say, say_next, spoken_range
from .arguments import Overrides, argument, data_option, option, output_path
from .completion import recipes


def train(
    recipe: Annotated[
        str, argument("Name of a recipe, or path of a .toml file.", "RECIPE", autocompletion=recipes)
    ] = "demo",
    run: Annotated[Path | None, option("Run folder.  [default: runs/RECIPE]", "DIR", parser=output_path)] = None,
    data: Annotated[
        Path | None, option("Folder of shards from `nmt preprocess`.  [default: data/RECIPE]", "DIR")
    ] = None,
    devices: Annotated[int, option("Number of processes on this machine, one per GPU.", "N", min=1, max=1024)] = 1,
    device: Annotated[str, option("auto, cpu, cuda, cuda:N or mps (Apple, untested).", "D")] = "auto",
    precision: Annotated[str, option("auto, bf16, fp16 or fp32.  [default: the recipe's]", "P")] = "",
    threads: Annotated[int, option("CPU threads per process; 0: its share of the cores.", "N", min=0, max=1024)] = 0,
    memory_limit: Annotated[
        str, option("Maximum memory of a process, such as 4GiB.  [default: all free memory]", "SIZE")
    ] = "",
    compiled: Annotated[
        bool,
        option(
            "Compile the model with torch.compile: takes minutes at the start; for long trainings on GPUs.",
            names=("--compile",),
        ),
    ] = False,
    loggers: Annotated[
        list[str] | None,
        option("Also send training records to this logger: tensorboard; repeatable.", "NAME", names=("--logger",)),
    ] = None,
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
) -> None:
    """Train a model, or resume its training.

    Ctrl-C saves a checkpoint before the end; the same command resumes. On several machines: `torchrun … -m -- nmt_cli
    train RECIPE`.
    """
    # Torch reads this when it is loaded. Its warnings about lost connections contain C++ stack frames.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from ..interface import commands

    names = list(dict.fromkeys([*(loggers or []), *(["tensorboard"] if tensorboard else [])]))
    shared: dict[str, Any] = {
        "run": run,
        "data": data,
        "devices": devices,
        "device": device,
        "precision": precision,
        "threads": threads,
        "memory_limit": memory_limit,
        "loggers": names,
        "overrides": overrides or [],
    }
    if dry_run:
        forecast = commands.forecast(recipe, **shared)
        say(
            f"{forecast.name}: {forecast.parameters:,} parameters, {forecast.pairs:,} pairs, "
            f"{forecast.updates:,} "
            f"updates{f', {forecast.updates_done:,} of them done' if forecast.updates_done else ''}\n"
            f"{forecast.devices} × {forecast.device} in {forecast.precision}: {forecast.speed.slowest:.3g} s per "
            f"update, {spoken_range(*forecast.seconds)} in all{' without --compile' if compiled else ''}, until "
            f"{forecast.end:%a %d %b %H:%M} at the latest\n"
            "dry run: all checks passed, nothing was written"
        )
        return
    done = commands.train(recipe, compiled=compiled, **shared)
    if os.environ.get("RANK", "0" if devices == 1 else "") == "0":  # of several processes, rank 0 alone says it
        say_next("nmt", "average", done.path, *data_option(data, recipe, overrides))
