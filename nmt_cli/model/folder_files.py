"""The files of a model folder, read without torch. `folder` builds models from them.

A command first finds the folder and reads its recipe with this module. A thread checks the files while torch is loaded.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, TypeAdapter, ValidationError, model_serializer

from .. import console
from ..errors import ModelError, NmtError, UsageError, shown
from ..storage.files import read_bounded, sha256
from ..storage.sealed_json import Record, parse_json, read_record

if TYPE_CHECKING:
    from ..recipe import DataSection, Recipe

WEIGHTS, CONFIG, METRICS = "model.safetensors", "config.json", "metrics.json"
TOKENIZERS = ({"tokenizer.model"}, {"tokenizer.source.model", "tokenizer.target.model"})
"""The names of the tokenizers of a joint vocabulary, and of two."""
MOST_TOKENS = 10_000_000
"""Largest size of a vocabulary, as in a recipe."""
CARD = "README.md"
"""The name of the model card."""
LARGEST_CARD = 1 << 28
MADE_FROM = b"""\
# A translation model that was made from another one

It has other weights: it was trained further, or is an average. What follows describes the model that it was made from.

"""
AVERAGED, LAST = "averaged", "last"
CHOICES = (AVERAGED, "best", LAST)
"""The models of a run folder in order of preference: the first one that exists is used."""
SCORES = TypeAdapter(dict[str, int | float | str | bool | list[str] | None], config={"strict": True})
"""The content of metrics.json."""
UNKNOWN_SAFE_LENGTH = 64
"""The safe length of a model folder that does not have one, because an older version wrote it."""
REMEDY = "Restore the folder from a copy, or take another checkpoint."


class ModelConfig(Record):
    """config.json: a description of the weights, and the SHA-256 of every other file of the folder."""

    newest: ClassVar[int] = 4
    """Format version 3 has `safe_length`. Since version 4, int8 has no scales of inputs."""

    package_version: str
    parameters: int = Field(ge=0, le=10**12)
    """How many numbers the weights have."""
    source_vocab: int = Field(ge=1, le=MOST_TOKENS)
    target_vocab: int = Field(ge=1, le=MOST_TOKENS)
    """Sizes of the vocabularies, in tokens."""
    sha256: dict[str, str]
    """SHA-256 by file name, of the weights, the tokenizers and metrics.json (the last since format version 2)."""
    recipe: dict[str, Any]
    precision: Literal["fp32", "int8"] = "fp32"
    """Precision of the weights: int8 if `nmt quantize` wrote the folder, or imported a model with integers.

    The file has this field only for int8; earlier versions did not have it.
    """
    safe_length: int | None = Field(default=None, ge=1, le=1_000_000)
    """A length, in source tokens: 99 % of the training lines are not longer. A line of several sentences is translated
    whole up to it. None, and not in the file, if it is unknown."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {"precision": "fp32", "safe_length": None}
        return {key: value for key, value in handler(self).items() if key not in defaults or value != defaults[key]}

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Sizes of the source and the target vocabulary, in tokens."""
        return self.source_vocab, self.target_vocab

    @property
    def tokenizers(self) -> dict[str, str]:
        """SHA-256 of the tokenizers by file name."""
        return {name: digest for name, digest in self.sha256.items() if name not in (WEIGHTS, METRICS)}


FORMAT_VERSION = ModelConfig.newest


def read_config(folder: Path) -> ModelConfig:
    """Return `config.json` of a model folder, after a check of its version and hash. Raises ModelError."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise ModelError(f"no model folder at {str(folder)!r}. Train one (`nmt train`), or name another with --model.")
    try:
        config = read_record(path, ModelConfig, ModelError, REMEDY)
    except FileNotFoundError:
        raise ModelError(
            f"{str(folder)!r} is not a model folder: it has no {CONFIG}. Name a model folder or a run folder."
        ) from None
    needed = {WEIGHTS} if config.format_version == 1 else {WEIGHTS, METRICS}
    if not needed <= config.sha256.keys() or set(config.tokenizers) not in TOKENIZERS:
        raise ModelError(
            f"{str(path)!r} is damaged: sha256 lists {shown(sorted(config.sha256))}; expected "
            f"{', '.join(sorted(needed))}, "
            f"and {' or '.join(' with '.join(sorted(names)) for names in TOKENIZERS)}. {REMEDY}"
        )
    return config


def check_int8(precision: str) -> None:
    """Raise UsageError unless `precision`, in which a model that is stored in int8 shall compute, is int8."""
    if precision != "int8":
        raise UsageError(
            f"the model's weights are stored in int8, and {precision} was asked for: "
            "give int8 or auto as the precision, or name the model that it was made from."
        )


