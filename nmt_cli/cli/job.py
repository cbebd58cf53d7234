"""`nmt job`: a corpus cut into shards, which any machines translate in any order, and joined again.

`jobs` cuts, reads and joins. A shard is translated here, as `nmt translate` does it.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from .. import console
from ..interface.loading import check_precision, models_named, open_models
from ..interface.options import TranslateKeywords, choose
from ..jobs.cutting import create as create_job
from ..jobs.job import MANIFEST, NUMBERS, Job, Shard, ranges, text_entry
from ..recipe import DecodeOptions
from ..storage.made_from import record
from ..storage.output_paths import check_output_file
from . import output
from .arguments import DecodeOverrides, Device, Devices, OutputFile, Precision, argument, model_option, option
from .command import CONTEXT, Command, Group
from .inputs import say_model
from .resumed import SPEED, made_from
from .translate_output import OutputForm, write_windows, writing
from .typed_options import options_of

FORM = ("nbest", "scores", "as_json", "alignment", "confidence")
"""Options of the output's form that a job has."""
WHAT = "the translation"
JobFolder = Annotated[Path, argument("Folder of the job.", "NAME")]
group = typer.Typer(
    name="job",
    cls=Group,
    help="Translate a corpus on many machines: cut, done, joined.\n\ndocs/jobs.md has scripts for clusters.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=CONTEXT,
)


@options_of(OutputForm, *FORM, into="form")
@options_of(DecodeOptions, *(name for name in DecodeOptions.__annotations__ if name not in SPEED))
def create(
    *,
    folder: JobFolder,
    more_inputs: Annotated[
        list[Path] | None, argument("More inputs, as a shell makes of --input *.en.", "FILE")
    ] = None,
    inputs: Annotated[
        list[Path],
        option("Text to translate (plain, .gz, .xz, .bz2, .zst). Repeatable.", "FILE", names=("--input", "-i")),
    ],
    model: Annotated[list[Path] | None, model_option("Model, as for nmt translate. Repeat it for an ensemble.")] = None,
    shard_lines: Annotated[int, option("Lines of a shard.", "N", min=1, max=1_000_000_000)] = 20_000,
    form: OutputForm,
    options: DecodeOptions,
    overrides: DecodeOverrides = None,
    precision: Precision = "auto",
) -> None:
    """Cut a corpus into shards, with the options of its translation.

    Plain inputs stay where they are; compressed ones are cut into NAME.
    """
    check_precision(precision)
    stored = open_models(models_named(model), chosen=say_model)
    chosen = TranslateKeywords(**options, **form.keywords(), overrides=overrides or [])
    choose(chosen, stored.recipe, *stored.length_limits)
    stored.tags.chosen(options["target_language"])
    given = {**options, "overrides": overrides, **{name: getattr(form, name) for name in FORM}}
    files = [*inputs, *(more_inputs or ())]
    planned = Job(
        format_version=Job.newest,
        folder=folder,
        made=made_from([], stored, precision, given),
        models=[str(path.absolute()) for path in stored.folders],
        inputs=[str(path.absolute()) for path in files],
        shard_lines=shard_lines,
        shards=[],
    )
    job, is_new = create_job(planned, files)
    lines = sum(one.lines for one in job.shards)
    console.say(f"{folder}: {lines:,} lines in {len(job.shards):,} shards{'' if is_new else ', as before'}")
    if job.shards:
        console.say_next("nmt", "job", "shard", folder, end=f" K, for each K from 0 to {len(job.shards) - 1}")


@options_of(DecodeOptions, *SPEED)
def shard(
    *,
    folder: JobFolder,
    number: Annotated[str, argument(f"Number of the shard, from 0; {' or '.join(NUMBERS)}: in a task of theirs.", "K")],
    options: DecodeOptions,
    device: Device = "auto",
    devices: Devices = None,
) -> None:
    """Translate a shard, unless that is done.

    It may be repeated at any time, also on two machines at once.
    """
    job = Job.read(folder)
    one = job.shard(number)
    with job.failing(one):
        if job.done(one):
            console.say(f"shard {one.number} of {str(folder)!r} is done")
        else:
            job.check_same()
            _translate(job, one, options, device, devices)


def _translate(job: Job, one: Shard, options: DecodeOptions, device: str, devices: int | None) -> None:
    """Write the output of a shard, and its record."""
    from ..interface.translator import load

    start, path, own = time.perf_counter(), job.output(one), dict(job.made.options)
    form = OutputForm(**{name: own.pop(name) for name in FORM if name in own})
    precision, models = own.pop("precision"), [Path(model) for model in job.models]
    chosen = TranslateKeywords(**own, **options, **form.keywords())  # type: ignore[typeddict-item]
    replaced, lacking = Counter[str](), Counter[str]()
    translator = load(models, device=device, devices=devices, precision=precision, wait=False)
    windows = translator.windows(job.lines(one, replaced), chosen, lacking)
    with writing(path, WHAT) as sink:
        lines = write_windows(
            windows, sink, lambda at, line: form.of_line(one.lines_before + at, line), replaced, f"shard {one.number}"
        )
    record(path, job.made_from(one), text_entry(path), lines, time.perf_counter() - start)
    translator.stored.tags.warn(lacking)


def status(
    *, folder: JobFolder, as_json: Annotated[bool, option("Print JSON instead of text.", names=("--json",))] = False
) -> None:
    """Say which shards are done, missing and failed, by their records."""
    found = Job.read(folder).status()
    if as_json:
        output.write_json(found)
        return
    speed = f", {found['lines_per_second']:,} lines/s on each machine" if found["done"] else ""
    done = f"{found['done']:,} of {found['shards']:,} shards, {found['lines_done']:,} of {found['lines']:,} lines"
    output.write(f"done     {done}{speed}")
    if found["missing"]:
        output.write(f"missing  {ranges(found['missing'])}")
    for one in found["failed"]:
        output.write(f"failed   {one['shard']}, exit status {one['exit_status']}, {one['time']}: {one['why']}")


def join(*, folder: JobFolder, output_file: OutputFile = None) -> None:
    """Check the outputs of all shards, and write them in order."""
    job = Job.read(folder)
    if output_file:
        own = [folder / name for name in ("input", "output", "failed", MANIFEST)]
        check_output_file(output_file, WHAT, [*own, *map(Path, job.inputs)])
    job.check()
    with writing(output_file, WHAT) as sink:
        job.write(sink)


def clean(*, folder: JobFolder) -> None:
    """Remove a job with its outputs, and nothing that is not provably of the job."""
    if left := Job.read(folder).clean():
        console.warn(f"{folder}: {len(left):,} files stay, which are not the job's own, such as {str(left[0])!r}.")


for command in (create, shard, status, join, clean):
    group.command(command.__name__, cls=Command, context_settings=CONTEXT)(command)
