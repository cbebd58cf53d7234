"""`nmt translate`: translate text line by line.

Translations go to stdout (or --output), remarks to stderr. N lines in, N lines out, as soon as they are ready. `interface`
loads the models and chooses the search, `formats` has the output formats, `translate_output` writes the translations.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

from ..bounds import NUMBERS
from ..errors import UsageError
from ..interface.loading import check_precision, models_named, recipe_search
from ..interface.options import TranslateOptions, choose
from . import translate_options as options
from .arguments import SEARCH, Alpha, BeamSize, DecodeOverrides, Device, MinLength, option, output_path
from .completion import runs
from .translate_document import check_format, translate_document, write_document
from .translate_input import InputFormat, read_requests
from .translate_options import entries
from .translate_output import translate_lines, writing

WHAT = "the translation"


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
    input_file: Annotated[
        Path | None,
        option("Read from FILE (plain, .gz, .xz, .bz2, .zst) instead of stdin.", "FILE", names=("--input", "-i")),
    ] = None,
    output_file: Annotated[
        Path | None,
        option(
            "Write to FILE instead of stdout. FILE appears when everything is translated; an existing file "
            "is replaced and keeps its mode. A device or pipe is written to directly. A name that ends in "
            ".gz, .xz, .bz2 or .zst compresses the text.",
            "FILE",
            names=("--output", "-o"),
            parser=output_path,
        ),
    ] = None,
    document_format: options.DocumentFormat = None,
    split_sentences: options.SplitSentences = None,
    nbest: Annotated[
        int,
        option(
            "Print the N best of each line, or N samples: INDEX ||| TRANSLATION ||| SCORE.",
            "N",
            options.FORMAT,
            min=NUMBERS["nbest"].least,
            max=NUMBERS["nbest"].most,
        ),
    ] = 1,
    scores: Annotated[
        bool, option("Print SCORE, a tab, the translation.", heading=options.FORMAT, names=("--scores",))
    ] = False,
    as_json: Annotated[
        bool,
        option(
            "Print one JSON object per line: source, translation, score, log_prob, tokens, nbest.",
            heading=options.FORMAT,
            names=("--json",),
        ),
    ] = False,
    alignment: Annotated[
        bool,
        option(
            "With --json: also source_tokens, and alignment: for each token of the translation the source "
            "token with the most attention.",
            heading=options.FORMAT,
            names=("--alignment",),
        ),
    ] = False,
    confidence: Annotated[
        bool,
        option(
            "With --json: also words, the probability of each word, and quality, an estimate of chrF / 100 "
            "for each line, 0 to 1.",
            heading=options.FORMAT,
            names=("--confidence",),
        ),
    ] = False,
    calibration: Annotated[
        Path | None,
        option(
            "With --confidence: estimate quality by FILE, which nmt calibrate wrote.  [default: one fitted "
            "on a small model]",
            "FILE",
            options.FORMAT,
        ),
    ] = None,
    search: options.SearchName = None,
    beam: BeamSize = None,
    length_penalty: options.LengthPenalty = None,
    alpha: Alpha = None,
    coverage_penalty: options.CoveragePenalty = None,
    max_extra: Annotated[
        int | None,
        option(
            "Longest output: tokens of the line, and of its prefix and terms, plus N.  [default: the recipe's, 50]",
            "N",
            SEARCH,
        ),
    ] = None,
    max_len_ratio: options.MaxLenRatio = None,
    min_length: MinLength = None,
    diverse_groups: options.DiverseGroups = None,
    diversity_penalty: options.DiversityPenalty = None,
    sample: options.Sample = False,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    mbr_samples: options.MbrSamples = None,
    mbr_utility: options.MbrUtility = None,
    mbr_candidates: options.MbrCandidates = None,
    prefix_column: options.PrefixColumn = False,
    prefix_file: options.PrefixFile = None,
    terms: options.Terms = None,
    terms_columns: options.TermsColumns = False,
    banned_words: options.BannedWords = None,
    outputs: options.Outputs = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    repetition_penalty: options.RepetitionPenalty = None,
    overrides: DecodeOverrides = None,
    batch_tokens: options.BatchTokens = None,
    device: Device = "auto",
    devices: options.Devices = None,
    precision: options.Precision = "auto",
) -> None:
    """Translate lines of text: N lines in, N lines out, in order, as soon as they are ready. With --format, translate a document.

    A line ends at \\n only. Blank lines stay empty; a line that is too long for the model is translated in parts. The
    translation of a line depends only on the line, the model and the options. Output is flushed whenever all
    lines that were read are translated.

    Beam search ranks outputs Y by  score = log P(Y) / lp(Y),  lp(Y) = ((5 + |Y|) / 6) ^ alpha,  where |Y| counts the
    output's tokens and its end symbol. Scores are at most 0; nearer to 0 is better. A blank line scores 0. With
    --length-penalty average lp(Y) = |Y|, with none 1. With --search mbr the score is the expected utility, 0 to 100.

    --nbest N prints up to N lines for each input line, best first; INDEX counts input lines from 0. --nbest is at most
    --beam, or --mbr-samples. With --sample they are N independent samples, so two may be equal; the same line and seed
    give the same samples.

    --json prints one object per line, whatever N is: source, translation, score, log_prob (natural), tokens (the
    translation's subwords), and nbest, a list of objects: translation, score, log_prob, tokens. With --alignment also
    source_tokens and alignment, a list of pairs [I, J]: token J of the translation is aligned to source token I,
    both counted from 0. A token that is aligned to the source's end symbol has no pair. For an ensemble the alignment is
    the first model's.

    With --confidence each object, also in nbest, has words, a list of objects: word, probability (the product over its
    subwords), and quality, an estimate of sentence chrF / 100 from the model's own probabilities; for a blank line null.

    With --format the whole input is one document, of sentences in paragraphs. White space, tags, code, URLs and placeholders such
    as {name} come back as they are; tags enclose the translations of the words that they enclosed.
    """
    from ..hardware import keep_freed_memory
    from ..interface.translator import calibration_of
    from ..model.contents import find_model
    from ..output_paths import check_output_file

    input_format = InputFormat(input_file, prefix_column, prefix_file, terms_columns, terms)
    _check_usage(precision, alignment and not as_json, confidence and not as_json)
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
    calibrated = calibration_of(confidence, calibration)
    chosen = TranslateOptions(
        nbest=nbest,
        search=search,
        beam=beam,
        length_penalty=length_penalty,
        alpha=alpha,
        coverage_penalty=coverage_penalty,
        max_extra=max_extra,
        max_len_ratio=max_len_ratio,
        min_length=min_length,
        diverse_groups=diverse_groups,
        diversity_penalty=diversity_penalty,
        sample=sample,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        temperature=temperature,
        seed=seed,
        mbr_samples=mbr_samples,
        mbr_utility=mbr_utility,
        mbr_candidates=mbr_candidates,
        terms=input_format.terms,
        banned_words=entries(banned_words, "words or phrases"),
        outputs=entries(outputs, "translations"),
        no_repeat_ngram=no_repeat_ngram,
        repetition_penalty=repetition_penalty,
        overrides=overrides or [],
        batch_tokens=batch_tokens,
    )
    choice = choose(chosen, recipe_search(models_named(model)))

    if output_file:
        inputs = [path for path in (*input_format.paths, banned_words, outputs, calibration) if path] + [
            find_model(path) for path in models_named(model)
        ]
        check_output_file(output_file, WHAT, inputs)

    from ..interface.loading import load
    from . import formats as forms
    from .inputs import say_model, typed_at_terminal

    keep_freed_memory()
    plain = choice.is_plain and not (prefix_column or prefix_file)
    loaded = load(
        models_named(model),
        choice.changes,
        nbest=nbest,
        device=device,
        devices=devices,
        precision=precision,
        chosen=say_model,
    )
    if document_format:
        text = translate_document(loaded, choice, plain, precision, input_file, document_format, split_sentences)
        with writing(output_file, WHAT) as sink:
            write_document(text, sink)
        return
    translator = loaded.translator(
        nbest=nbest,
        precision=precision,
        plain=plain,
        sampling=choice.sampling,
        mbr=choice.mbr,
        constraints=choice.constraints,
        align=alignment,
        token_log_probs=confidence,
    )
    data = loaded.recipe.data
    prompt = (
        f"{data.source_language} → {data.target_language}, end with Ctrl-D" if typed_at_terminal(input_file) else ""
    )
    replaced: Counter[str] = Counter()
    lines = read_requests(input_format, replaced)
    form = (
        partial(forms.json_object, calibration=calibrated)
        if as_json
        else forms.moses
        if nbest > 1
        else forms.scored
        if scores
        else forms.plain
    )
    with writing(output_file, WHAT) as sink:
        translate_lines(translator, lines, sink, form, replaced, "translating", prompt)


def _check_usage(precision: str, alignment_alone: bool, confidence_alone: bool) -> None:
    check_precision(precision)
    if alignment_alone:
        raise UsageError("--alignment needs --json, the only format with an alignment.")
    if confidence_alone:
        raise UsageError("--confidence needs --json, the only format with words and their probabilities.")
