"""`nmt job`: a corpus cut into shards, which any machines translate in any order, and joined again.

`jobs` cuts, reads and joins. A shard is translated here, as `nmt translate` does it.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from .. import console
from ..device.memory import keep_freed_memory
from ..errors import RETRY, DataError, UsageError, of_machine
from ..interface.loading import check_precision, models_named, open_models
from ..interface.options import TranslateKeywords, choose
from ..jobs.cutting import create as create_job
from ..jobs.folder import FOLDERS, at
from ..jobs.job import MANIFEST, NUMBERS, Job, Shard, ranges
from ..options import flag
from ..recipe import DecodeOptions
from ..storage.output_paths import check_output_file
from . import output
from .arguments import DecodeOverrides, Device, Devices, OutputFile, Precision, argument, model_option, option
from .command import CONTEXT, Command, Group
from .forced_scoring import form_of, scored_in, write_scores
from .inputs import say_model
from .resumed import SPEED, made_from
from .translate_output import OutputForm, write_windows, writing
from .typed_options import options_of

if TYPE_CHECKING:
    from ..interface.translator import Translator

FORM = ("nbest", "scores", "as_json", "alignment", "confidence")
"""Options of the output's form that a job has."""
WHAT = "the translation"
JobFolder = Annotated[str, argument("Folder of the job, or s3://BUCKET/NAME.", "NAME")]
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
    references: Annotated[
        list[Path] | None,
        option("Translation of an input: score it, as nmt score --model does. Repeatable.", "REF", names=("--ref",)),
    ] = None,
    model: Annotated[list[Path] | None, model_option("Model, as for nmt translate. Repeat it for an ensemble.")] = None,
    shard_lines: Annotated[int, option("Lines of a shard.", "N", min=1, max=1_000_000_000)] = 20_000,
    form: OutputForm,
    options: DecodeOptions,
    overrides: DecodeOverrides = None,
    precision: Precision = "auto",
) -> None:
    """Cut a corpus into shards, with the options of its translation, or with translations to score.

    Plain inputs stay where they are; compressed ones are cut into NAME.
    """
    check_precision(precision)
    stored = open_models(models_named(model), chosen=say_model)
    stored.tags.chosen(options["target_language"])
    given = {**options, "overrides": overrides, **{name: getattr(form, name) for name in FORM}}
    files, refs = [*inputs, *(more_inputs or ())], references or []
    if refs:
        precision, given = scored_in(stored, precision), _of_scores(given)
    else:
        chosen = TranslateKeywords(**options, **form.keywords(), overrides=overrides or [])
        choose(chosen, stored.recipe, *stored.length_limits)
    planned = Job(
        format_version=Job.newest,
        folder=at(folder),
        made=made_from([], stored, precision, given),
        models=[str(path.absolute()) for path in stored.folders],
        inputs=[str(path.absolute()) for path in (*files, *refs)],
        shard_lines=shard_lines,
        shards=[],
        references=[],
    )
    job, is_new = create_job(planned, files, refs)
    lines = sum(one.lines for one in job.shards)
    console.say(f"{folder}: {lines:,} lines in {len(job.shards):,} shards{'' if is_new else ', as before'}")
    if job.shards:
        console.say_next("nmt", "job", "shard", folder, end=f" K, for each K from 0 to {len(job.shards) - 1}")