def check_fp32(folder: Path, config: ModelConfig) -> None:
    """Raise ModelError if the model was rounded to int8."""
    if is_rounded(config, read_metrics(folder)):
        raise ModelError(
            f"the model {str(folder)!r} is in int8, which translates only: name the model that it was made from."
        )


def is_rounded(config: ModelConfig, metrics: Mapping[str, Any]) -> bool:
    """Return whether a model is in int8 and was made from one in fp32.

    The integers of an imported model are the model itself: it can be trained, averaged and exported.
    """
    return config.precision == "int8" and not ("imported" in metrics and "quantized" not in metrics)


def length_limits(data: DataSection, stored: Iterable[int | None]) -> tuple[int, int]:
    """Return up to which length, in source tokens, models with these safe lengths translate a line whole, and a
    sentence.

    The smallest safe length counts. A sentence may be longer by half, because it loses more by being split. If no safe
    length is known, sentences are whole up to `data.max_length`. A parser's lines are sentences, and are not split
    into smaller ones.
    """
    if data.terminals or data.target_tokenization == "words":
        return data.max_length, data.max_length
    known = [length for length in stored if length]
    safe = min(known, default=UNKNOWN_SAFE_LENGTH)
    return min(safe, data.max_length), min(safe * 3 // 2 if known else data.max_length, data.max_length)


def read_metrics(folder: Path) -> dict[str, Any]:
    """Return `metrics.json` of a model folder: the model's scores; {} if there is no such file.

    Raises ModelError if it is damaged.
    """
    path = folder / METRICS
    try:
        return SCORES.validate_python(parse_json(read_bounded(path, ModelConfig.largest), path, ModelError, REMEDY))
    except FileNotFoundError:
        return {}
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise ModelError(
            f"{str(path)!r} is damaged: {shown(first['loc'][0])} is {shown(first['input'])}, expected a number, a "
            f"text or a list of texts. {REMEDY}"
        ) from None
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}. {REMEDY}") from None


def origin_of(metrics: Mapping[str, Any], is_changed: bool = False) -> dict[str, Any]:
    """Return the values of a model's metrics.json that say which imported model it is, or was made from; {} for another
    one.

    `is_changed`: for a model with other weights. It has `origin` instead of `imported`.
    """
    values = {key: metrics[key] for key in ("imported", "origin", "toolkit", "license") if key in metrics}
    return {"origin" if is_changed and key == "imported" else key: value for key, value in values.items()}


def card_of(folder: Path, is_changed: bool = False) -> bytes:
    """Return the card of a model that was imported, or made from such a model, with its makers and its licence; b"" for
    another one.

    `is_changed`: for a model with other weights. Raises OSError.
    """
    if not origin_of(read_metrics(folder)) or not (folder / CARD).is_file():
        return b""
    card = read_bounded(folder / CARD, LARGEST_CARD)
    return MADE_FROM + card if is_changed and not card.startswith(MADE_FROM) else card


def check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Check that every file of `hashes`, SHA-256 by name, exists and is unchanged.

    Raises ModelError, which names the first file that is missing or changed.
    """
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file():
            raise ModelError(f"{str(folder)!r} lacks {name}. {REMEDY}")
        try:
            digest = sha256(path)
        except OSError as error:
            raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}.") from None
        if digest != expected:
            raise ModelError(f"{str(path)!r} was changed or damaged: its SHA-256 is not the one in {CONFIG}. {REMEDY}")


def foreign(folder: Path, expected: Mapping[str, str]) -> str:
    """Return why a folder is not as it was written: it has a file that is not `expected`, or a changed file.

    Return "" if it is unchanged.

    `expected` has the SHA-256 of each file by name, or "" for a file whose content is not checked.
    """
    for item in sorted(folder.iterdir()):
        if item.name not in expected or item.is_symlink() or not item.is_file():
            return f"it holds {item.name!r}, which nmt did not write"
        if expected[item.name] and sha256(item) != expected[item.name]:
            return f"its file {item.name!r} was changed after it was written"
    return ""


WRITTEN_BY: dict[str, Callable[[ModelConfig, Mapping[str, Any]], bool]] = {
    "nmt quantize": is_rounded,
    "nmt average": lambda _, metrics: isinstance(metrics.get("averaged"), list),
    "nmt models get": lambda _, metrics: "published" in metrics,
    "nmt import": lambda config, metrics: not is_rounded(config, metrics) and "imported" in metrics,
}
"""Whether a model folder's config.json and metrics.json are those of a command."""


