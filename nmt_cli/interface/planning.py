"""The recipe of `nmt init`: its settings fit the text, the machine and the time.

text ── corpora.survey ──▶ Survey ── speed measured here ──▶ tokens that the time allows ── presets ──▶ settings
                                                             NAME.toml, NAME-text/ with held-out sets ◀──┘

With a trained model to start from, the recipe has the model's sizes and vocabulary.
"""

from __future__ import annotations

import math
import shlex
import shutil
import tomllib
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import console
from ..corpora.split import HELD_OUT
from ..corpora.survey import Survey, draw, survey, write_parts
from ..data.batches import EpochPlan
from ..data.normalization import nearly
from ..data.tokenizer import Vocabulary
from ..device.hardware import Hardware
from ..device.processor import busy, cores
from ..errors import ModelError, UsageError
from ..model.folder_files import find_model, is_rounded, read_config, read_metrics
from ..recipe import Recipe, no_language
from ..storage.output_paths import output_file, output_folder
from ..text.compression import FORMATS
from ..text.lines import read_parallel
from ..text.parallel_check import remarks, sample_files
from ..training import presets
from ..training.presets import Preset, Section
from ..training.times import BYTES_PER_PARAMETER, Speed, seconds_to_save, validation_seconds
from .commands import torch_threads

SETS = ("valid", "test")
SHARE = 20
"""A held-out set gets one of every SHARE pairs, at most `split.HELD_OUT` pairs."""
FEWEST = 100
"""Smallest number of pairs to train on."""
USED = 0.9
"""The share of the training time for updates; the rest is for validation and checkpoints."""
SUBWORDS = 1.3
"""Assumed subwords per word: the measurement runs before the vocabulary is learned."""

FileLists = dict[str, tuple[list[Path], list[Path]]]
"""Set, as "train" → the files of both sides."""


@dataclass(frozen=True)
class Initialized:
    """The files that `init` wrote, and the sizes and times that it chose or measured."""

    recipe: Path
    text: Path | None
    """The folder with the text divided into sets; None if the user gave every set."""
    survey: Survey
    settings: Preset
    pairs: dict[str, int]
    """Number of pairs in each set that was written."""
    seconds: tuple[float, float]
    """The shortest and the longest expected time of the training on this machine, with validations and checkpoints."""
    usual_seconds: float
    """The time of a training without a limit."""
    device: str


