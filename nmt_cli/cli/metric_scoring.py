"""`nmt score` by metrics: read the text, score it, print lines, tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..console import status
from ..evaluation.lengths import BOUNDS, Part, by_length, parse_bounds
from ..evaluation.metric import DEFAULT_TOKENIZER, MetricOptions, Protocol, check_known
from ..evaluation.metrics import DEFAULT_METRICS, Score, Scorer, build, spec
from ..evaluation.significance import BOOTSTRAP, SAMPLES, SEED, TESTS, Row, compare, confidence
from . import output, output_checks
from .inputs import System, read_parallel, remark, remark_on_scores
from .score_request import ScoreRequest
from .table import Column, Table, show

SIGNIFICANT = 0.05
"""p-values below it are marked with *."""


def score_by_metrics(request: ScoreRequest) -> None:
    """Score every system by every metric and print the scores."""
    metrics = request.metrics or (list(DEFAULT_METRICS) if request.protocol is None else ["bleu"])
    options = _options(request)
    check_known("test of significance", request.significance or BOOTSTRAP, TESTS)
    bounds = parse_bounds(request.lengths) if request.lengths is not None else BOUNDS if request.by_length else ()
    for name in metrics:  # a wrong name is an error before any file is read
        build(name, options)
    systems, references, source = read_parallel(request.hypotheses, request.references, request.source)
    remark(systems, request.hypotheses, request.references, metrics, request.tokenize, protocol=options.protocol is not None)
    scorers = {name: Scorer(name, references, replace(options, source=source)) for name in metrics}
    remark_on_scores(systems, scorers)
    tables = _resampled(request, systems, scorers)
    lengths = [by_length(lines, references[0], scorers, bounds) if bounds else [] for _, lines in systems]
    outputs = output_checks.checked(systems, references, source, scorers, options, output_checks.WORST if request.worst is None else request.worst)
    if request.as_json:
        output.write(_json(request, options, systems, scorers, tables, lengths, outputs))
    else:
        show([*_texts(request.width, systems, scorers, tables, lengths), *output_checks.texts(outputs)])


def _options(request: ScoreRequest) -> MetricOptions:
    protocol = None
    if request.protocol is not None:
        language = {"language": request.language.lower()} if request.language else {}
        protocol = Protocol(request.protocol, compounds=not request.no_compounds, tokenized_references=request.tokenized_ref, **language)
    return MetricOptions(
        lowercase=request.lowercase, tokenize=request.tokenize or DEFAULT_TOKENIZER, protocol=protocol, comet_model=request.comet_model,
        evalb_repair=request.evalb_repair,
    )  # fmt: skip


def _resampled(request: ScoreRequest, systems: Sequence[System], scorers: Mapping[str, Scorer]) -> dict[str, list[Row]]:
    """Metric → one row per system; empty if nothing is to be resampled."""
    seed = request.seed or SEED
    if len(systems) > 1:
        with status("resampling the test set"):
            return compare(systems, scorers, test=request.significance or BOOTSTRAP, samples=request.samples, seed=seed)
    if request.confidence:
        with status("resampling the test set"):
            return {name: [confidence(*systems[0], scorer, samples=request.samples or SAMPLES, seed=seed)] for name, scorer in scorers.items()}
    return {}


def _texts(
    width: int | None, systems: Sequence[System], scorers: Mapping[str, Scorer], tables: Mapping[str, Sequence[Row]], lengths: Sequence[Sequence[Part]]
) -> Iterable[str | Table]:
    """Yield the text output, in order."""
    if len(systems) > 1:
        yield from (_compared(rows, width) for rows in tables.values())
    elif tables:
        yield "\n".join(_line(rows[0].score, width, rows[0]) for rows in tables.values())
    else:
        yield "\n".join(_line(scorer.score(systems[0][1]), width) for scorer in scorers.values())
    for (name, _), parts in zip(systems, lengths, strict=True):
        if parts:
            yield _by_length(name, parts, scorers, width)


def _line(score: Score, width: int | None, row: Row | None = None) -> str:
    width = _decimals(score.metric, width)
    interval = f"mean {row.mean:.{width}f}  ci95 {row.ci:.{width}f}  " if row else ""
    return f"{score.name:<5}  {score.value:>{width + 4}.{width}f}  {interval}{score.signature}  {score.details}".rstrip()


def _compared(rows: Sequence[Row], width: int | None) -> Table:
    """Metric and signature, then `score mean ci95 p system`. The system is last because its name may contain spaces."""
    first = rows[0].score
    width = _decimals(first.metric, width)
    cells = []
    for row in rows:
        p = "-" if row.p_value is None else f"{row.p_value:.4f}" + "*" * (row.p_value < SIGNIFICANT)
        cells.append([*(f"{number:.{width}f}" for number in (row.score.value, row.mean, row.ci)), p, row.system])
    title = f"{first.name}  {first.signature}  ({'higher' if first.higher_is_better else 'lower'} is better)"
    numbers = [Column(name, max(width + 4, 5)) for name in ("score", "mean", "ci95")]
    return Table(title, [*numbers, Column("p", 7, left=True), Column("system", left=True)], cells)


def _by_length(system: str, parts: Sequence[Part], scorers: Mapping[str, Scorer], width: int | None) -> Table:
    """`words lines ratio`, then one column per metric."""
    names = {name: part.scores[name].name for name in scorers for part in parts if part.scores}
    rows = [
        [part.bucket.name, str(len(part.bucket.lines)), "-" if part.ratio is None else f"{part.ratio:.3f}"]
        + [f"{part.scores[name].value:.{_decimals(name, width)}f}" if part.scores else "-" for name in names]
        for part in parts
    ]
    columns = [Column("words"), Column("lines", 6), Column("ratio", 5), *(Column(names[name], _decimals(name, width) + 4) for name in names)]
    return Table(f"{system}  by words of the reference", columns, rows)


def _json(request: ScoreRequest, options: MetricOptions, systems: Sequence[System], scorers: Mapping[str, Scorer], tables: Mapping[str, Sequence[Row]], lengths: Sequence[Sequence[Part]], outputs: Sequence[output_checks.SystemOutputs]) -> str:
    """One object for one system, a list of objects for several."""
    values = []
    for number, (name, lines) in enumerate(systems):
        value: dict[str, Any] = {"hypothesis": name, "references": [str(path) for path in request.references], "lines": len(lines)}
        value["scores"] = {
            metric: _of_row(tables[metric][number], alone=len(systems) == 1) if tables else scorer.score(lines).as_dict() for metric, scorer in scorers.items()
        }
        for metric, scorer in scorers.items():
            if counts := scorer.counts(lines):
                value["scores"][metric]["counts"] = dict(counts)
        if options.protocol:
            value["protocol"] = _protocol(options.protocol)
        if lengths[number]:
            value["by_length"] = [part.as_dict() for part in lengths[number]]
        if outputs:
            value["outputs"] = outputs[number].as_dict()
        values.append(value)
    return json.dumps(values if len(values) > 1 else values[0], ensure_ascii=False, indent=2)


def _of_row(row: Row, *, alone: bool) -> dict[str, Any]:
    """Return the row for JSON. One system alone has no p-value."""
    return {key: value for key, value in row.as_dict().items() if not (alone and key == "p_value")}


def _protocol(protocol: Protocol) -> dict[str, Any]:
    """The protocol's name, language and steps: name → label in the signature."""
    from ..evaluation.protocols import steps

    labels = {name: label for name, (label, _) in steps(protocol).items()} | {"bleu": "multi-bleu"}
    return {"name": protocol.name, "language": protocol.language, "steps": labels, "tokenized_references": protocol.tokenized_references}


def _decimals(metric: str, width: int | None) -> int:
    return width or spec(metric).decimals
