"""`nmt score --model`: log P of each reference line given its source line, by `translation.scoring`.

One line per pair goes to stdout, window by window. The NLL of all pairs and remarks go to stderr.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import console
from ..console import say, warn, warn_replaced
from ..device.torch_device import is_host
from ..errors import DataError, UsageError
from ..interface.loading import check_precision, open_models
from ..options import Option
from ..text.lines import read_parallel, read_streams
from .arguments import STDIN, STDIN_TWICE, model_option
from .inputs import open_input, say_model
from .resumed import RESUME, Resumed
from .translate_output import writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

    from ..interface.loading import StoredModels
    from ..translation.scoring import PairScorer, Scored


WIDTH = 6
"""Decimals of the numbers in text, unless others are asked for."""
MODEL = "Score by a model's probability"
"""A heading in --help."""


@dataclass(frozen=True)
class ModelOptions:
    """The options of scores by a model. None: not given."""

    model: Annotated[
        Path | None, model_option("Model or run folder: score REF, given SRC, by the model's probability.", MODEL)
    ] = None
    target_language: Annotated[
        str | None,
        Option(
            "With --model: language of REF, for a model of several languages, whose codes nmt info shows. A line of "
            "SRC that begins with >>CODE<< names its own.  [default: the recipe's]",
            "CODE",
            MODEL,
        ),
    ] = None
    batch_tokens: Annotated[
        int | None,
        Option(
            "With --model: tokens per side scored together; changes only the speed.  [default: the recipe's, 4096]",
            "N",
            MODEL,
            1,
            100_000_000,
        ),
    ] = None
    device: Annotated[
        str | None, Option("With --model: auto, cpu, cuda, cuda:N or mps.  [default: auto]", "D", MODEL)
    ] = None
    output: Annotated[
        Path | None,
        Option(
            "With --model: write to FILE instead of stdout, when everything is done.",
            "FILE",
            MODEL,
            names=("--output", "-o"),
        ),
    ] = None
    resume: Annotated[bool, Option(f"With --model, --output and files: {RESUME}", None, MODEL, names=("--resume",))] = (
        False
    )
    precision: Annotated[
        str | None,
        Option(
            "With --model: fp32, bf16, fp16, int8 or auto (fp32 on a CPU, elsewhere what the hardware "
            "computes fast).  [default: fp32; int8 for a model in int8]",
            "P",
            MODEL,
        ),
    ] = None


def score_by_model(references: list[Path], src: Path | None, options: ModelOptions, as_json: bool, width: int) -> None:
    """Score each line of the reference given its source line, and print the scores. `width`: decimals.

    The lines of files are counted before the model is loaded, so that unequal counts are an error before any work.
    Pipes can be read only once, so for pipes the error comes after the scores of the parallel lines.
    """
    if src is None:
        raise UsageError("--model needs --src SRC, the text that REF translates.")
    if len(references) != 1:
        raise UsageError(f"--ref was given {len(references)} times: a model scores one text at a time. Give it once.")
    if [src, *references].count(STDIN) > 1:
        raise UsageError(STDIN_TWICE)
    [ref] = references
    if options.precision:
        check_precision(options.precision)
    names = ["standard input" if path == STDIN else str(path) for path in (src, ref)]
    empty = DataError(f"{names[1]!r} is empty: expected one translation per line.")
    replaced: Counter[str] = Counter()
    with ExitStack() as stack:
        streams = [stack.enter_context(open_input(path)) for path in (src, ref)]
        files = STDIN not in (src, ref) and src.is_file() and ref.is_file()
        total = sum(1 for _ in read_parallel([src], [ref])) if files else None
        if total == 0:
            raise empty
        resumed = Resumed([src, ref], options.output) if options.resume else None
        scorer, stored, precision = _scorer(options)
        made = {"command": "score", "as_json": as_json, "width": width, "target_language": options.target_language}
        if resumed and resumed.is_whole(stored, precision, made):
            return
        pairs = read_streams(names, streams, replaced)
        with writing(options.output, "the scores") as sink:
            totals = write_scores(scorer, pairs, total, form_of(as_json, width), sink)
            if totals.lines == 0:
                raise empty
    _report(totals, names, replaced, scorer.longest, width)
    if resumed:
        resumed.record(totals.lines)


def _scorer(options: ModelOptions) -> tuple[PairScorer, StoredModels, str]:
    """Return a scorer, its models, and its precision."""
    assert options.model is not None
    with console.status("loading the model"):
        stored = open_models([options.model], device=options.device or "auto", chosen=say_model)
        precision = scored_in(stored, options.precision)
        return stored.scorer(precision, options.batch_tokens, options.target_language), stored, precision


def scored_in(stored: StoredModels, precision: str | None) -> str:
    """Return the precision of scores: None, and "auto" on a CPU, is fp32, or int8 if the model is stored in int8."""
    if precision is None or (precision == "auto" and is_host(stored.devices[0])):
        return "int8" if stored.in_int8 else "fp32"
    return precision


@dataclass
class Totals:
    """Sums over the lines; `nll` and `tokens` are sums over the lines with a score."""

    lines: int = 0
    tokens: int = 0
    nll: float = 0.0
    too_long: int = 0
    first_too_long: int = 0

    def add(self, scored: Scored) -> None:
        self.lines += 1
        if scored.log_prob is None:
            self.too_long, self.first_too_long = self.too_long + 1, self.first_too_long or self.lines
        else:
            self.tokens, self.nll = self.tokens + scored.tokens, self.nll - scored.log_prob


def write_scores(
    scorer: PairScorer,
    pairs: Iterable[tuple[str, str]],
    total: int | None,
    form: Callable[[Scored], str],
    sink: BinaryIO,
) -> Totals:
    """Score all `pairs` and write each window as soon as it is scored."""
    totals = Totals()
    with console.progress(total, "scoring", " lines") as bar:
        for window in scorer.windows(pairs):
            sink.write("".join(f"{form(scored)}\n" for scored in window).encode())
            sink.flush()
            for scored in window:
                totals.add(scored)
            bar.update(len(window))
    return totals


def _report(totals: Totals, names: list[str], replaced: Counter[str], longest: int, width: int) -> None:
    """Print remarks, then the totals in one line. Raises DataError if no pair has a score."""
    from ..translation.scoring import perplexity

    warn_replaced(replaced)
    if totals.too_long:
        warn(
            f"{totals.too_long:,} of {totals.lines:,} pairs, the first at line {totals.first_too_long:,}, have "
            "a side longer than the model's maximum "
            f"(model.max_positions = {longest}, end symbol counted): they have no score and do not count in the totals."
        )
    if not totals.tokens:
        why = "longer than the model's maximum, or blank on both sides" if totals.too_long else "blank on both sides"
        raise DataError(f"nothing was scored: all {totals.lines:,} pairs of {names[0]!r} and {names[1]!r} are {why}.")
    nll, likely = totals.nll / totals.tokens, perplexity(-totals.nll, totals.tokens)
    say(
        f"NLL {nll:.{width}f}  perplexity {likely:.{width}f}  sentences {totals.lines - totals.too_long}  "
        f"tokens {totals.tokens}"
    )


def form_of(as_json: bool, width: int = WIDTH) -> Callable[[Scored], str]:
    """Return the function that returns the line of a pair. `width`: decimals."""
    return _json if as_json else partial(_text, width=width)


def _text(scored: Scored, width: int) -> str:
    numbers = ("nan" if number is None else f"{number:.{width}f}" for number in (scored.log_prob, scored.perplexity))
    return "\t".join([*numbers, str(scored.tokens)])


def _json(scored: Scored) -> str:
    return json.dumps(
        {
            "source": scored.source,
            "target": scored.target,
            "tokens": scored.tokens,
            "log_prob": scored.log_prob,
            "perplexity": scored.perplexity,
        },
        ensure_ascii=False,
    )
