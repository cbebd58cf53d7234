"""A model folder into another library's folder, and the proof that the two are equal.

    load ──▶ check that the target can express it ──▶ write aside, flush, rename ──▶ load it as a user does ──▶ prove

To add a target: a module with `check`, `write` and `read` (see `target`), and a line in TARGETS.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from ..data.tokenizer import Vocabulary
from ..errors import ModelError, UsageError, write_failed
from ..files import system_error
from ..model.folder import load_model
from ..output_paths import check_output_folder, output_folder
from . import ctranslate2, huggingface
from .sentences import sentences
from .target import Target, Trained
from .verification import Proof, prove

TARGETS: dict[str, Target] = {"ctranslate2": ctranslate2, "huggingface": huggingface}
WHAT = "the export"


def _not_free(_: Path) -> str:
    """An export is not told from what its users made of it: it is never replaced."""
    return "it is not empty"


@dataclass(frozen=True)
class Exported:
    """What was made, and how it was proven."""

    trained: Trained
    proof: Proof


def export(model: Path, to: str, out: Path, text: Path | None = None) -> Exported:
    """Write the model folder `model` to `out` for the library `to`, and prove it, on the lines of `text` too.

    Raises UsageError for an unknown target, a folder that holds something, or a library that is not installed,
    ModelError for a model that the target cannot express, and for an export that turned out not to be equal; that one
    is left where it is.
    """
    target = target_of(to)
    check_output_folder(out, WHAT, _not_free, [model])
    loaded = load_model(model)
    trained = Trained(loaded.model, loaded.recipe, Vocabulary.load(model, loaded.config.vocabularies))
    target.check(trained)
    texts = sentences(trained, text)
    try:
        with output_folder(out, WHAT, _not_free, [model], ModelError) as aside:
            target.write(trained, aside)
    except SafetensorError as error:
        raise write_failed(system_error(error), out, WHAT, ModelError) from None
    return Exported(trained, prove(trained, target.read(out), texts, out))


def target_of(name: str) -> Target:
    """The target called `name`. Raises UsageError with the nearest name."""
    if name in TARGETS:
        return TARGETS[name]
    near = difflib.get_close_matches(name, TARGETS, n=1, cutoff=0.4)
    raise UsageError(f"--to {name!r}: expected {' or '.join(TARGETS)}.{f' Did you mean {near[0]!r}?' if near else ''}")
