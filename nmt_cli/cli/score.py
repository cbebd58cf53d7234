"""`nmt score`: translations against references, in BLEU, chrF and TER; with --model, by a model's own probability.

Scores go to stdout, remarks to stderr. The numbers and signatures are sacrebleu's own; probabilities are in `forced`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..evaluation.metrics import Score
    from ..evaluation.significance import Row

STDIN = Path("-")
TWICE = "'-' (standard input) was given more than once: it can be read only once."
SIGNIFICANT = 0.05
LOOKS_TOKENISED = 100
"""Lines that end in " ." before it is remarked on: sacrebleu's own threshold."""


def score(
    ref: Annotated[list[Path], typer.Option("--ref", metavar="REF", help="Reference, line by line parallel to HYP. Repeat it for several references.", show_default=False)],
    hypotheses: Annotated[list[Path] | None, typer.Argument(metavar="HYP", help="Translations, one a line; - is stdin. Plain, .gz, .xz or .bz2. None with --model.", show_default=False)] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", metavar="METRIC", help="bleu, chrf or ter. Repeat it for several; default: all.", show_default=False)] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF (TER always does).")] = False,
    tokenize: Annotated[str | None, typer.Option("--tokenize", metavar="T", help="BLEU's tokenizer: 13a (default), intl, char, zh, ja-mecab, …; none for text that is tokenised already.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    width: Annotated[int | None, typer.Option("--width", metavar="N", min=1, max=12, help="Decimals in the text output.  [default: 2; with --model 6]", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", metavar="DIR", help="Model or run folder: score REF, given SRC, by its probability.", show_default=False)] = None,
    src: Annotated[Path | None, typer.Option("--src", metavar="SRC", help="With --model: the source text of REF, line by line.", show_default=False)] = None,
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", metavar="N", min=1, help="With --model: tokens a side scored together; changes the speed only.  [default: the recipe's, 4096]", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="With --model: auto, cpu, cuda or cuda:N.  [default: auto]", show_default=False)] = None,
    precision: Annotated[str | None, typer.Option(metavar="P", help="With --model: fp32 or bf16; auto: fp32 on a CPU, elsewhere what the hardware does fast.  [default: fp32]", show_default=False)] = None,
) -> None:
    """Score translations against references: BLEU, chrF and TER, each with its signature; or by a model's probability.

    Give detokenised, true-case text. One HYP prints one line a metric: NAME SCORE SIGNATURE, then what else the metric says. Several HYP print one table a metric: score, mean and 95 % confidence interval over 1,000 resampled test sets, and the p-value against the first HYP (paired bootstrap, fixed seed; * marks p < 0.05).

    --json prints an object for one HYP, a list of them for several: hypothesis, references, lines, scores. scores maps each metric to an object: metric, name, score (unrounded), signature, details, higher_is_better; with several HYP also mean, ci95 and p_value (null for the first), and details is empty.

    --model DIR --src SRC --ref REF prints a line for each line of REF, in order: LOG_PROB, a tab, PERPLEXITY, a tab, TOKENS; with --json an object a line: source, target, tokens, log_prob, perplexity. LOG_PROB is the natural log of P(REF's line | SRC's line), the sum over its TOKENS, end symbol counted; PERPLEXITY is exp(-LOG_PROB / TOKENS). Two blank lines have 0 tokens, LOG_PROB 0 and PERPLEXITY 1; a blank line against text is scored as its end symbol alone. A pair with a side longer than the model can take has nan (null) and is told of on stderr. The corpus goes to stderr: NLL a token, perplexity, sentences, tokens, of the pairs that have a score.
    """
    of_model = {"--src": src, "--batch-tokens": batch_tokens, "--device": device, "--precision": precision}
    _check_usage(hypotheses or [], ref, model, {"--metric": metric, "--lowercase": lowercase or None, "--tokenize": tokenize}, of_model)
    if model and src:
        from .forced import forced

        forced(model, src, ref[0], as_json=json, width=width or 6, batch_tokens=batch_tokens, device=device or "auto", precision=precision or "fp32")
        return
    _score_by_metrics(hypotheses or [], ref, metric, lowercase, tokenize, json, width or 2)


def _check_usage(hypotheses: list[Path], ref: list[Path], model: Path | None, of_metrics: dict[str, Any], of_model: dict[str, Any]) -> None:
    """Raise UsageError where the two ways to score are mixed or one is told in part; the dictionaries hold each way's own options."""
    from ..errors import UsageError

    given = [name for name, value in (of_metrics if model else of_model).items() if value is not None]
    if model and hypotheses:
        raise UsageError(f"HYP ({str(hypotheses[0])!r}) and --model were both given: a model scores REF. Give --model DIR --src SRC --ref REF, or HYP --ref REF.")
    if model and of_model["--src"] is None:
        raise UsageError("--model needs --src SRC, the text that REF translates.")
    if model and len(ref) != 1:
        raise UsageError(f"--ref was given {len(ref)} times: a model scores one text at a time. Give it once.")
    if given:
        raise UsageError(f"{', '.join(given)}: {'not' if model else 'only'} with --model DIR, which scores REF by a model's probability.")
    if not model and not hypotheses:
        raise UsageError("nothing to score: give HYP, the translations; or --model DIR --src SRC, to score REF by a model's probability.")
    if model and [of_model["--src"], *ref].count(STDIN) > 1:
        raise UsageError(TWICE)


