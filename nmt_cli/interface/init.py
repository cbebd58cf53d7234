"""`nmt init` as a function: write a recipe for text files.

init ── checks of names, files and languages ──▶ planning.write_recipe
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, listed
from ..recipe import RECIPE_SUFFIX, no_language, recipe_names
from ..text.compression import FORMATS
from ..text.languages import canonical, find
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from .planning import Initialized, Start

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
OTHER_ENDINGS = {"txt", "text", "src", "tgt", "trg", "ref", "raw", "tok", "bpe", "spm", "dat", "out", "utf8"}
"""Endings of file names that are not language codes."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")

Files = str | Path | Sequence[str | Path]


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
    from_model: str | Path = "",
    time: str = "",
    threads: int = 0,
    progress: ProgressOption = None,
) -> Initialized:
    """Write the recipe NAME.toml for parallel text and this machine.

    Validation and test sets that are not given are held out from the text.

    `time`, such as "1h" or "2d12h", limits the training, and `threads` its CPU threads; 0: all cores. `from_model`, a
    model or run folder: the recipe continues its training on this text. Existing files are never replaced. Raises
    UsageError, DataError, ModelError.
    """
    recipe_file, folder = _outputs(Path(name))
    seconds = duration(time) if time else 0.0
    files = {"train": _sides(source, target)}
    if not files["train"][0]:
        raise UsageError("there is no text: name the files of both sides.")
    files |= {
        kind: _sides(*sides, f"{kind}-")
        for kind, sides in (("valid", (valid_source, valid_target)), ("test", (test_source, test_target)))
    }
    from ..text.other_formats import check_text_files
    from .planning import start_from, write_recipe

    check_text_files([path for sides in files.values() for side in sides for path in side])
    start = start_from(Path(from_model)) if str(from_model) else None
    languages = _languages((source_language, target_language), files["train"], start)

    with showing(progress):
        return write_recipe(recipe_file, folder, files, languages, start, seconds, threads)


def duration(text: str) -> float:
    """Return a duration such as 90m, 1h or 2d12h in seconds. Raises UsageError, also for 0."""
    seconds = sum(float(number) * UNITS[unit] for number, unit in DURATION.findall(text))
    if not seconds or DURATION.sub("", text).strip():
        raise UsageError(f"the time {text!r}: expected numbers with s, m, h or d, such as 90m, 1h or 2d12h.")
    return seconds


def _outputs(name: Path) -> tuple[Path, Path]:
    """Return the paths of the recipe and of the folder for the text.

    Raises UsageError if one of them exists, or if the name is not valid.
    """
    stem = name.name.removesuffix(RECIPE_SUFFIX)
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", stem):
        raise UsageError(f"the name {str(name)!r}: expected letters, digits, - and _, such as mine.")
    if stem in recipe_names():
        raise UsageError(f"the name {stem!r} is that of a recipe that comes with nmt: choose another one.")
    recipe, folder = name.parent / f"{stem}{RECIPE_SUFFIX}", name.parent / f"{stem}-text"
    for path in (recipe, folder):
        if os.path.lexists(path):
            raise UsageError(
                f"{str(path)!r} exists, and nmt init replaces nothing: choose another name, or move it away."
            )
    if not name.parent.is_dir():
        raise UsageError(f"the folder {str(name.parent)!r} does not exist: make it, or choose another name.")
    return recipe, folder


def _sides(source: Files, target: Files, kind: str = "") -> tuple[list[Path], list[Path]]:
    """Return the files of both sides.

    Raises UsageError if the sides have different numbers of files, or if a path is not a plain file.
    """
    sides = tuple(
        [Path(files)] if isinstance(files, str | Path) else [Path(path) for path in files] for files in (source, target)
    )
    if len(sides[0]) != len(sides[1]):
        raise UsageError(
            f"{len(sides[0])} files of --{kind}source and {len(sides[1])} of --{kind}target: they are read "
            "in pairs. Give as many of each."
        )
    for path in (path for side in sides for path in side):
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{str(path)!r} is not a plain file; it is read more than once, so it cannot be a folder or a pipe."
            )
    return sides[0], sides[1]


def _languages(given: Sequence[str], files: Sequence[Sequence[Path]], start: Start | None) -> list[str]:
    """Return the language code of each side: the given one, or the one in the name of its first file.

    Raises UsageError without one, for codes that are not valid, and if the model of `start` has other languages.
    """
    languages = [code or _language(paths[0]) for code, paths in zip(given, files, strict=True)]
    options = ("--source-language", "--target-language")
    if start:
        named, data = languages, start.recipe.data
        into = start.tags or [data.target_language]
        target = named[1] if find(named[1], start.tags) else data.target_language
        languages = [data.source_language, target]
        if not find(target, into) or any(
            name and canonical(name) != canonical(language) for name, language in zip(named, languages, strict=True)
        ):
            text = " to ".join(repr(name) if name else "a language that its file does not name" for name in named)
            raise UsageError(
                f"the model {str(start.folder)!r} translates from {languages[0]!r} to "
                f"{listed([*map(repr, into)], 20)}, and the text is {text}. If it is the same, say so: "
                f"--source-language {languages[0]} --target-language {'CODE, one of these' if start.tags else target}."
            )
    elif "" in languages:
        missing = [side for side, code in enumerate(languages) if not code]
        unnamed = " and ".join(repr(str(files[side][0])) for side in missing)
        examples = [(options[side], ("en", "de")[side]) for side in missing]
        needed = " and ".join(f"{option} CODE, such as {option} {example}" for option, example in examples)
        raise UsageError(f"{unnamed}: the language is not in the name of the file. Give {needed}.")
    for option, code in zip(options, languages, strict=True):
        if reason := no_language(code):
            raise UsageError(f"{option} {reason}")
    if languages[0] == languages[1]:
        raise UsageError(
            f"both sides are called {languages[0]!r}: give --source-language and --target-language, such as en and de."
        )
    return languages


def _language(path: Path) -> str:
    """Return the language code at the end of a file's name, such as "en" for train.en.gz and train.en.txt, or ""."""
    endings = [
        suffix[1:] for suffix in path.suffixes if suffix not in FORMATS and suffix[1:].lower() not in OTHER_ENDINGS
    ]
    return endings[-1] if endings and re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z]+)?", endings[-1]) else ""
