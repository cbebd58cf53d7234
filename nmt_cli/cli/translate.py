"""`nmt translate`: translate text line by line.

Translations go to stdout (or --output), remarks to stderr. N lines in, N lines out, as soon as they are ready.
`interface.Translator` translates, `translate_output` has the output formats and writes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from ..interface.loading import models_named
from ..interface.options import TranslateKeywords
from ..recipe import DecodeOptions
from .arguments import (
    DEFAULT_MODEL,
    MODEL_FOLDER,
    DecodeOverrides,
    Device,
    Devices,
    InputFile,
    OutputFile,
    Precision,
    model_option,
)
from .resumed import Resume, Resumed
from .translate_document import check_document, translate_document
from .translate_input import LineRules, read_requests
from .translate_output import OutputForm, write_windows, writing
from .typed_options import options_of

WHAT = "the translation"


@options_of(OutputForm, into="form")
@options_of(DecodeOptions)
@options_of(LineRules, into="rules")
def translate(
    *,
    model: Annotated[
        list[Path] | None,
        model_option(
            f"{MODEL_FOLDER}. Repeat it for an ensemble of models with the same vocabulary; options come from the "
            f"first one's recipe.{DEFAULT_MODEL}"
        ),
    ] = None,
    input_file: InputFile = None,
    output_file: OutputFile = None,
    form: OutputForm,
    options: DecodeOptions,
    rules: LineRules,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    precision: Precision = "auto",
    resume: Resume = False,
) -> None:
    """Translate text: N lines in, N lines out, in order.

    Each is printed as soon as it is ready. With --format, a document is translated. docs/translating.md describes
    outputs, searches and constraints.
    """
    from ..interface.translator import load
    from ..model.folder_files import find_model
    from ..storage.output_paths import check_output_file
    from .inputs import say_model, typed_at_terminal

    check_document(form, rules)
    chosen = TranslateKeywords(**options, **form.keywords(), **rules.keywords(), overrides=overrides or [])
    models = models_named(model)
    if output_file:
        inputs = [path for path in (input_file, *rules.files, form.calibration) if path]
        check_output_file(output_file, WHAT, [*inputs, *map(find_model, models)])
    resumed = Resumed([input_file], output_file) if resume else None
    translator = load(models, device=device, devices=devices, precision=precision, chosen=say_model, wait=False)
    if resumed and resumed.is_whole(translator.stored, precision, {**chosen, **vars(form), **vars(rules)}):
        return
    if form.document_format:
        text = translate_document(translator, input_file, form.document_format, form.split_sentences, chosen)
        with writing(output_file, WHAT) as sink:
            sink.write(text.encode("utf-8"))
        if resumed:
            resumed.record(text.count("\n"))
        return
    pair = f"{translator.source_language} → {options['target_language'] or translator.target_language}"
    replaced, lacking = Counter[str](), Counter[str]()
    windows = translator.windows(read_requests(input_file, replaced, rules), chosen, lacking)
    with writing(output_file, WHAT) as sink:
        prompt = f"{pair}, end with Ctrl-D" if typed_at_terminal(input_file) else ""
        lines = write_windows(windows, sink, form.of_line, replaced, "translating", prompt)
    if resumed:
        resumed.record(lines)
    translator.stored.tags.warn(lacking)
