"""`nmt translate`: text in, text out, line by line.

Translations go to stdout (or --output), remarks to stderr. N lines in, N lines out, as they become ready.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from ..decoding.translator import Result, Translator
    from ..recipe import Recipe

DEFAULT_MODEL = Path("runs/latest")


def translate(
    model: Annotated[Path | None, typer.Option("--model", "-m", metavar="DIR", envvar="NMT_MODEL", help="Model folder, or run folder (its averaged model, else the best, else the last).  [default: runs/latest]", show_default=False)] = None,
    input_file: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Read from FILE (plain, .gz, .xz, .bz2) instead of stdin.", show_default=False)] = None,
    output_file: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, which appears when all is done, instead of stdout.", show_default=False)] = None,
    beam: Annotated[int | None, typer.Option(metavar="W", help="Hypotheses kept; 1 is greedy search.  [default: the recipe's, 4]", show_default=False)] = None,
    alpha: Annotated[float | None, typer.Option(metavar="A", help="Length penalty; 0 is none.  [default: the recipe's, 0.6]", show_default=False)] = None,
    max_extra: Annotated[int | None, typer.Option("--max-extra", metavar="N", help="Longest output: the line's own tokens plus N.  [default: the recipe's, 50]", show_default=False)] = None,
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", metavar="N", help="Source tokens translated together; changes the speed only.  [default: the recipe's, 4096]", show_default=False)] = None,
    nbest: Annotated[int, typer.Option(metavar="N", min=1, help="Print the N best of each line: INDEX ||| TRANSLATION ||| SCORE.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Print SCORE, a tab, the translation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line: source, translation, score, log_prob, nbest.")] = False,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="decode.KEY=VALUE", help="Override a key of the recipe's [decode]; repeatable.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(metavar="P", help="fp32 or bf16; auto: fp32 on a CPU, elsewhere what the hardware does fast.")] = "auto",
) -> None:
    """Translate lines of text: N lines in, N lines out, in order, as they become ready.

    A line ends at \\n only. Empty lines stay empty; a line that is too long for the model is translated in parts. The
    translation of a line depends on the line, the model and the options alone.

    Beam search ranks outputs Y by  score = log P(Y) / lp(Y),  lp(Y) = ((5 + |Y|) / 6) ^ alpha,  where |Y| counts the
    output's tokens and its end symbol. Scores are at most 0; nearer to 0 is better. A blank line scores 0.

    --nbest N prints up to N lines for each input line, best first; INDEX counts input lines from 0. With --json it is
    one object a line still, and nbest a list of objects: translation, score, log_prob.
    """
    from ..errors import UsageError

    given = {"beam": beam, "alpha": alpha, "max_extra": max_extra, "batch_tokens": batch_tokens}
    changes = [*(overrides or []), *(f"decode.{key}={value}" for key, value in given.items() if value is not None)]
    wrong = [change for change in changes if not change.strip().startswith("decode.")]
    if wrong:
        raise UsageError(f"--set {wrong[0]!r}: a trained model's recipe is what it is; only decode.KEY=VALUE can be changed here.")
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision!r}: expected auto, fp32 or bf16.")
    translator = _translator(model or DEFAULT_MODEL, changes, nbest, device, precision)
    form = _json if as_json else _moses if nbest > 1 else _scored if scores else _plain
    with _writing(output_file) as sink:
        _run(translator, _reading(input_file), sink, form)


def _translator(path: Path, changes: list[str], nbest: int, device: str, precision: str) -> Translator:
    """The model at `path`, ready to translate."""
    from ..console import say
    from ..errors import RecipeError, UsageError
    from ..hardware import Hardware
    from ..model.folder import find_model, load_model, read_config

    folder = find_model(path)
    if folder != path:
        say(f"model: {folder}")
    try:
        recipe = _overridden(read_config(folder)["recipe"], changes)
    except RecipeError as error:
        raise UsageError(str(error)) from None
    if nbest > recipe.decode.beam:
        raise UsageError(f"--nbest {nbest} exceeds the beam of {recipe.decode.beam}: give --beam {nbest} or more.")
    hardware = Hardware.find(device, precision)
    if hardware.device == "cpu" and precision == "auto":
        precision = "fp32"
    elif precision == "auto":
        precision = hardware.precision

    from ..data.tokenizer import Vocabulary
    from ..decoding.translator import Translator

    loaded, vocabulary = load_model(folder), Vocabulary.load(folder)
    return Translator(
        loaded.model.to(hardware.device), vocabulary.source, vocabulary.target, recipe.decode,
        longest=recipe.data.max_length, nbest=nbest, precision=precision,
    )  # fmt: skip


def _overridden(values: dict[str, object], changes: list[str]) -> Recipe:
    from ..recipe import Recipe, lay_over

    for change in changes:
        lay_over(values, change)
    return Recipe.from_dict(values, "the model's recipe")


def _run(translator: Translator, source: BinaryIO, sink: BinaryIO, form: Callable[[int, Result], str]) -> None:
    """Translate all of `source`; write each window as soon as it is done."""
    import time

    from .. import console
    from ..data.lines import decode_line, iter_lines

    damaged = 0

    def lines() -> Iterator[str]:
        nonlocal damaged
        for raw in iter_lines(source):
            text, replaced = decode_line(raw)
            damaged += replaced
            yield text

    start, count, tokens = time.perf_counter(), 0, 0
    with console.progress(None, "translating", " lines") as bar:
        for window in translator.windows(lines()):
            for result in window:
                sink.write((form(count, result) + "\n").encode("utf-8"))
                count, tokens = count + 1, tokens + result.tokens
            sink.flush()
            bar.update(len(window))
    if damaged:
        console.warn(f"{damaged:,} of {count:,} lines held invalid UTF-8; the bytes were replaced by U+FFFD.")
    if console.on_terminal():
        seconds = time.perf_counter() - start
        console.say(f"{count:,} lines, {tokens:,} tokens in {seconds:.1f} s: {tokens / seconds:,.0f} tokens/s")


def _plain(index: int, result: Result) -> str:
    return result.translation


def _scored(index: int, result: Result) -> str:
    return f"{result.best.score:.6f}\t{result.translation}"


def _moses(index: int, result: Result) -> str:
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in result.candidates)


def _json(index: int, result: Result) -> str:
    import json

    nbest = [{"translation": c.text, "score": c.score, "log_prob": c.log_prob} for c in result.candidates]
    return json.dumps({"source": result.source, **nbest[0], "nbest": nbest}, ensure_ascii=False)


def _reading(path: Path | None) -> BinaryIO:
    """The input; never closed, as a thread may be waiting in it. Of stdin a duplicate: Python would trip over its own, still being read, when it leaves."""
    import os
    import sys

    from ..data.lines import open_binary

    return open_binary(path) if path else os.fdopen(os.dup(sys.stdin.fileno()), "rb")


@contextmanager
def _writing(path: Path | None) -> Iterator[BinaryIO]:
    """stdout, or a file that is written aside and takes its name when all went well."""
    import os
    import sys

    from ..errors import write_failed

    aside = path.with_name(f".{path.name}.partial-{os.getpid()}") if path else None
    try:
        if path is None or aside is None:
            yield sys.stdout.buffer
            return
        with aside.open("wb") as file:
            yield file
        aside.replace(path)
    except BrokenPipeError:  # whoever read stdout has left: nothing to say, and nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as fault:
        raise write_failed(fault, path or Path("stdout"), "the translation") from None
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)
