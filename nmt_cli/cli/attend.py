"""`nmt attend`: translate a sentence and plot the attention of every head.

The translation goes to stdout, remarks to stderr, plots into files. The plotted weights come from one fp32 pass over
the sentence and its translation (`translation.attention_maps`), whatever the precision of the search.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..console import on_terminal, say
from ..errors import UsageError
from ..interface.attention import attend as attended
from ..recipe import DecodeOptions
from ..text.lines import decode_line, iter_lines
from . import output
from .arguments import (
    DEFAULT_MODEL,
    MODEL_FOLDER,
    DecodeOverrides,
    Device,
    argument,
    model_option,
    option,
    out_option,
    output_path,
)
from .inputs import open_input, say_model
from .typed_options import Given, options_from, options_of

if TYPE_CHECKING:
    from ..translation.attention_maps import AttentionRecord

OUT = Path("attention.html")


@options_from(
    attended,
    model=model_option(f"{MODEL_FOLDER}.{DEFAULT_MODEL}"),
    out=out_option("HTML page to write.  [default: attention.html; none with --png or --json]", "FILE"),
    png=option(
        "Also write pictures: into DIR one per kind; into FILE.png one, of cross-attention or of --kind. "
        "Needs matplotlib.",
        "FILE|DIR",
        parser=output_path,
    ),
    target=option("Use this translation instead of searching for one.", "TEXT"),
    kind=option("Only this kind of attention: encoder, decoder or cross.  [default: all three]", "KIND"),
    layer=option("Only this layer, counted from 1.  [default: all]", "N"),
    head=option("Only this head, counted from 1.  [default: all]", "N"),
)
@options_of(DecodeOptions, "target_language", "beam", "alpha", "max_extra", "min_length", into="search")
@options_from(
    attended,
    into="machine",
    overrides=DecodeOverrides,
    device=Device,
    precision=option(
        "Precision of the search: fp32, bf16, fp16, int8 or auto (the fastest on this hardware). The "
        "plotted weights are always fp32.",
        "P",
    ),
)
def attend(
    *,
    sentence: Annotated[
        list[str] | None, argument("The sentence, in quotes.  [default: one line from stdin]", "SENTENCE")
    ] = None,
    options: Given,
    as_json: Annotated[
        bool, option("Print a JSON object with all weights instead of the translation.", names=("--json",))
    ] = False,
    search: Given,
    machine: Given,
) -> None:
    """Show the attention of every head, as a page for the browser.

    It translates a sentence and plots the attention between its words, by layer and head. The page needs no network and
    no other file.
    """
    if "target" in options:
        options["target"] = _valid(options["target"])
    if not (as_json or "png" in options):
        options.setdefault("out", OUT)
    seen = attended(_sentence(sentence or []), **options, **search, **machine, chosen=say_model)
    for file in seen.files:
        say(f"wrote {file}{': open it in a browser' * (file == options.get('out'))}")
    output.write(_json(seen.record) if as_json else seen.record.translation)


def _sentence(sentences: list[str]) -> str:
    """Return the sentence from the arguments, or from stdin if there are none. Raises UsageError."""
    if len(sentences) > 1:
        raise UsageError(
            f"{len(sentences)} sentences were given, the second is {sentences[1]!r}: a page shows one. Put "
            "quotes around the words of a sentence."
        )
    if sentences:
        return _valid(sentences[0])
    lines: list[str] = []
    with open_input(None) as stream:
        typed = sys.stdin.isatty()
        if typed and on_terminal():
            say("type a sentence:")
        for raw in iter_lines(stream):
            lines.append(decode_line(raw)[0])
            if typed or (len(lines) > 1 and lines[-1].strip()):
                break
    return "\n".join(lines)


def _valid(argument: str) -> str:
    """Return an argument in which U+FFFD replaces bytes that are not UTF-8, as in lines of a file."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _json(seen: AttentionRecord) -> str:
    views = [{**vars(view), "weights": view.weights.astype(float).round(9).tolist()} for view in seen.views]
    values = {"source": seen.source, "translation": seen.translation, "score": seen.score, "log_prob": seen.log_prob}
    return json.dumps({**values, "attention": views}, ensure_ascii=False)
