"""`nmt init` as a function: write a recipe for text files. The model size fits the text, the machine and the time.

text ── corpora.survey ──▶ Survey ──▶ preset ── measured here ──▶ updates ──▶ NAME.toml, NAME-text/ with held-out sets
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import console
from ..compression import FORMATS
from ..errors import UsageError, write_failed
from ..text_files import check_text_files
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..corpora.survey import Survey
    from ..recipe import Recipe
    from ..training.presets import Preset

SETS = ("valid", "test")
SHARE = 20
"""A held-out set gets one of every SHARE pairs, at most `split.HELD_OUT` pairs."""
FEWEST = 100
"""Smallest number of pairs to train on."""
USED = 0.9
"""The share of the training time for updates; the rest is for validation and checkpoints."""
SUBWORDS = 1.3
"""Assumed subwords per word: the measurement runs before the vocabulary is learned."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
OTHER_ENDINGS = {"txt", "text", "src", "tgt", "trg", "ref", "raw", "tok", "bpe", "spm", "dat", "out", "utf8"}
"""Endings of file names that are not language codes."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")

Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Initialized:
    """The files that `init` wrote, and the sizes and times that it chose or measured."""

    recipe: Path
    text: Path | None
    """The folder with the text divided into sets; None if the user gave every set."""
    survey: Survey
    preset: Preset
    pairs: dict[str, int]
    """Number of pairs in each set that was written."""
    updates: int
    seconds: float
    """Expected time of all updates on this machine."""
    device: str


def init(
    name: str | Path,
    source: Files,
    target: Files,
    *,
    valid_source: Files = (),
    valid_target: Files = (),
    test_source: Files = (),
    test_target: Files = (),
    source_language: str = "",
    target_language: str = "",
    time: str = "",
    progress: ProgressOption = None,
) -> Initialized:
    """Write the recipe NAME.toml for parallel text and this machine. Validation and test sets that are not given are held out from the text.

    `time`, such as "1h" or "2d12h", limits the training. Existing files are never replaced. Raises UsageError, DataError.
    """
    recipe_file, folder = _outputs(Path(name))
    seconds = duration(time) if time else 0.0
    files = {"train": _sides(source, target, "--source", "--target")}
    if not files["train"][0]:
        raise UsageError("there is no text: name the files of both sides.")
    files |= {
        kind: _sides(*sides, f"--{kind}-source", f"--{kind}-target")
        for kind, sides in (("valid", (valid_source, valid_target)), ("test", (test_source, test_target)))
    }
    check_text_files([path for sides in files.values() for side in sides for path in side])
    languages = _languages((source_language, target_language), files["train"])
    if languages[0] == languages[1]:
        raise UsageError(
            f"both sides are called {languages[0]!r}: give --source-language and --target-language, such as en and de."
        )

    from ..corpora.split import HELD_OUT
    from ..corpora.survey import draw, survey
    from ..data.normalization import nearly
    from ..sides import sample_files, warn_about

    with showing(progress):
        text = survey(*files["train"], nearly)
        for kind, sides in files.items():
            if sides[0]:
                warn_about(text.sample if kind == "train" else sample_files(*sides), sides, languages)
        missing = [kind for kind in SETS if not files[kind][0]]
        if text.useful < FEWEST:
            raise UsageError(
                f"the text has {text.useful:,} different pairs to learn from: at least {FEWEST:,} are needed, and 10,000 are few."
            )
        held_out = draw(text, dict.fromkeys(missing, min(HELD_OUT, max(1, text.useful // SHARE))))
        data = _data(files, languages, recipe_file.parent, folder if missing else None)
        preset, updates, per_update, device = _sized(text, data, seconds)
        recipe = _recipe(recipe_file, preset, text, data, updates, per_update, device)
        pairs = _write(files["train"], languages, held_out, folder) if missing else {}
        try:
            with open(recipe_file, "x", encoding="utf-8") as sink:
                sink.write(recipe)
        except FileExistsError:
            raise _exists(recipe_file) from None
        except OSError as error:
            raise write_failed(error, recipe_file, "the recipe") from None
    return Initialized(
        recipe_file, folder if missing else None, text, preset, pairs, updates, updates * per_update, device
    )


def duration(text: str) -> float:
    """Return a duration such as 90m, 1h or 2d12h in seconds. Raises UsageError, also for 0."""
    seconds = sum(float(number) * UNITS[unit] for number, unit in DURATION.findall(text))
    if not seconds or DURATION.sub("", text).strip():
        raise UsageError(f"the time {text!r}: expected numbers with s, m, h or d, such as 90m, 1h or 2d12h.")
    return seconds


def _outputs(name: Path) -> tuple[Path, Path]:
    """Return the paths of the recipe and of the folder for the text. Raises UsageError if one of them exists, or if the name is not valid."""
    from ..recipe_files import RECIPE_SUFFIX, recipe_names

    stem = name.name.removesuffix(RECIPE_SUFFIX)
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", stem):
        raise UsageError(f"the name {str(name)!r}: expected letters, digits, - and _, such as mine.")
    if stem in recipe_names():
        raise UsageError(f"the name {stem!r} is that of a recipe that comes with nmt: choose another one.")
    recipe, folder = name.parent / f"{stem}{RECIPE_SUFFIX}", name.parent / f"{stem}-text"
    for path in (recipe, folder):
        if os.path.lexists(path):
            raise _exists(path)
    if not name.parent.is_dir():
        raise UsageError(f"the folder {str(name.parent)!r} does not exist: make it, or choose another name.")
    return recipe, folder


def _exists(path: Path) -> UsageError:
    return UsageError(f"{str(path)!r} exists, and nmt init replaces nothing: choose another name, or move it away.")


def _sides(source: Files, target: Files, source_option: str, target_option: str) -> tuple[list[Path], list[Path]]:
    """Return the files of both sides. Raises UsageError if the sides have different numbers of files, or if a path is not a plain file."""
    sides = tuple(
        [Path(files)] if isinstance(files, str | Path) else [Path(path) for path in files] for files in (source, target)
    )
    if len(sides[0]) != len(sides[1]):
        raise UsageError(
            f"{len(sides[0])} files of {source_option} and {len(sides[1])} of {target_option}: they are read in pairs. Give as many of each."
        )
    for path in (path for side in sides for path in side):
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{str(path)!r} is not a plain file; it is read more than once, so it cannot be a folder or a pipe."
            )
    return sides[0], sides[1]


def _languages(given: Sequence[str], files: Sequence[Sequence[Path]]) -> list[str]:
    """Return the language code of each side: the given one, or the one in the name of its first file. Raises UsageError without one."""
    codes = [code or _language(paths[0]) for code, paths in zip(given, files, strict=True)]
    if "" not in codes:
        return codes
    unnamed = [repr(str(paths[0])) for code, paths in zip(codes, files, strict=True) if not code]
    examples = zip(("--source-language", "--target-language"), ("en", "de"), codes, strict=True)
    options = " and ".join(
        f"{option} CODE, such as {option} {example}" for option, example, code in examples if not code
    )
    raise UsageError(f"{' and '.join(unnamed)}: the language is not in the name of the file. Give {options}.")


def _language(path: Path) -> str:
    """Return the language code at the end of a file's name, such as "en" for train.en.gz and train.en.txt, or ""."""
    endings = [
        suffix[1:] for suffix in path.suffixes if suffix not in FORMATS and suffix[1:].lower() not in OTHER_ENDINGS
    ]
    return endings[-1] if endings and re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z]+)?", endings[-1]) else ""