def _score_by_metrics(hypotheses: list[Path], ref: list[Path], metric: list[str] | None, lowercase: bool, tokenize: str | None, json: bool, width: int) -> None:
    from ..evaluation.metrics import DEFAULT_METRICS, DEFAULT_TOKENIZER, Options, Scorer, build
    from ..evaluation.significance import compare

    metrics = list(dict.fromkeys(name.lower() for name in metric)) if metric else list(DEFAULT_METRICS)
    options = Options(lowercase=lowercase, tokenize=tokenize or DEFAULT_TOKENIZER)
    for name in metrics:  # a wrong name is told before any file is read
        build(name, options)
    systems, references = _read_parallel(hypotheses, ref)
    _remark(systems, hypotheses, ref, metrics, tokenize)
    scorers = {name: Scorer(name, references, options) for name in metrics}

    if len(systems) == 1:
        scores = [scorer.score(systems[0][1]) for scorer in scorers.values()]
        head = _head(systems[0], ref)
        _print(_json({**head, "scores": {s.metric: s.as_dict() for s in scores}}) if json else _lines(scores, width))
        return
    tables = compare(systems, scorers)
    if json:
        _print(_json([
            {**_head(system, ref), "scores": {name: rows[number].as_dict() for name, rows in tables.items()}}
            for number, system in enumerate(systems)
        ]))
    else:
        _print("\n\n".join(_table(rows, width) for rows in tables.values()))


def _read_parallel(hypotheses: list[Path], ref: list[Path]) -> tuple[list[tuple[str, list[str]]], list[list[str]]]:
    """All files as lines, with every unequal pair of counts told at once."""
    from ..errors import DataError, UsageError

    if [*hypotheses, *ref].count(STDIN) > 1:
        raise UsageError(TWICE)
    references = [_read(path) for path in ref]
    systems = [(str(path), _read(path)) for path in hypotheses]
    faults = [
        f"{name!r} has {len(lines):,} lines, the reference {str(path)!r} has {len(reference):,}"
        for name, lines in systems
        for path, reference in zip(ref, references, strict=True)
        if len(lines) != len(reference)
    ]
    if faults:
        raise DataError(
            "; ".join(faults) + ". They must be parallel, line by line. A line ends at \\n only: U+2028, \\r and the like are characters of a line."
        )
    return systems, references


def _read(path: Path) -> list[str]:
    import sys

    from ..console import warn
    from ..data.lines import decode_line, iter_lines, open_binary
    from ..errors import DataError

    if path == STDIN:
        decoded = [decode_line(raw) for raw in iter_lines(sys.stdin.buffer)]
    else:
        with open_binary(path) as stream:
            decoded = [decode_line(raw) for raw in iter_lines(stream)]
    if not decoded:
        raise DataError(f"{_shown(path)} is empty: expected one translation a line.")
    damaged = sum(replaced for _, replaced in decoded)
    if damaged:
        warn(f"{_shown(path)}: {damaged:,} of {len(decoded):,} lines held invalid UTF-8; the bytes were replaced by U+FFFD.")
    return [text for text, _ in decoded]


def _remark(systems: list[tuple[str, list[str]]], hypotheses: list[Path], ref: list[Path], metrics: list[str], tokenize: str | None) -> None:
    """Say what is allowed but seldom meant."""
    from ..console import warn

    for hypothesis in hypotheses:
        for reference in ref:
            if hypothesis.exists() and reference.exists() and hypothesis.samefile(reference):
                warn(f"{str(hypothesis)!r} is scored against itself: {str(reference)!r} is the same file.")
    if tokenize and "bleu" not in metrics:
        warn(f"--tokenize {tokenize} has no effect: it acts on BLEU, which was not asked for.")
    for name, lines in systems if "bleu" in metrics and tokenize != "none" else ():
        count = sum(line.endswith(" .") for line in lines)
        if count >= LOOKS_TOKENISED:
            warn(f"{_shown(Path(name))}: {count:,} lines end in a separate full stop (' .'), so the text looks tokenised. Detokenise it; or, if the references are tokenised alike, use --tokenize none.")


def _shown(path: Path) -> str:
    return "standard input" if path == STDIN else repr(str(path))


def _lines(scores: Sequence[Score], width: int) -> str:
    return "\n".join(f"{s.name:<5}  {s.value:>{width + 4}.{width}f}  {s.signature}  {s.details}".rstrip() for s in scores)


def _table(rows: Sequence[Row], width: int) -> str:
    """The metric and its signature, then `score mean ci95 p system`; the system comes last as it may hold spaces."""
    first = rows[0].score
    better = "higher" if first.higher_is_better else "lower"
    column = max(width + 4, 5)
    lines = [
        f"{first.name}  {first.signature}  ({better} is better)",
        f"{'score':>{column}}  {'mean':>{column}}  {'ci95':>{column}}  {'p':<7}  system",
    ]
    for row in rows:
        p = "-" if row.p_value is None else f"{row.p_value:.4f}" + "*" * (row.p_value < SIGNIFICANT)
        numbers = "  ".join(f"{number:>{column}.{width}f}" for number in (row.score.value, row.mean, row.ci))
        lines.append(f"{numbers}  {p:<7}  {row.system}")
    return "\n".join(lines)


def _head(system: tuple[str, list[str]], ref: list[Path]) -> dict[str, Any]:
    return {"hypothesis": system[0], "references": [str(path) for path in ref], "lines": len(system[1])}


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)


def _print(text: str) -> None:
    # Bytes: UTF-8 whatever the locale, and file names that are not UTF-8 do not stop the output.
    typer.echo(text.encode("utf-8", "backslashreplace"))
