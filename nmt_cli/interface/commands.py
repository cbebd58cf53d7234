"""The commands `preprocess`, `train`, `average`, `quantize`, `export` and `import` as functions, with the same options.

    preprocess(recipe) ──▶ Summary of the shards ──▶ train(recipe) ──▶ Run ──▶ average(run) ──▶ model folder
        ──▶ export(model)

A recipe is a name or a path. `overrides` changes its keys: {"train.updates": 1000}, or ["train.updates=1000"] as for
--set. `progress`: see `progress.py`. All functions raise `NmtError`s.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from .. import console
from ..device.hardware import Hardware, device_named, loading_torch
from ..device.memory import free_memory, keep_freed_memory, memory_size
from ..device.processor import busy, cores, threads_by_default
from ..errors import DataError, ModelError, TrainingError, UsageError, check_choice
from ..model.folder_files import find_model
from ..options import Option, with_keywords
from ..recipe import (
    BYTES_PER_PARAMETER,
    TRAINING_PRECISIONS,
    Recipe,
    folder_beside,
    load_recipe,
    no_language,
    toml_value,
)
from ..registry import LOGGERS, load
from ..storage.files import read_bounded
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    import nmt_cli

    from ..data.prepare import Summary
    from ..data.shards import ShardIndex
    from ..exchange.convert import Export
    from ..exchange.importing import Imported
    from ..exchange.quantizing import Quantized
    from ..training.averaging import Comparison
    from ..training.dry_run import Forecast

Overrides = Mapping[str, object] | Sequence[str]


def changes_of(overrides: Overrides) -> list[str]:
    """Return changes of a recipe in the form of --set. Raises UsageError for a value that no key can have."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    try:
        return [f"{key}={toml_value(value)}" for key, value in overrides.items()]
    except TypeError as error:
        raise UsageError(
            f"overrides {overrides!r}: expected numbers, texts, True, False or lists of texts as values ({error})."
        ) from None