def not_written_by(command: str, folder: Path) -> str:
    """Return why `folder` is not an unchanged model folder that `command` wrote; "" if it is one."""
    try:
        config = read_config(folder)
        if not WRITTEN_BY[command](config, read_metrics(folder)):
            return f"it is a model folder that {command} did not write"
        return foreign(folder, {CONFIG: "", METRICS: "", CARD: "", **config.sha256})
    except ModelError as error:
        if (folder / CONFIG).exists():
            return f"it is not a model folder that {command} wrote ({error})"
        return f"{command} did not write it"


not_quantized, not_an_average, not_fetched, not_imported = (partial(not_written_by, command) for command in WRITTEN_BY)


def checking(folder: Path, config: ModelConfig) -> Future[None]:
    """Run `check_files` in a thread of its own, and return its future.

    The future's result() raises the exception of `check_files`, if any.
    """
    future: Future[None] = Future()

    def check() -> None:
        try:
            check_files(folder, config.sha256)
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)

    Thread(target=check, name="nmt-checking", daemon=True).start()
    return future


def checked_recipe(folder: Path, config: ModelConfig, checked: Future[None] | None = None) -> Recipe:
    """Return the recipe of a model folder whose files are complete.

    `checked` is the future of `checking`; without it the files are checked here.

    Raises ModelError.
    """
    from ..recipe import Recipe

    try:
        checked.result() if checked else check_files(folder, config.sha256)
        return Recipe.from_dict(config.recipe, f"{str(folder / CONFIG)!r}")
    except NmtError as error:
        raise ModelError(str(error)) from None


def models_folder() -> Path:
    """Return the folder of the models that have names: $NMT_MODELS, by default nmt/models among the user's data."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(os.environ.get("NMT_MODELS") or Path(data, "nmt", "models"))


def named_model(path: Path) -> Path:
    """Return the path of the model of that name in `models_folder` if there is nothing at `path`, else `path`."""
    named = models_folder() / path
    return named if path.name == str(path) and not os.path.lexists(path) and os.path.lexists(named) else path


def find_model(path: Path) -> Path:
    """Return the model folder at `path`, or of that name (`named_model`).

    For a run folder, return its averaged model, else its best, else its last checkpoint.

    Warn if the average is older than the last checkpoint. Raises ModelError when there is no model, and when the first
    of these exists and is damaged: another one would translate differently.
    """
    path = named_model(path)
    if os.path.lexists(path / CONFIG):
        return path
    present = [choice for choice in CHOICES if os.path.lexists(path / choice)]
    for choice in present:
        if not os.path.lexists(path / choice / CONFIG):
            others = [str(path / other) for other in present if other != choice]
            raise ModelError(
                f"{str(path)!r} holds no model that can be used: {choice!r} in it lacks {CONFIG}. Restore it from a "
                f"copy, or remove it{''.join(f', or name {other!r}' for other in others)}."
            )
        if not (choice == AVERAGED and _is_worse(path)):
            return path / choice
    if not path.exists():
        named = f" (nor at {str(models_folder() / path)!r})" * (path.name == str(path))
        raise ModelError(
            f"no model at {str(path)!r}{named}. Train one (`nmt train`), fetch a published one, such as "
            "`nmt models get en-de`, or name a model or run folder with --model."
        )
    raise ModelError(
        f"{str(path)!r} holds no model: neither {CONFIG} nor any of {', '.join(CHOICES)} is in it. Name a model "
        f"folder or a run folder."
    )


def _is_worse(run: Path) -> bool:
    """Return whether the run's average is worse than a checkpoint that the run has instead: an older version wrote
    such an average, with the key `worse_than`. Warn of an old average.

    `training.averaging` describes the keys of metrics.json. Without `last_checkpoint`, as an older version wrote it,
    the newest averaged checkpoint counts.
    """
    average, metrics = run / AVERAGED, read_metrics(run / AVERAGED)
    others = [run / choice for choice in CHOICES[1:] if (run / choice / CONFIG).is_file()]
    if others and "worse_than" in metrics:
        return True
    averaged = metrics.get("averaged")
    made_after = max(
        [str(metrics.get("last_checkpoint", "")), *(averaged if isinstance(averaged, list) else [])], key=_update
    )
    last = (run / LAST).resolve().name
    if 0 <= _update(made_after) < _update(last):
        console.warn_once(
            f"{average} is older than the run's last checkpoint: it was made after {made_after}, and the last is "
            f"{last}. Run `nmt average {shlex.quote(str(run))}` again, or name {run / LAST}."
        )
    return False


def _update(checkpoint: str) -> int:
    """Return the update in a checkpoint's name; -1 for another name."""
    step = re.fullmatch(r"step-(\d{1,18})", checkpoint)
    return int(step[1]) if step else -1