def write_recipe(
    recipe_file: Path,
    folder: Path,
    files: FileLists,
    languages: Sequence[str],
    start: Start | None,
    seconds: float,
    threads: int,
) -> Initialized:
    """Write the recipe, and the sets that `files` lacks into `folder`.

    `start`: the model that is adapted; `seconds`: of the whole training, 0: no limit. Raises UsageError, DataError.
    """
    text = survey(*files["train"], nearly)
    for kind, sides in files.items():
        if sides[0]:
            for remark in remarks(text.sample if kind == "train" else sample_files(*sides), sides, languages):
                console.warn(remark)
    missing = [kind for kind in SETS if not files[kind][0]]
    if text.useful < FEWEST:
        raise UsageError(
            f"the text has {text.useful:,} different pairs to learn from: at least {FEWEST:,} are needed, "
            "and 10,000 are few."
        )
    held_out = draw(text, dict.fromkeys(missing, min(HELD_OUT, max(1, text.useful // SHARE))))
    data = _data(files, languages, recipe_file.parent, folder if missing else None)
    valid = len(held_out["valid"]) if "valid" in held_out else sum(1 for _ in read_parallel(*files["valid"]))
    done, sections = _planned(recipe_file, folder if missing else None, text, valid, data, start, seconds, threads)
    test = files["test"] if files["test"][0] else ([folder / f"test.{language}"] for language in languages)
    head = _head(done, data, start, threads, list(test))
    recipe = presets.recipe_text(head, sections, done.settings.size.peak).encode()
    with output_file(recipe_file, "the recipe", ours=lambda _: "it exists") as sink:  # both are there, or neither
        sink.write(recipe)
        sink.flush()
        if missing:
            done.pairs.update(_write(files["train"], languages, held_out, folder))
    return done


def _data(files: FileLists, languages: Sequence[str], beside: Path, folder: Path | None) -> dict[str, object]:
    """Return the keys of [data]; paths of files are relative to the recipe's folder, if they are below it."""
    data: dict[str, object] = {"source_language": languages[0], "target_language": languages[1]}
    base = beside.absolute()
    for kind in ("train", "valid"):
        for side, key, language in zip(files[kind], ("source", "target"), languages, strict=True):
            ours = folder is not None and (kind == "train" or not side)
            paths = [folder / f"{kind}.{language}"] if ours and folder is not None else side
            absolute = [path.absolute() for path in paths]
            data[f"{kind}_{key}"] = [
                (path.relative_to(base) if path.is_relative_to(base) else path).as_posix() for path in absolute
            ]
    return data


@dataclass(frozen=True)
class Start:
    """A trained model that is adapted."""

    folder: Path
    recipe: Recipe
    vocabularies: tuple[int, int]
    """Sizes of the source and the target vocabulary."""
    imported: bool
    """Whether `nmt import` wrote it."""
    tags: Collection[str]
    """The codes of the tags of its target languages; see `data.tags`."""


def start_from(path: Path) -> Start:
    """Return the model of a model or run folder.

    Raises ModelError, also for a model that was rounded to int8, which cannot be trained.
    """
    folder = find_model(path)
    config = read_config(folder)
    if is_rounded(config, read_metrics(folder)):
        raise ModelError(
            f"--from {str(folder)!r} is a model in int8, which translates only: name the model that it was made from."
        )
    recipe = Recipe.from_dict(config.recipe, str(folder))
    for code in (recipe.data.source_language, recipe.data.target_language):
        if reason := no_language(code):
            raise ModelError(f"--from {str(folder)!r} is a model of the language {reason}")
    tags = Vocabulary.load(folder, config.vocabularies, config.tokenizers).source.tags
    return Start(folder.absolute(), recipe, config.vocabularies, "imported" in read_metrics(folder), tags)


def _planned(
    recipe_file: Path,
    folder: Path | None,
    text: Survey,
    valid: int,
    data: dict[str, object],
    start: Start | None,
    limit: float,
    threads: int,
) -> tuple[Initialized, dict[str, Section]]:
    """Return the settings with their times, and the recipe with these settings.

    `valid`: the number of validation pairs; `start`: the model that is adapted; `limit`: seconds for the whole
    training, 0: no limit.
    """
    hardware = Hardware.find("auto", start.recipe.train.precision if start else "auto")
    tokens = int(max(text.lengths.sum(axis=0)) * SUBWORDS) + len(text.lengths)  # of a pass, on the longer side
    usual = presets.ADAPTING_PASSES * tokens if start else presets.usual_tokens(text.useful, tokens)
    sizes = [presets.size_of(start.recipe, start.imported)] if start else [*presets.sizes_for(text.useful)]

    if hardware.device == "cpu" and (remark := busy(threads or cores())):
        console.warn(remark)

    def sections(chosen: Preset) -> dict[str, Section]:
        if start:
            return presets.adapted(start.recipe, start.folder, chosen, data)
        source, target = text.source, text.target
        joint = next(iter(source.scripts), "") == next(iter(target.scripts), "")  # one script: they share subwords
        characters = [source.characters + target.characters] if joint else [source.characters, target.characters]
        return presets.sections(chosen, data, characters)

    def measured(chosen: Preset) -> Speed:
        with console.status(
            f"measuring the speed of {chosen.size.described} with updates of {chosen.batch_tokens:,} tokens"
        ):
            recipe = Recipe.from_dict(tomllib.loads(presets.recipe_text((), sections(chosen), 0)), "the new recipe")
            sizes = start.vocabularies if start else (recipe.data.vocab_size, recipe.data.target_size)
            speed = _measured(recipe, sizes, text, hardware, threads)
            length, train = tokens / len(text.lengths), recipe.train
            held_out = valid, valid * length, train.valid_bleu_sentences
            return replace(
                speed,
                save=seconds_to_save(recipe_file.parent, parameters(chosen)),
                validation=validation_seconds(speed.slowest, train.batch_tokens, *held_out),
            )

    def parameters(chosen: Preset) -> int:
        return chosen.size.parameters(max(start.vocabularies) if start else chosen.vocab_size)

    for size in sizes:
        chosen = presets.settings(size, text.useful, tokens, usual)
        speed = measured(chosen)
        affordable = USED * limit / speed.slowest * chosen.batch_tokens if limit else usual
        if size is sizes[-1] or presets.has_time(size, affordable):
            break
    if affordable < usual:
        chosen = presets.settings(size, text.useful, tokens, affordable)
        speed = measured(chosen)  # of updates of another size
        chosen = chosen.reading(min(usual, USED * limit / speed.slowest * chosen.batch_tokens), tokens)
    free = shutil.disk_usage(recipe_file.parent).free or math.inf
    most_kept = free / 2 / BYTES_PER_PARAMETER / parameters(chosen)
    chosen = chosen.at(speed, most_kept)
    while limit and chosen.updates > 1 and (longest := speed.seconds(chosen.updates, chosen.every)[1]) > limit:
        chosen = chosen.reading(chosen.updates * chosen.batch_tokens * limit / longest, tokens).at(speed, most_kept)
    times = speed.seconds(chosen.updates, chosen.every), usual / chosen.batch_tokens * speed.slowest
    return Initialized(recipe_file, folder, text, chosen, {}, *times, hardware.device), sections(chosen)


def _measured(recipe: Recipe, vocabularies: tuple[int, int], text: Survey, hardware: Hardware, threads: int) -> Speed:
    """Measure and return the speed on text with these line lengths."""
    from ..training.speed import speed_of

    lengths = np.clip(text.lengths[(text.lengths > 0).all(axis=1)] * SUBWORDS + 1, 1, recipe.data.max_length)
    lengths = np.resize(lengths.astype(np.int32), (max(len(lengths), recipe.train.batch_tokens), 2))
    plan = EpochPlan(lengths[:, 0].copy(), lengths[:, 1].copy(), recipe.train.batch_tokens, recipe.train.seed)
    with torch_threads(threads or cores()):
        return speed_of(recipe, vocabularies, hardware, plan)


def _head(
    done: Initialized, data: dict[str, object], start: Start | None, threads: int, test: Sequence[Sequence[Path]]
) -> list[str]:
    """Return the comment at the head of the recipe. `test`: the files of the test set."""
    count, path, run = threads or cores(), str(done.recipe), f"runs/{done.recipe.stem}"
    models = [("Before", str(start.folder)), ("After", run)] if start else [("Scores", run)]
    where = f"{count} CPU core{'s' * (count != 1)}" if done.device == "cpu" else done.device
    steps = (
        ["nmt", "preprocess", path],
        ["nmt", "train", path, *(["--threads", str(threads)] if threads else [])],
        ["nmt", "average", run],
    )
    return [
        f"{data['source_language']}-{data['target_language']}, {done.survey.pairs:,} pairs, by nmt init"
        + (f", to adapt {start.folder}." if start else "."),
        "",
        f"Command     {' && '.join(shlex.join(step) for step in steps)}",
        f"Time        {console.spoken_range(*done.seconds)} here ({where}); nmt train {shlex.quote(path)} --dry-run "
        f"measures it",
        f"Text        read {done.settings.passes:.3g} times; docs/presets.md says how that decides the sizes",
        *(f"{when:<12}{command}" for when, model in models if (command := _scoring(model, test))),
    ]


def _scoring(model: str, test: Sequence[Sequence[Path]]) -> str:
    """Return the command that scores a model on the test set; "" if this is not one plain file for each side."""
    if any(len(side) != 1 or side[0].suffix in FORMATS for side in test):
        return ""
    source, target = (shlex.quote(str(side[0])) for side in test)
    return f"nmt translate --model {shlex.quote(model)} < {source} | nmt score - --ref {target}"


def _write(
    files: tuple[list[Path], list[Path]], languages: Sequence[str], held_out: dict[str, Any], folder: Path
) -> dict[str, int]:
    """Write the text into the new folder, divided into sets. Return the number of pairs in each set."""
    with (
        output_folder(folder, "the text", lambda _: "it exists", [path for side in files for path in side]) as aside,
        ExitStack() as stack,
    ):
        streams = {
            kind: tuple(stack.enter_context(open(aside / f"{kind}.{language}", "wb")) for language in languages)
            for kind in ("train", *held_out)
        }
        return write_parts(*files, held_out, streams)  # type: ignore[arg-type]