def _of_scores(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of scores. Raises UsageError for another one that was given."""
    own = {"command": "score", **{name: given.pop(name) for name in ("as_json", "target_language")}}
    if wrong := [name for name, value in given.items() if value not in (None, False, [], 1)]:
        raise UsageError(f"{flag(wrong[0])}: not with --ref, whose translations a model scores as they are.")
    return own


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
        if job.text(one) is not None:
            console.say(f"shard {one.number} of {str(folder)!r} is done")
        else:
            job.check_same()
            _make(job, one, options, device, devices)


def _make(job: Job, one: Shard, options: DecodeOptions, device: str, devices: int | None) -> None:
    """Write the output of a shard, and its record."""
    from ..interface.translator import load

    start, own = time.perf_counter(), {**job.made.options, **options}
    models, precision = [Path(model) for model in job.models], own.pop("precision")
    translator = load(models, device=device, devices=devices, precision=precision, wait=False)
    text = io.BytesIO()
    lines = (_score if job.references else _translate)(job, one, translator, own, text)
    job.keep(one, text.getvalue(), lines, time.perf_counter() - start)


def _translate(job: Job, one: Shard, translator: Translator, own: dict[str, Any], sink: BinaryIO) -> int:
    """Write the translations of a shard. Return their number."""
    form = OutputForm(**{name: own.pop(name) for name in FORM if name in own})
    replaced, lacking = Counter[str](), Counter[str]()
    chosen = TranslateKeywords(**own, **form.keywords())  # type: ignore[typeddict-item]
    windows = translator.windows(job.lines(one, replaced), chosen, lacking)
    lines = write_windows(
        windows, sink, lambda at, line: form.of_line(one.lines_before + at, line), replaced, f"shard {one.number}"
    )
    translator.stored.tags.warn(lacking)
    return lines


def _score(job: Job, one: Shard, translator: Translator, own: dict[str, Any], sink: BinaryIO) -> int:
    """Write the scores of a shard. Return their number."""
    replaced = Counter[str]()
    sources, targets = job.lines(one, replaced), job.lines(job.references[one.number], replaced)
    pairs = zip_longest(sources, targets, fillvalue="")  # both to their ends, where their hashes are compared
    translator.stored.check()
    scorer = translator.stored.scorer(translator.precision, own["batch_tokens"], own.get("target_language"))
    totals = write_scores(scorer, pairs, one.lines, form_of(own.get("as_json", False)), sink)
    console.warn_replaced(replaced)
    return totals.lines


@options_of(DecodeOptions, *SPEED)
def run(
    *,
    folder: JobFolder,
    ray: Annotated[
        str | None, option("Cluster of Ray: auto or HOST:PORT.  [default: Ray on this machine]", "ADDRESS")
    ] = None,
    options: DecodeOptions,
    device: Annotated[str, option("cpu, or cuda: a task asks for a GPU.", "D")] = "cpu",
    devices: Annotated[int, option("Cores of a shard; with --device cuda, GPUs.", "N", min=1, max=1024)] = 1,
) -> None:
    """Translate all shards that are not done, on a cluster of Ray.

    After Ctrl-C the same command goes on. A shard whose process or machine fails three times is given up.
    """
    job = Job.read(folder)
    job.check_same()
    given = [f"--devices={devices}", f"--device={device}"]
    given += [f"{flag(name)}={value}" for name, value in options.items() if value is not None]
    try:
        _run(job, ray or "local", given, devices, device.startswith("cuda"))
    except KeyboardInterrupt:
        console.say_next("nmt", "job", "run", folder, *(["--ray", ray] if ray else []))
        raise
    console.say_next("nmt", "job", "join", folder)


def _run(job: Job, address: str, options: Sequence[str], workers: int, on_gpu: bool) -> None:
    """Do the shards that are not done. Raises DataError if some failed."""
    from ..jobs.on_ray import on_ray

    told, failed = job.status(), Counter[int]()
    left = sorted([*told["missing"], *(one["shard"] for one in told["failed"])])
    with console.progress(told["lines"], "translating", " lines", initial=told["lines_done"]) as bar:
        for one, status, said in on_ray(job, left, address, options, workers, on_gpu):
            failed[status] += status > 0
            if status:
                job.fail(one, said, status)
                console.warn(f"shard {one.number} failed with exit status {status}: {said}")
            else:
                bar.update(one.lines)
    if count := failed.total():
        error = DataError(
            f"{count:,} of {len(left):,} shards failed: nmt job status says why. The same command tries them again."
        )
        raise of_machine(error) if failed[RETRY] == count else error


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
        own = [job.folder.where(name) for name in (*FOLDERS, MANIFEST)]
        check_output_file(output_file, WHAT, [*map(Path, [*own, *job.inputs])])
    keep_freed_memory()  # of each output, for the next one
    with writing(output_file, WHAT) as sink:
        job.join(sink)


def clean(*, folder: JobFolder) -> None:
    """Remove a job with its outputs, and nothing that is not provably of the job."""
    if left := Job.read(folder).clean():
        console.warn(f"{folder}: {len(left):,} files stay, which are not the job's own, such as {left[0]!r}.")


for command in (create, shard, run, status, join, clean):
    group.command(command.__name__, cls=Command, context_settings=CONTEXT)(command)
