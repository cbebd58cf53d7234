"""`nmt translate`: translate text line by line.

Translations go to stdout (or --output), remarks to stderr. N lines in, N lines out, as soon as they are ready.
`interface.Translator` translates, `translate_output` has the output formats and writes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from ..bounds import NUMBERS
from ..errors import UsageError
from ..interface.loading import models_named
from ..interface.options import TranslateKeywords
from ..recipe import RULES, DecodeOptions
from ..registry import FORMATS
from .arguments import DecodeOverrides, Device, Devices, InputFile, OutputFile, Precision, option
from .completion import runs
from .inputs import entries
from .translate_document import check_format, translate_document
from .translate_input import InputFormat, read_requests
from .translate_output import json_object, moses, plain_text, scored, write_windows, writing
from .typed_options import options_of

WHAT = "the translation"
FORMAT = "Output format"
"""A heading in --help."""


@options_of(DecodeOptions)
def translate(
    model: Annotated[
        list[Path] | None,
        option(
            "Model folder, or run folder (its averaged model, else the best, else the last). Repeat it for "
            "an ensemble of models with the same vocabulary; options come from the first one's recipe.  [env "
            "var: NMT_MODEL; default: runs/latest]",
            "DIR",
            names=("--model", "-m"),
            autocompletion=runs,
        ),
    ] = None,
    input_file: InputFile = None,
    output_file: OutputFile = None,
    document_format: Annotated[
        str | None,
        option(
            f"{', '.join(FORMATS)}: translate the whole input as one document of this format, instead of line by line.",
            "NAME",
            FORMAT,
            names=("--format",),
        ),
    ] = None,
    split_sentences: Annotated[
        str | None,
        option(
            "With --format: a sentence ends at punctuation and line ends (1), at punctuation (nonewlines), "
            "or where the paragraph does (0).  [default: 1 for text, else nonewlines]",
            "HOW",
            FORMAT,
        ),
    ] = None,
    nbest: Annotated[
        int,
        option(
            "Print the N best of each line, or N samples: INDEX ||| TRANSLATION ||| SCORE.",
            "N",
            FORMAT,
            min=NUMBERS["nbest"].least,
            max=NUMBERS["nbest"].most,
        ),
    ] = 1,
    scores: Annotated[
        bool, option("Print SCORE, a tab, the translation.", heading=FORMAT, names=("--scores",))
    ] = False,
    as_json: Annotated[
        bool,
        option(
            "Print one JSON object per line: source, translation, score, log_prob, tokens, nbest.",
            heading=FORMAT,
            names=("--json",),
        ),
    ] = False,
    alignment: Annotated[
        bool,
        option(
            "With --json: also source_tokens, and alignment: for each token of the translation the source "
            "token with the most attention.",
            heading=FORMAT,
            names=("--alignment",),
        ),
    ] = False,
    confidence: Annotated[
        bool,
        option(
            "With --json: also words, the probability of each word, and quality, an estimate of chrF / 100 "
            "for each line, 0 to 1.",
            heading=FORMAT,
            names=("--confidence",),
        ),
    ] = False,
    calibration: Annotated[
        Path | None,
        option(
            "With --confidence: estimate quality by FILE, which nmt calibrate wrote.  [default: one fitted "
            "on a small model]",
            "FILE",
            FORMAT,
        ),
    ] = None,
    options: DecodeOptions = {},  # noqa: B006  # it is replaced by its options
    prefix_column: Annotated[
        bool,
        option(
            "Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a "
            "tab or PREFIX has no constraint.",
            heading=RULES,
            names=("--prefix-column",),
        ),
    ] = False,
    prefix_file: Annotated[
        Path | None,
        option(
            "Prefixes that the translations begin with, line by line parallel to the input; an empty line is "
            "no constraint.",
            "FILE",
            RULES,
        ),
    ] = None,
    terms: Annotated[
        Path | None,
        option(
            "Words and phrases that the translations must contain, line by line parallel to the input, "
            "separated by tabs. A|B: one of several; A*: the word may go on.",
            "FILE",
            RULES,
        ),
    ] = None,
    terms_columns: Annotated[
        bool,
        option(
            "Each input line is SOURCE, a tab, terms as in FILE of --terms; with --prefix-column, SOURCE, "
            "PREFIX, terms.",
            heading=RULES,
            names=("--terms-columns",),
        ),
    ] = False,
    banned_words: Annotated[
        Path | None, option("Words and phrases, one per line, that no translation may contain.", "FILE", RULES)
    ] = None,
    outputs: Annotated[
        Path | None,
        option("All translations that are allowed, one per line: the best of them is printed.", "FILE", RULES),
    ] = None,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    precision: Precision = "auto",
) -> None:
    """Translate text: N lines in, N lines out, in order.

    Each is printed as soon as it is ready. With --format, a document is translated. docs/translating.md describes
    outputs, searches and constraints.
    """
    from ..interface.translator import load
    from ..model.folder_files import find_model
    from ..output_paths import check_output_file
    from .inputs import say_model, typed_at_terminal

    input_format = InputFormat(input_file, prefix_column, prefix_file, terms_columns, terms)
    _check_usage(alignment and not as_json, confidence and not as_json)
    lines_only = {
        "--nbest": nbest > 1,
        "--scores": scores,
        "--json": as_json,
        "--prefix-column": prefix_column,
        "--prefix-file": prefix_file is not None,
        "--terms": terms is not None,
        "--terms-columns": terms_columns,
    }
    check_format(document_format, split_sentences, lines_only)
    chosen = TranslateKeywords(
        **options,
        nbest=nbest,
        alignment=alignment,
        confidence=confidence,
        calibration=calibration,
        terms=input_format.terms,
        banned_words=entries(banned_words, "words or phrases"),
        outputs=entries(outputs, "translations"),
        overrides=overrides or [],
    )
    models = models_named(model)
    if output_file:
        inputs = [path for path in (*input_format.paths, banned_words, outputs, calibration) if path]
        check_output_file(output_file, WHAT, [*inputs, *map(find_model, models)])
    translator = load(models, device=device, devices=devices, precision=precision, chosen=say_model)
    if document_format:
        text = translate_document(translator, input_file, document_format, split_sentences, chosen)
        with writing(output_file, WHAT) as sink:
            sink.write(text.encode("utf-8"))
        return
    pair = f"{translator.source_language} → {options['target_language'] or translator.target_language}"
    replaced, lacking = Counter[str](), Counter[str]()
    form = json_object if as_json else moses if nbest > 1 else scored if scores else plain_text
    windows = translator.windows(read_requests(input_format, replaced), chosen, lacking)
    with writing(output_file, WHAT) as sink:
        prompt = f"{pair}, end with Ctrl-D" if typed_at_terminal(input_file) else ""
        write_windows(windows, sink, form, replaced, "translating", prompt)
    translator.stored.tags.warn(lacking)


def _check_usage(alignment_alone: bool, confidence_alone: bool) -> None:
    if alignment_alone:
        raise UsageError("--alignment needs --json, the only format with an alignment.")
    if confidence_alone:
        raise UsageError("--confidence needs --json, the only format with words and their probabilities.")
