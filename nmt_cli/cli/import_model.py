"""`nmt import`: write a model of another toolkit as a model folder, verified to be equal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..console import say, say_next, warn
from ..registry import IMPORTERS
from .arguments import argument, option, output_path
from .export import verified

if TYPE_CHECKING:
    from ..exchange.importing import Imported


def import_model(
    source: Annotated[
        Path,
        argument("An OPUS-MT zip or folder, a Marian .npz or .bin in fp32, or a folder of Hugging Face.", "SOURCE"),
    ],
    out: Annotated[
        Path,
        option(
            "Model folder to write: a new one, or an earlier result.", "DIR", names=("--out", "-o"), parser=output_path
        ),
    ],
    importer: Annotated[
        str,
        option(
            f"What SOURCE is: {', '.join(IMPORTERS)}.  [default: recognised]",
            "NAME",
            names=("--from",),
            show_default=False,
        ),
    ] = "",
    source_language: Annotated[
        str, option("Such as en.  [default: what the files say]", "CODE", show_default=False)
    ] = "",
    target_language: Annotated[
        str, option("Such as de.  [default: what the files say]", "CODE", show_default=False)
    ] = "",
    positions: Annotated[
        str,
        option(
            "For Hugging Face: marian, as the model was trained, or huggingface, as transformers computes it.  "
            "[default: marian]",
            "NAME",
            show_default=False,
        ),
    ] = "",
    safe_length: Annotated[
        int,
        option(
            "Lines of several sentences are translated in parts from N tokens on; 0: not known, counts as 64.",
            "N",
            min=0,
            max=1_000_000,
        ),
    ] = 0,
    skip_step: Annotated[
        list[str] | None,
        option("Leave out this program of preprocess.sh (repeatable); translations suffer where it matters.", "NAME"),
    ] = None,
    text: Annotated[
        Path | None,
        option("Also compare on these lines, at most the first 1,000 (plain, .gz, .xz, .bz2, .zst).", "FILE"),
    ] = None,
) -> None:
    """Convert a model of another toolkit, verified to be equal.

    If the two differ on test sentences, nothing is written, and the exit code is 1. docs/models.md says what can be
    imported.
    """
    from ..interface import commands

    done = commands.import_model(
        source,
        out,
        importer=importer,
        source_language=source_language,
        target_language=target_language,
        positions=positions,
        safe_length=safe_length,
        skip_step=skip_step or (),
        text=text,
    )
    for remark in done.model.remarks:
        warn(remark)
    for line in _described(done):
        say(line)
    say(verified(done.verification))
    say(f"both tokenizers divide {done.lines:,} made-up lines of several scripts equally")
    more = ["--target-language", done.model.tags[0]] if len(done.model.tags) > 1 else []
    say_next("nmt", "translate", "--model", out, *more, end=" < input")


def _described(done: Imported) -> list[str]:
    """Return lines that say what the imported model is."""
    data, model, decode = done.recipe.data, done.recipe.model, done.recipe.decode
    into = (
        ", ".join(done.model.tags[:20]) + " …" * (len(done.model.tags) > 20)
        if done.model.tags
        else data.target_language
    )
    tokens = " + ".join(f"{size:,}" for size in dict.fromkeys(done.model.vocabularies))
    penalty = "" if decode.length_penalty == "none" else f", score / length^{decode.alpha:g}"
    return [
        f"wrote {done.path}: a model of {done.model.toolkit}, {data.source_language} to {into}",
        f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, {tokens} tokens, "
        f"{done.parameters:,} parameters, fp32; beam {decode.beam}{penalty}",
        f"licence: {done.model.license or 'its files name none: ask its makers'}",
        f"lines of several sentences are translated in parts from {done.safe_length} tokens on (--safe-length)",
    ]
