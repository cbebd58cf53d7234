"""`nmt train`: train a model from a recipe and shards into a run folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ..errors import TrainingError, UsageError
from .arguments import output_path
from .completion import recipes


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", autocompletion=recipes, help="Name of a recipe, or path of a .toml file.")] = "demo",
    run: Annotated[Path | None, typer.Option(parser=output_path, metavar="DIR", help="Run folder.  [default: runs/RECIPE]")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of shards from `nmt preprocess`.  [default: data/RECIPE]")] = None,
    devices: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Number of processes on this machine, one per GPU.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps (Apple, untested).")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, bf16, fp16 or fp32.  [default: the recipe's]")] = "",
    threads: Annotated[int, typer.Option(metavar="N", min=0, max=1024, help="CPU threads per process; 0: its share of the cores.")] = 0,
    memory_limit: Annotated[str, typer.Option(metavar="SIZE", help="Maximum memory of a process, such as 4GiB.  [default: all free memory]")] = "",
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile: takes minutes at the start; for long trainings on GPUs.")] = False,
    loggers: Annotated[list[str] | None, typer.Option("--logger", metavar="NAME", help="Also send training records to this logger: tensorboard; repeatable.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="The same as --logger tensorboard (needs the extra).")] = False,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the recipe; repeatable.")] = None,
) -> None:
    """Train a model. A second run resumes where the first stopped.

    Ctrl-C, SIGTERM or SIGHUP saves a checkpoint before the end. On several machines: `torchrun … -m -- nmt_cli train RECIPE`.
    """
    from ..cache import compile_cache
    from ..hardware import Hardware, cores, device_named, keep_freed_memory, memory_size
    from ..recipe import TRAINING_PRECISIONS
    from ..recipe_files import load_recipe
    from ..registry import LOGGERS, load

    logger_names = list(dict.fromkeys([*(loggers or []), *(["tensorboard"] if tensorboard else [])]))
    for name in logger_names:
        load(LOGGERS, name, "--logger")
    if precision not in ("", *TRAINING_PRECISIONS):
        raise UsageError(f"--precision {precision!r}: expected {', '.join(TRAINING_PRECISIONS[:-1])} or {TRAINING_PRECISIONS[-1]}.")
    forced = [f"train.precision={precision}"] if precision else []
    loaded = load_recipe(recipe, [*(overrides or []), *forced])
    limit = memory_size(memory_limit) if memory_limit else 0
    shards = data or loaded.folder("data", "--data DIR and --run")
    folder = run or loaded.folder("runs", "--run")

    from ..data.shards import check_matches, open_index

    index = open_index(shards)
    check_matches(index, loaded, shards)  # before torch: a wrong path is told at once

    if compiled:
        compile_cache()

    import torch

    from ..device import start_training
    from ..training.launch import launch
    from ..training.rendezvous import joined, local_rank, started_by_torchrun
    from ..training.trainer import Trainer

    if devices > 1 and not started_by_torchrun():
        options = [f"--run={folder}", f"--data={shards}", f"--device={device}", f"--threads={threads}"]
        options += [f"--precision={precision}"] if precision else []
        options += [f"--memory-limit={memory_limit}"] if memory_limit else []
        options += ["--compile"] if compiled else []
        options += [f"--logger={name}" for name in logger_names]
        launch(devices, ["train", recipe, *options, *(f"--set={override}" for override in overrides or [])])
    keep_freed_memory()
    name = "cpu"
    with suppress(UsageError):  # a device that is not there: reported below, once for all ranks
        name = device_named(device, local_rank())
    start_training(name)
    with joined(name) as group:
        torch.set_num_threads(threads or max(1, cores() // group.local_world_size))
        hardware = Hardware.find(device, loaded.train.precision, group.local_rank, limit)
        if hardware.device.startswith("mps") and group.world_size > 1:
            raise UsageError("--device mps trains in one process: torch has no communication between such devices.")
        if hardware.device == "cpu":
            _check_memory(loaded.model.parameters(index.source_size, index.target_size), group.local_world_size)
        Trainer(loaded, shards, folder, hardware, group, logger_names, "inductor" if compiled else "").train()


def _check_memory(parameters: int, processes: int) -> None:
    """Raise TrainingError if the weights of all processes do not fit in memory. A GPU raises an error itself; on a CPU the system would kill the process."""
    from ..hardware import free_memory
    from ..recipe import BYTES_PER_PARAMETER

    needed, free = parameters * BYTES_PER_PARAMETER * processes, free_memory()
    if needed > free:
        raise TrainingError(
            f"{parameters:,} parameters take {needed / 2**30:,.1f} GiB to train (weights, gradients and Adam's moments in fp32{f', {processes} processes' * (processes > 1)}), "
            f"and {free / 2**30:,.1f} GiB are free. Choose a smaller model, or a machine with more memory."
        )
