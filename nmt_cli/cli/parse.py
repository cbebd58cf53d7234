"""`nmt parse`: sentences in, bracketed trees out, line by line.

line ──▶ interface.parsing: words ──▶ translator ──▶ interface.parsing: tree ──▶ translate_output writes it in brackets
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..console import say, warn
from ..interface.loading import models_named
from ..interface.options import TranslateKeywords
from ..recipe import DecodeOptions
from .arguments import (
    DEFAULT_MODEL,
    DecodeOverrides,
    Device,
    Devices,
    InputFile,
    OutputFile,
    Precision,
    model_option,
    option,
)
from .translate_input import read_requests
from .translate_output import write_windows, writing
from .typed_options import options_of

if TYPE_CHECKING:
    from ..translation.line import Translation

WHAT = "the trees"


@options_of(DecodeOptions, "beam", "batch_tokens")
def parse(
    *,
    model: Annotated[
        list[Path] | None,
        model_option(
            "Folder of a model or run, trained with data.terminals in its recipe. Repeat it for an ensemble "
            f"of models with the same vocabulary.{DEFAULT_MODEL}"
        ),
    ] = None,
    input_file: InputFile = None,
    output_file: OutputFile = None,
    tokenized: Annotated[
        bool,
        option(
            "Words are separated by spaces already, as in .words of nmt data trees. Without it the package "
            "nltk separates them.",
            names=("--tokenized",),
        ),
    ] = False,
    options: DecodeOptions,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    precision: Precision = "auto",
) -> None:
    """Parse sentences: N lines in, N trees out, in order.

    The model is a parser. Without --tokenized, words are separated as in the Penn Treebank. docs/parsing.md has the
    format.
    """
    from ..interface.parsing import Parses, terminals_of, treebank_words
    from ..interface.translator import load
    from ..model.folder_files import find_model
    from ..storage.output_paths import check_output_file
    from .inputs import say_model, typed_at_terminal

    models = models_named(model)
    terminals = terminals_of(find_model(models[0]))
    split = None if tokenized else treebank_words()
    if output_file:
        check_output_file(
            output_file, WHAT, [path for path in (input_file,) if path] + [find_model(path) for path in models]
        )
    translator = load(models, device=device, devices=devices, precision=precision, chosen=say_model)
    chosen = TranslateKeywords(beam=options["beam"], batch_tokens=options["batch_tokens"], overrides=overrides or [])
    parses = Parses(translator.with_options(chosen), terminals, split)
    replaced: Counter[str] = Counter()
    trees = repaired = 0

    def tree(index: int, result: Translation) -> str:
        nonlocal trees, repaired
        parse = parses.parse(result)
        if parse.too_long:
            warn(f"line {index + 1:,} is too long for the model: {parse.too_long}. Its tree is flat.")
        trees, repaired = trees + bool(parse.words), repaired + parse.repaired
        return str(parse)

    lines = parses.sentences(read_requests(input_file, replaced))
    prompt = "one sentence per line, end with Ctrl-D" if typed_at_terminal(input_file) else ""
    with writing(output_file, WHAT) as sink:
        write_windows(parses.translator.windows(lines), sink, tree, replaced, "parsing", prompt)
    if repaired:
        say(f"{repaired:,} of {trees:,} trees were repaired: the model's output was not a tree of the sentence.")