def preprocess(
    recipe: str | Path = "demo",
    *,
    data_dirs: Sequence[str | Path] = (),
    out: str | Path | None = None,
    overrides: Overrides = (),
    force: bool = False,
    workers: int | None = None,
    progress: ProgressOption = None,
) -> Summary:
    """Learn the subword vocabulary and write the shards that training reads, by default to data/RECIPE.

    The recipe's files are read from `data_dirs`, by default from the folder of the recipe, if the recipe is the user's
    own file. A second call with the same text and recipe does nothing, and the summary's `fresh` is False. Raises
    RecipeError, DataError, UsageError.
    """
    from ..data.prepare import prepare

    loaded = load_recipe(str(recipe), changes_of(overrides))
    beside = folder_beside(str(recipe))
    folders = [Path(folder) for folder in data_dirs] or ([beside] if beside else [])
    with showing(progress):
        return prepare(loaded, folders, Path(out) if out else loaded.folder("data", "--out"), force, workers)


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, oldest first; docs/training.md describes them."""
        file, records = self.path / "metrics.jsonl", []
        try:
            content = read_bounded(file, 1 << 28)  # more than a million records
        except FileNotFoundError:
            raise ModelError(f"{str(self.path)!r} has no metrics.jsonl: expected a run folder of nmt train.") from None
        except OSError as error:
            raise ModelError(f"cannot read {str(file)!r}: {error.strerror}. Restore it from a copy.") from None
        for line in content.split(b"\n"):
            with suppress(ValueError, RecursionError):  # the last line, while training writes it
                if isinstance(record := json.loads(line), dict):
                    records.append(record)
        return records

    @property
    def validation(self) -> dict[str, Any] | None:
        """The record of the last validation."""
        return next((record for record in reversed(self.records) if record.get("type") == "valid"), None)


@dataclass(frozen=True)
class TrainOptions:
    """How and where a recipe is trained."""

    run: Annotated[str | Path | None, Option("Run folder.  [default: runs/RECIPE]", "DIR", is_output=True)] = None
    data: Annotated[
        str | Path | None, Option("Folder of shards from `nmt preprocess`.  [default: data/RECIPE]", "DIR")
    ] = None
    devices: Annotated[int, Option("Number of processes on this machine, one per GPU.", "N", None, 1, 1024)] = 1
    device: Annotated[str, Option("auto, cpu, cuda, cuda:N or mps (Apple, untested).", "D")] = "auto"
    precision: Annotated[str, Option("auto, bf16, fp16 or fp32.  [default: the recipe's]", "P")] = ""
    threads: Annotated[int, Option("CPU threads per process; 0: its share of the cores.", "N", None, 0, 1024)] = 0
    memory_limit: Annotated[
        str, Option("Maximum memory of a process, such as 4GiB.  [default: all free memory]", "SIZE")
    ] = ""
    compiled: Annotated[
        bool,
        Option(
            "Compile the model with torch.compile: takes minutes at the start; for long trainings on GPUs.",
            names=("--compile",),
        ),
    ] = False
    loggers: Annotated[
        Sequence[str],
        Option("Also send training records to this logger: tensorboard; repeatable.", "NAME", names=("--logger",)),
    ] = ()


@with_keywords(TrainOptions)
def train(
    recipe: str | Path = "demo",
    *,
    overrides: Overrides = (),
    progress: ProgressOption = None,
    **options: Unpack[nmt_cli.TrainKeywords],
) -> Run:
    """Train a model into a run folder, by default runs/RECIPE; a second call resumes.

    `nmt train --help` describes the options.

    With several `devices`, each device has its own process; under torchrun, this process is one of them. An interrupt
    saves a checkpoint, then raises Stopped. Raises RecipeError, DataError, TrainingError, UsageError.
    """
    chosen, changes = TrainOptions(**options), changes_of(overrides)
    loaded, shards, folder, index, limit = _prepared(recipe, chosen, changes)
    if chosen.compiled:
        # torch's own default is a folder of /tmp, into which another user can put code before
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.absolute() / "compiled"))
        os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")  # they would be in /tmp all the same

    with loading_torch("nmt train", shown=os.environ.get("RANK", "0") == "0"):
        from ..device.torch_device import start_training
        from ..training.launch import launch
        from ..training.rendezvous import joined, local_rank, started_by_torchrun
        from ..training.trainer import Trainer

    if chosen.devices > 1 and not started_by_torchrun():
        of_rank = {"recipe": recipe, "overrides": changes, **asdict(replace(chosen, run=folder, data=shards))}
        launch(chosen.devices, ["train", "--as-rank", json.dumps(of_rank, default=str)])
        return Run(folder)
    keep_freed_memory()
    name = "cpu"
    with suppress(UsageError):  # a device that does not exist: reported below, once for all ranks
        name = device_named(chosen.device, local_rank())
    start_training(name)
    with (
        showing(progress),
        joined(name) as group,
        torch_threads(chosen.threads or max(1, cores() // group.local_world_size)),
    ):
        hardware = Hardware.find(chosen.device, loaded.train.precision, group.local_rank, limit)
        _check_device(hardware, loaded, index, group.world_size, group.local_world_size)
        compiler = "inductor" if chosen.compiled else ""
        Trainer(loaded, shards, folder, hardware, group, chosen.loggers, compiler).train()
    return Run(folder)


@with_keywords(TrainOptions)
def forecast(
    recipe: str | Path = "demo",
    *,
    overrides: Overrides = (),
    progress: ProgressOption = None,
    **options: Unpack[nmt_cli.TrainKeywords],
) -> Forecast:
    """Make all checks of `train`, with the same options, and return how long the training would take.

    Nothing is written, and nothing is compiled.

    The estimate assumes that all `devices` are equal. Raises the same errors as `train`.
    """
    chosen = TrainOptions(**options)
    loaded, shards, folder, index, limit = _prepared(recipe, chosen, changes_of(overrides))

    with loading_torch("nmt train"):
        from ..training.dry_run import dry_run

    with (
        showing(progress),
        torch_threads(chosen.threads or max(1, cores() // chosen.devices)),
        console.status("measuring some micro-batches"),
    ):
        device_named(chosen.device, chosen.devices - 1)  # raises UsageError if there are fewer devices
        hardware = Hardware.find(chosen.device, loaded.train.precision, 0, limit)
        _check_device(hardware, loaded, index, chosen.devices, chosen.devices)
        if hardware.device == "cpu" and (remark := busy(chosen.threads or cores())):
            console.warn(remark)
        return dry_run(loaded, shards, folder, hardware, chosen.devices, chosen.loggers)


def _prepared(
    recipe: str | Path, options: TrainOptions, changes: Sequence[str]
) -> tuple[Recipe, Path, Path, ShardIndex, int]:
    """Return the recipe, the shard folder, the run folder, the shards' index and the memory limit in bytes (0: no
    limit).

    Raises NmtErrors, before torch is loaded.
    """
    for name in options.loggers:
        load(LOGGERS, name, "--logger")
    if options.precision:
        check_choice("--precision", options.precision, TRAINING_PRECISIONS)
        changes = [*changes, f"train.precision={options.precision}"]
    loaded = load_recipe(str(recipe), changes)
    limit = memory_size(options.memory_limit) if options.memory_limit else 0
    shards = Path(options.data) if options.data else loaded.folder("data", "--data DIR and --run")
    folder = Path(options.run) if options.run else loaded.folder("runs", "--run")

    from ..data.shards import INDEX_FILE, check_matches, open_index, with_earlier_defaults

    with suppress(OSError):  # of a wrong path: `open_index` reports it
        if not (shards / INDEX_FILE).exists():
            out = ["--out", str(options.data)] if options.data else []
            settings = [f"--set={change}" for change in changes]
            command = shlex.join(["nmt", "preprocess", str(recipe), *out, *settings])
            raise DataError(f"{str(shards)!r} holds no prepared corpus (no {INDEX_FILE}). Make it first: {command}")
    index = open_index(shards)
    loaded = with_earlier_defaults(loaded, index)
    check_matches(index, loaded, shards)
    return loaded, shards, folder, index, limit


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads while the block runs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_device(hardware: Hardware, recipe: Recipe, index: ShardIndex, ranks: int, local_ranks: int) -> None:
    """Raise UsageError if the device cannot train in several ranks, TrainingError if the weights of all ranks do not
    fit into a CPU's memory.

    On a GPU, torch itself raises an error when memory is full; on a CPU, the system would kill the process.
    """
    if hardware.device.startswith("mps") and ranks > 1:
        raise UsageError("--device mps trains in one process: torch has no communication between such devices.")
    if hardware.device != "cpu":
        return
    parameters = recipe.model.parameters(*index.vocabularies)
    needed, free = parameters * BYTES_PER_PARAMETER * local_ranks, free_memory()
    if needed > free:
        raise TrainingError(
            f"about {parameters:,} parameters take {needed / 2**30:,.1f} GiB to train (weights, gradients and Adam's "
            f"moments in fp32{f', {local_ranks} processes' * (local_ranks > 1)}), "
            f"and {free / 2**30:,.1f} GiB are free. Choose a smaller model, or a machine with more memory."
        )


@dataclass(frozen=True)
class Average:
    """An averaged model."""

    path: Path
    """The model folder."""
    averaged: tuple[str, ...]
    """The names of the checkpoints or models whose mean it is."""
    comparison: Comparison | None
    """The validation scores of the average and of the checkpoint that the run would use without it; None if the shards
    were not found."""


def average(
    runs: str | Path | Sequence[str | Path] = "runs/latest",
    *,
    last: int = 0,
    best: int = 0,
    out: str | Path | None = None,
    data: str | Path | None = None,
    progress: ProgressOption = None,
) -> Average:
    """Average a run's last or best checkpoints, or several model folders, into a model folder, by default RUN/averaged.

    The average is validated on the run's shards, `data`, by default data/RECIPE. If it is worse than the run's best
    checkpoint, RUN/averaged is a copy of this one. Raises ModelError, UsageError, and
    DataError for `data` that does not fit.
    """
    folders = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not folders:
        raise UsageError("there is nothing to average: name a run folder.")
    if len(folders) > 1 and (last or best):
        raise UsageError("--last and --best choose among the checkpoints of one run: name one run folder.")
    if len(folders) > 1 and out is None:
        raise UsageError("several folders are averaged: give --out DIR, the model folder to write.")

    with loading_torch("nmt average"):
        from ..training.averaging import average as average_folders
        from ..training.averaging import choose

    chosen = choose(folders[0], last, best) if len(folders) == 1 else folders
    target = Path(out) if out else folders[0] / "averaged"
    with showing(progress), torch_threads(threads_by_default()):
        metrics, comparison = average_folders(chosen, target, Path(data) if data else None)
    return Average(target, tuple(metrics["averaged"]), comparison)


def quantize(model: str | Path, out: str | Path, *, progress: ProgressOption = None) -> Quantized:
    """Write a model or run folder as a model folder in int8: a quarter of the size, and loaded sooner.

    The new model gives the same translations as the old one with precision="int8". Raises ModelError, and UsageError if
    `out` exists and is not an earlier result.
    """
    from ..exchange.quantizing import quantize as write

    with showing(progress):
        return write(find_model(Path(model)), Path(out))


def export(
    model: str | Path, to: str, out: str | Path, *, text: str | Path | None = None, progress: ProgressOption = None
) -> Export:
    """Convert a model or run folder for the library `to`, "ctranslate2" or "huggingface", into the new folder `out`,
    and verify that both are equal.

    Raises UsageError, and ModelError if the library cannot express the model, or if the result is not equal.
    """
    with loading_torch("nmt export"):
        from ..exchange.convert import export as convert

    with showing(progress), torch_threads(threads_by_default()):
        return convert(find_model(Path(model)), to, Path(out), Path(text) if text else None)


def import_model(
    source: str | Path,
    out: str | Path,
    *,
    importer: str = "",
    source_language: str = "",
    target_language: str = "",
    positions: str = "",
    safe_length: int = 0,
    skip_step: Sequence[str] = (),
    license: str = "",
    text: str | Path | None = None,
    progress: ProgressOption = None,
) -> Imported:
    """Write the model of another toolkit at `source` as the model folder `out`, and verify that both are equal.

    The models of an ensemble become `out`/1, `out`/2, …: the result is the first one, with the `others`.

    `nmt import --help` describes the options.

    Raises UsageError, and ModelError if the model cannot be imported, or computes something else as a model folder.
    """
    for option, code in (("--source-language", source_language), ("--target-language", target_language)):
        if code and (reason := no_language(code)):
            raise UsageError(f"{option} {reason}")
    if positions:
        check_choice("--positions", positions, ("marian", "huggingface"))
    with loading_torch("nmt import"):
        from ..exchange.importer import ImportOptions
        from ..exchange.importing import import_model as convert

    options = ImportOptions(source_language, target_language, positions, safe_length, skip_step, license)
    with showing(progress), torch_threads(threads_by_default()):
        return convert(Path(source), Path(out), importer, options, Path(text) if text else None)