def _data(
    files: dict[str, tuple[list[Path], list[Path]]], languages: Sequence[str], beside: Path, folder: Path | None
) -> dict[str, object]:
    """Return the keys of [data]; paths of files are relative to the recipe's folder, if they are below it."""
    data: dict[str, object] = {"source_language": languages[0], "target_language": languages[1]}
    for kind in ("train", "valid"):
        for side, key, language in zip(files[kind], ("source", "target"), languages, strict=True):
            ours = folder is not None and (kind == "train" or not side)
            paths = [folder / f"{kind}.{language}"] if ours and folder is not None else side
            data[f"{kind}_{key}"] = [_from(beside, path) for path in paths]
    return data


def _from(folder: Path, path: Path) -> str:
    """Return the path that a recipe in `folder` gives for a file: relative if the file is below `folder`, else absolute."""
    file, base = path.absolute(), folder.absolute()
    return file.relative_to(base).as_posix() if file.is_relative_to(base) else file.as_posix()


def _sized(text: Survey, data: dict[str, object], limit: float) -> tuple[Preset, int, float, str]:
    """Return the preset, the number of updates, the seconds per update on this machine, and the device. `limit`: seconds for the whole training; 0: no limit."""
    from ..hardware import Hardware
    from ..training.presets import LEAST, preset_for, smaller

    preset = preset_for(text.useful)
    while True:
        with console.status(f"measuring the preset {preset.name}"):
            recipe = _parsed(preset, text, data, preset.updates)
            hardware = Hardware.find("auto", recipe.train.precision, 0, 0)
            per_update = _measured(recipe, text, hardware)
        updates = min(preset.updates, _round(USED * limit / per_update)) if limit else preset.updates
        less = smaller(preset)
        if updates >= LEAST * preset.updates or less is None:
            return preset, updates, per_update, hardware.device
        preset = less


