"""`nmt import`: write a model of another toolkit as a model folder, verified to be equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import say, say_next, warn
from ..errors import listed
from ..interface import commands
from ..registry import IMPORTERS
from .arguments import VerifiedText, argument, option, out_option
from .export import verified
from .typed_options import Given, options_from

if TYPE_CHECKING:
    from ..exchange.importing import Imported


@options_from(
    commands.import_model,
    source=argument(
        "A model of OPUS-MT, Marian (.npz, .bin), Firefox, Hugging Face (MarianMT), CTranslate2 or Argos Translate: "
        "a folder, zip, tar or file.",
        "SOURCE",
    ),
    out=out_option("Model folder to write: a new one, or an earlier result."),
    importer=option(f"What SOURCE is: {', '.join(IMPORTERS)}.  [default: recognised]", "NAME", names=("--from",)),
    source_language=option("Such as en.  [default: what the files say]", "CODE"),
    target_language=option("Such as de.  [default: what the files say]", "CODE"),
    positions=option(
        "For Hugging Face: marian, as the model was trained, or huggingface, as transformers computes it.  "
        "[default: marian]",
        "NAME",
    ),
    safe_length=option(
        "Lines of several sentences are translated in parts from N tokens on; 0: not known, counts as 64.",
        "N",
        min=0,
        max=1_000_000,
    ),
    skip_step=option(
        "Leave out this program of preprocess.sh (repeatable); translations suffer where it matters.", "NAME"
    ),
    license=option("Licence of the model, for the card, if the files name none.", "NAME"),
    text=VerifiedText,
)
def import_model(options: Given) -> None:
    """Convert a model of another toolkit, verified to be equal.

    If the two differ on test sentences, nothing is written, and the exit code is 1. docs/models.md says what can be
    imported.
    """
    done = commands.import_model(**options)
    say_imported(done, [one.path for one in (done, *done.others)])


def say_imported(done: Imported, models: Sequence[Path | str]) -> None:
    """Print what was imported, and the command that translates with it as these --model."""
    every = (done, *done.others)
    for remark in dict.fromkeys(remark for one in every for remark in one.model.remarks):
        warn(remark)
    if done.others:
        warn(
            f"they are an ensemble of {len(every)} models: {done.model.toolkit} adds up their log-probabilities, nmt "
            "averages their probabilities, so translations may differ"
        )
    for one in every:
        for line in _described(one):
            say(line)
        say(verified(one.verification))
        say(f"both tokenizers divide {one.verification.lines:,} made-up lines of several scripts equally")
    more = ["--target-language", done.model.tags[0]] if len(done.model.tags) > 1 else []
    say_next("nmt", "translate", *(word for model in models for word in ("--model", model)), *more, end=" < input")


def _described(done: Imported) -> list[str]:

    data, model, decode = done.recipe.data, done.recipe.model, done.recipe.decode
    into = listed(done.model.tags, 20) if done.model.tags else data.target_language
    tokens = " + ".join(f"{size:,}" for size in dict.fromkeys(done.model.vocabularies))
    penalty = "" if decode.length_penalty == "none" else f", score / length^{decode.alpha:g}"
    words = f", word penalty {decode.word_penalty:g}" if decode.word_penalty else ""
    return [
        f"wrote {done.path}: a model of {done.model.toolkit}, {data.source_language} to {into}",
        f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, {tokens} tokens, "
        f"{done.parameters:,} parameters, {'int8' if done.model.integers else 'fp32'}; "
        f"beam {decode.beam}{words}{penalty}",
        f"licence: {done.model.license or 'its files name none: ask its makers'}",
        f"lines of several sentences are translated in parts from {done.safe_length} tokens on (--safe-length)",
    ]
