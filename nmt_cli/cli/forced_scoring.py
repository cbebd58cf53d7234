"""`nmt score --model`: log P of given translations, a line each, by `decoding.scoring`.

A line a pair goes to stdout as its window is done; the corpus's NLL and remarks go to stderr.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .inputs import STDIN, open_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..decoding.scoring import Scored, Scorer


def forced(model: Path, src: Path, ref: Path, *, as_json: bool, width: int, batch_tokens: int | None, device: str, precision: str) -> None:
    """Score each line of `ref` given that of `src`.

    Files are counted before the model is loaded, so that unequal counts are told of before any work; of pipes, which
    can be read only once, after the lines that are parallel have been scored.
    """
    from ..errors import DataError, UsageError
    from ..lines import read_pairs, read_parallel

    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision!r}: expected auto, fp32 or bf16.")
    names = ["standard input" if path == STDIN else str(path) for path in (src, ref)]
    empty = DataError(f"{names[1]!r} is empty: expected one translation a line.")
    replaced: Counter[str] = Counter()
    with ExitStack() as stack:
        streams = [stack.enter_context(open_input(path)) for path in (src, ref)]
        files = STDIN not in (src, ref) and src.is_file() and ref.is_file()
        total = sum(1 for _ in read_parallel([src], [ref])) if files else None
        if total == 0:
            raise empty
        scorer = _scorer(model, batch_tokens, device, precision)
        pairs = read_pairs(names[0], streams[0], names[1], streams[1], replaced)
        corpus = _run(scorer, pairs, total, _json if as_json else partial(_text, width=width))
    if corpus.lines == 0:
        raise empty
    _report(corpus, names, replaced, scorer.longest, width)


def _scorer(path: Path, batch_tokens: int | None, device: str, precision: str) -> Scorer:
    """The model at `path`, ready to score."""
    from ..console import say
    from ..hardware import Hardware
    from ..model.contents import find_model
    from ..model.folder import load_model

    folder = find_model(path)
    if folder != path:
        say(f"model: {folder}")
    hardware = Hardware.find(device, precision)
    if hardware.device == "cpu" and precision == "auto":
        precision = "fp32"
    elif precision == "auto":
        precision = hardware.precision

    from ..data.tokenizer import Vocabulary
    from ..decoding.scoring import Scorer

    loaded = load_model(folder)
    vocabulary = Vocabulary.load(folder, loaded.config.vocabularies)
    return Scorer(loaded.model.to(hardware.device), vocabulary, batch_tokens=batch_tokens or loaded.recipe.decode.batch_tokens, precision=precision)


@dataclass
class _Corpus:
    """What the lines come to; `nll` and `tokens` are of those that have a score."""

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


def _run(scorer: Scorer, pairs: Iterable[tuple[str, str]], total: int | None, form: Callable[[Scored], str]) -> _Corpus:
    """Score all `pairs`; write each window as soon as it is done."""
    from .. import console
    from . import output

    corpus = _Corpus()
    with console.progress(total, "scoring", " lines") as bar:
        for window in scorer.windows(pairs):
            output.write("\n".join(form(scored) for scored in window))
            for scored in window:
                corpus.add(scored)
            bar.update(len(window))
    return corpus


def _report(corpus: _Corpus, names: list[str], replaced: Counter[str], longest: int, width: int) -> None:
    """Remarks, then the corpus in one line."""
    from ..console import say, warn
    from ..decoding.scoring import perplexity

    for name in dict.fromkeys(names):
        if replaced[name]:
            warn(f"{name!r}: {replaced[name]:,} of {names.count(name) * corpus.lines:,} lines held invalid UTF-8; the bytes were replaced by U+FFFD.")
    if corpus.too_long:
        warn(
            f"{corpus.too_long:,} of {corpus.lines:,} pairs, the first at line {corpus.first_too_long:,}, have a side longer than the model can take "
            f"(model.max_positions = {longest}, end symbol counted): they have no score and do not count in the corpus."
        )
    nll, likely = corpus.nll / max(corpus.tokens, 1), perplexity(-corpus.nll, corpus.tokens)
    say(f"NLL {nll:.{width}f}  perplexity {likely:.{width}f}  sentences {corpus.lines - corpus.too_long}  tokens {corpus.tokens}")


def _text(scored: Scored, width: int) -> str:
    numbers = ("nan" if number is None else f"{number:.{width}f}" for number in (scored.log_prob, scored.perplexity))
    return "\t".join([*numbers, str(scored.tokens)])


def _json(scored: Scored) -> str:
    import json

    return json.dumps(
        {"source": scored.source, "target": scored.target, "tokens": scored.tokens, "log_prob": scored.log_prob, "perplexity": scored.perplexity},
        ensure_ascii=False,
    )