def _round(number: float) -> int:
    """Return a number rounded down to two significant digits, at least 1."""
    unit = int(10 ** max(0, len(f"{int(number)}") - 2))
    return max(1, int(number) // unit * unit)


def _measured(recipe: Recipe, text: Survey, hardware: Any) -> float:
    """Measure and return the seconds per update on text with these line lengths."""
    import numpy as np

    from ..data.batches import EpochPlan
    from ..hardware import cores
    from ..training.speed import seconds_per_update
    from .commands import torch_threads

    lengths = np.clip(text.lengths[(text.lengths > 0).all(axis=1)] * SUBWORDS + 1, 1, recipe.data.max_length).astype(
        np.int32
    )
    lengths = np.resize(lengths, (max(len(lengths), recipe.train.batch_tokens), 2))
    plan = EpochPlan(lengths[:, 0].copy(), lengths[:, 1].copy(), recipe.train.batch_tokens, recipe.train.seed)
    with torch_threads(cores()):
        return seconds_per_update(recipe, (recipe.data.vocab_size,) * 2, hardware, 1, plan)


def _parsed(preset: Preset, text: Survey, data: dict[str, object], updates: int) -> Recipe:
    from ..recipe import Recipe
    from ..training.presets import recipe_text

    return Recipe.from_dict(
        tomllib.loads(recipe_text(preset, (), data, updates, _joint(text), text.useful)), "the new recipe"
    )


def _joint(text: Survey) -> bool:
    """Return whether both sides are mostly written in the same script: then they share subwords."""
    first, second = (next(iter(side.scripts), "") for side in (text.source, text.target))
    return first == second


def _recipe(
    path: Path, preset: Preset, text: Survey, data: dict[str, object], updates: int, per_update: float, device: str
) -> str:
    """Return the text of the recipe."""
    from ..hardware import cores
    from ..training.presets import recipe_text

    where = f"{cores()} CPU core{'s' * (cores() != 1)}" if device == "cpu" else device
    head = [
        f"{data['source_language']}-{data['target_language']}, {text.pairs:,} pairs, by nmt init with the preset {preset.name}.",
        "",
        f"Command     nmt preprocess {path} && nmt train {path} && nmt average runs/{path.stem}",
        f"Time        about {spoken(updates * per_update)} here ({where}); nmt train {path} --dry-run measures it",
        f"Proven on   {preset.proven or 'no text yet: the size lies between those of its neighbours'}",
    ]
    return recipe_text(preset, head, data, updates, _joint(text), text.useful)


def spoken(seconds: float) -> str:
    """Return a duration in words: 50 minutes, 3.5 hours, 12 days."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:.0f} {unit}" if seconds >= 10 * size or size == 60 else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds:.0f} seconds"


def _write(
    files: tuple[list[Path], list[Path]], languages: Sequence[str], held_out: dict[str, Any], folder: Path
) -> dict[str, int]:
    """Write the text into the new folder, divided into sets. Return the number of pairs in each set."""
    from ..corpora.survey import write_parts
    from ..output_paths import output_folder

    with (
        output_folder(folder, "the text", lambda _: "it exists", [path for side in files for path in side]) as aside,
        ExitStack() as stack,
    ):
        streams = {
            kind: tuple(stack.enter_context(open(aside / f"{kind}.{language}", "wb")) for language in languages)
            for kind in ("train", *held_out)
        }
        return write_parts(*files, held_out, streams)  # type: ignore[arg-type]
