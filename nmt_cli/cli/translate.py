"""`nmt translate`: translate text line by line.

Translations go to stdout (or --output), remarks to stderr. N lines in, N lines out, as soon as they are ready. `loading`
loads the models, `formats` has the output formats.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import console
from ..errors import UsageError
from . import output
from .arguments import Alpha, BeamSize, DecodeOverrides, Device, MinLength, output_path
from .loading import check_precision, decode_changes, models_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from ..decoding.confidence import Calibration
    from ..decoding.translator import Line, Result, Translator

WHAT = "the translation"


def translate(
    model: Annotated[list[Path] | None, typer.Option("--model", "-m", metavar="DIR", help="Model folder, or run folder (its averaged model, else the best, else the last). Repeat it for an ensemble of models with the same vocabulary; options come from the first one's recipe.  [env var: NMT_MODEL; default: runs/latest]", show_default=False)] = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Read from FILE (plain, .gz, .xz, .bz2) instead of stdin.", show_default=False)] = None,
    output_file: Annotated[Path | None, typer.Option("--output", "-o", parser=output_path, metavar="FILE", help="Write to FILE instead of stdout. FILE appears when everything is translated; an existing file is replaced and keeps its mode. A device or pipe is written to directly.", show_default=False)] = None,
    beam: BeamSize = None,
    alpha: Alpha = None,
    max_extra: Annotated[int | None, typer.Option("--max-extra", metavar="N", help="Longest output: tokens of the line and of its prefix, plus N.  [default: the recipe's, 50]", show_default=False)] = None,
    min_length: MinLength = None,
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", metavar="N", help="Source tokens that one worker translates together; changes only speed and memory.  [default: the recipe's, 4096]", show_default=False)] = None,
    prefix_column: Annotated[bool, typer.Option("--prefix-column", help="Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a tab or PREFIX has no constraint.")] = False,
    prefix_file: Annotated[Path | None, typer.Option("--prefix-file", metavar="FILE", help="Prefixes that the translations begin with, line by line parallel to the input; an empty line is no constraint.", show_default=False)] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample outputs at random, each token by its probability, instead of beam search.")] = False,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", min=0, max=10_000_000, help="With --sample: sample from the K most probable tokens; 0: from all.  [default: 0]", show_default=False)] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="With --sample: sample from the fewest tokens with a total probability of P.  [default: 1]", show_default=False)] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="T", help="With --sample: divides the logits. Below 1 probable tokens become more probable, above 1 less.  [default: 1]", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=0, max=2**63 - 1, help="With --sample: random seed.  [default: 1]", show_default=False)] = None,
    nbest: Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="Print the N best of each line, or N samples: INDEX ||| TRANSLATION ||| SCORE.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Print SCORE, a tab, the translation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line: source, translation, score, log_prob, tokens, nbest.")] = False,
    alignment: Annotated[bool, typer.Option("--alignment", help="With --json: also source_tokens, and alignment: for each token of the translation the source token with the most attention.")] = False,
    confidence: Annotated[bool, typer.Option("--confidence", help="With --json: also words, the probability of each word, and quality, an estimate of chrF / 100 for each line, 0 to 1.")] = False,
    calibration: Annotated[Path | None, typer.Option("--calibration", metavar="FILE", help="With --confidence: estimate quality by FILE, which nmt calibrate wrote.  [default: one fitted on a small model]", show_default=False)] = None,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Annotated[int | None, typer.Option("--devices", metavar="N", min=1, max=1024, help="Number of workers: CPU cores or GPUs.  [default: all cores that the process may use; 1 GPU]", show_default=False)] = None,
    precision: Annotated[str, typer.Option(metavar="P", help="fp32, bf16, int8 or auto (the fastest on this hardware). fp32 is exact; the others differ from it by rounding.")] = "auto",
) -> None:
    """Translate lines of text: N lines in, N lines out, in order, as soon as they are ready.

    A line ends at \\n only. Blank lines stay empty; a line that is too long for the model is translated in parts. The
    translation of a line depends only on the line, the model and the options. Output is flushed whenever all
    lines that were read are translated.

    Beam search ranks outputs Y by  score = log P(Y) / lp(Y),  lp(Y) = ((5 + |Y|) / 6) ^ alpha,  where |Y| counts the
    output's tokens and its end symbol. Scores are at most 0; nearer to 0 is better. A blank line scores 0.

    --nbest N prints up to N lines for each input line, best first; INDEX counts input lines from 0. With --sample they
    are N independent samples, so two may be equal; the same line and seed give the same samples.

    --json prints one object per line, whatever N is: source, translation, score, log_prob (natural), tokens (the
    translation's subwords), and nbest, a list of objects: translation, score, log_prob, tokens. With --alignment also
    source_tokens and alignment, a list of pairs [I, J]: token J of the translation attends most to source token I,
    both counted from 0. A token that attends most to the source's end symbol has no pair. For an ensemble the alignment is
    the first model's.

    With --confidence each object, also in nbest, has words, a list of objects: word, probability (the product over its
    subwords), and quality, an estimate of sentence chrF / 100 from the model's own probabilities; for a blank line null.
    """
    from ..hardware import keep_freed_memory
    from ..model.contents import find_model
    from ..output_paths import check_output_file

    changes = decode_changes(overrides or [], {"beam": beam, "alpha": alpha, "max_extra": max_extra, "min_length": min_length, "batch_tokens": batch_tokens})
    _check_usage(precision, alignment and not as_json, prefix_column and prefix_file is not None)
    calibrated = _calibration(confidence, calibration, as_json, sample)
    settings = _sampling_settings(sample, {"top_k": top_k, "top_p": top_p, "temperature": temperature, "seed": seed}, changes)

    if output_file:
        inputs = [path for path in (input_file, prefix_file, calibration) if path] + [find_model(path) for path in models_named(model)]
        check_output_file(output_file, WHAT, inputs)

    from ..decoding.search import SamplingOptions
    from . import formats as forms
    from .loading import load_translator

    keep_freed_memory()
    sampling = SamplingOptions(**settings) if sample else None
    if sampling:
        changes.append(f"decode.beam={nbest}")
    translator = load_translator(
        models_named(model), changes, nbest=nbest, device=device, devices=devices, precision=precision, sampling=sampling, align=alignment, token_log_probs=confidence
    )
    replaced: Counter[str] = Counter()
    lines = _lines(input_file, prefix_column, prefix_file, replaced)
    form = partial(forms.json_object, calibration=calibrated) if as_json else forms.moses if nbest > 1 else forms.scored if scores else forms.plain
    with _writing(output_file) as sink:
        _run(translator, lines, sink, form, replaced)


def _check_usage(precision: str, alignment_alone: bool, both_prefixes: bool) -> None:
    check_precision(precision)
    if alignment_alone:
        raise UsageError("--alignment needs --json, the only format with an alignment.")
    if both_prefixes:
        raise UsageError("--prefix-column and --prefix-file were both given: give prefixes either in the input or in a file.")


def _calibration(confidence: bool, file: Path | None, as_json: bool, sample: bool) -> Calibration | None:
    """Return the calibration of --confidence, None without it. Raises UsageError, DataError."""
    if file and not confidence:
        raise UsageError("--calibration needs --confidence, which it changes.")
    if not confidence:
        return None
    if not as_json:
        raise UsageError("--confidence needs --json, the only format with words and their probabilities.")
    if sample:
        raise UsageError("--confidence needs beam search, which keeps the probabilities of single tokens: leave --sample out.")
    from ..decoding.confidence import DEFAULT, read_calibration

    return read_calibration(file) if file else DEFAULT


def _sampling_settings(sample: bool, given: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """Return those of `SamplingOptions` that were given. Raises UsageError for values that are out of range."""
    import math

    settings = {name: value for name, value in given.items() if value is not None}
    if settings and not sample:
        raise UsageError(f"{', '.join('--' + name.replace('_', '-') for name in settings)}: only with --sample.")
    if sample and any(change.partition("=")[0].strip() == "decode.beam" for change in changes):
        raise UsageError("--beam (decode.beam) was given with --sample, which keeps no beam: give --nbest N for N samples per line.")
    if not 0 < settings.get("top_p", 1.0) <= 1:
        raise UsageError(f"--top-p {settings['top_p']}: expected a probability above 0, at most 1.")
    if not 0 < settings.get("temperature", 1.0) < math.inf:
        raise UsageError(f"--temperature {settings['temperature']}: expected a number above 0. For the most probable tokens alone: --top-k 1.")
    return settings


def _lines(input_file: Path | None, prefix_column: bool, prefix_file: Path | None, replaced: Counter[str]) -> Iterator[Line]:
    """Yield the lines to translate. Raises DataError, after the lines that have prefixes, if the numbers of lines and prefixes differ."""
    from ..lines import decode_line, iter_lines, open_binary, read_pairs
    from .inputs import open_input

    name = str(input_file) if input_file else "standard input"
    with open_input(input_file) as stream:  # only the thread that reads closes it
        if prefix_file:
            with open_binary(prefix_file) as prefixes:
                yield from read_pairs(name, stream, str(prefix_file), prefixes, replaced, any_bytes=True)
            return
        for raw in iter_lines(stream, any_bytes=True):
            text, damaged = decode_line(raw)
            replaced[name] += damaged
            source, _, prefix = text.partition("\t")
            yield (source, prefix) if prefix_column else text


def _run(translator: Translator, lines: Iterable[Line], sink: BinaryIO, form: Callable[[int, Result], str], replaced: Counter[str]) -> None:
    """Translate all lines and write each window as soon as it is done. `replaced`: file → lines with invalid UTF-8."""
    start, count, tokens = time.perf_counter(), 0, 0
    with console.progress(None, "translating", " lines") as bar, closing(translator.windows(lines)) as windows:
        for window in windows:
            for result in window:
                sink.write((form(count, result) + "\n").encode("utf-8"))
                count, tokens = count + 1, tokens + result.tokens
            sink.flush()
            bar.update(len(window))
    for name, damaged in replaced.items():
        if damaged:
            console.warn(f"{name!r}: {damaged:,} of {count:,} lines held invalid UTF-8; the bytes were replaced by U+FFFD.")
    if console.on_terminal():
        seconds = time.perf_counter() - start
        console.say(f"{count:,} lines, {tokens:,} tokens in {seconds:.1f} s: {tokens / seconds:,.0f} tokens/s")


@contextmanager
def _writing(path: Path | None) -> Iterator[BinaryIO]:
    """Yield stdout, or the file of --output."""
    from ..output_paths import output_file

    if path is None:
        yield output.stream()
        return
    with output_file(path, WHAT) as sink:
        yield sink
