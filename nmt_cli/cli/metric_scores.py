"""`nmt score` by metrics: read the text, score it, print lines, tables or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import output
from .inputs import System, read_parallel, remark, remark_on_scores
from .score_table import Column, Table, show

if TYPE_CHECKING:
    from ..evaluation.lengths import Part
    from ..evaluation.metric import MetricOptions
    from ..evaluation.metrics import Score, Scorer
    from ..evaluation.significance import Row

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line, its defaults filled in."""

    hypotheses: list[Path]
    references: list[Path]
    metrics: list[str]
    options: MetricOptions
    tokenize: str | None
    """As it was given."""
    src: Path | None
    test: str
    samples: int | None
    seed: int
    confidence: bool
    bounds: tuple[int, ...] | None
    """Of the break-down by length; None: without it."""
    as_json: bool
    width: int | None


def score_by_metrics(wanted: Wanted) -> None:
    """Score every system by every metric and print what was asked for."""
    from ..evaluation.lengths import by_length
    from ..evaluation.metrics import Scorer, build
    from ..evaluation.significance import SAMPLES, compare, confidence

    for name in wanted.metrics:  # a wrong name is told before any file is read
        build(name, wanted.options)
    systems, references, source = read_parallel(wanted.hypotheses, wanted.references, wanted.src)
    remark(systems, wanted.hypotheses, wanted.references, wanted.metrics, wanted.tokenize, protocol=wanted.options.protocol is not None)
    scorers = {name: Scorer(name, references, replace(wanted.options, source=source)) for name in wanted.metrics}

    remark_on_scores(systems, scorers)

    tables: dict[str, list[Row]] = {}
    if len(systems) > 1:
        tables = compare(systems, scorers, test=wanted.test, samples=wanted.samples, seed=wanted.seed)
    elif wanted.confidence:
        tables = {name: [confidence(*systems[0], scorer, samples=wanted.samples or SAMPLES, seed=wanted.seed)] for name, scorer in scorers.items()}
    lengths = [by_length(lines, references[0], scorers, wanted.bounds) if wanted.bounds else [] for _, lines in systems]
    if wanted.as_json:
        output.write(_json(wanted, systems, scorers, tables, lengths))
    else:
        show(list(_texts(wanted, systems, scorers, tables, lengths)))


def _texts(
    wanted: Wanted, systems: Sequence[System], scorers: Mapping[str, Scorer], tables: Mapping[str, Sequence[Row]], lengths: Sequence[Sequence[Part]]
) -> Iterable[str | Table]:
    """What is printed for people, in order."""
    if len(systems) > 1:
        yield from (_compared(rows, wanted.width) for rows in tables.values())
    elif tables:
        yield "\n".join(_line(rows[0].score, wanted.width, rows[0]) for rows in tables.values())
    else:
        yield "\n".join(_line(scorer.score(systems[0][1]), wanted.width) for scorer in scorers.values())
    for (name, _), parts in zip(systems, lengths, strict=True):
        if parts:
            yield _by_length(name, parts, scorers, wanted.width)


def _line(score: Score, width: int | None, row: Row | None = None) -> str:
    width = _decimals(score.metric, width)
    sure = f"mean {row.mean:.{width}f}  ci95 {row.ci:.{width}f}  " if row else ""
    return f"{score.name:<5}  {score.value:>{width + 4}.{width}f}  {sure}{score.signature}  {score.details}".rstrip()


def _compared(rows: Sequence[Row], width: int | None) -> Table:
    """The metric and its signature, then `score mean ci95 p system`; the system comes last as it may hold spaces."""
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
    """`words lines ratio`, then a column a metric."""
    names = {name: part.scores[name].name for name in scorers for part in parts if part.scores}
    rows = [
        [part.bucket.name, str(len(part.bucket.lines)), "-" if part.ratio is None else f"{part.ratio:.3f}"]
        + [f"{part.scores[name].value:.{_decimals(name, width)}f}" if part.scores else "-" for name in names]
        for part in parts
    ]
    columns = [Column("words"), Column("lines", 6), Column("ratio", 5), *(Column(names[name], _decimals(name, width) + 4) for name in names)]
    return Table(f"{system}  by words of the reference", columns, rows)


def _json(wanted: Wanted, systems: Sequence[System], scorers: Mapping[str, Scorer], tables: Mapping[str, Sequence[Row]], lengths: Sequence[Sequence[Part]]) -> str:
    """An object for one system, a list of them for several."""
    import json

    values = []
    for number, (name, lines) in enumerate(systems):
        value: dict[str, Any] = {"hypothesis": name, "references": [str(path) for path in wanted.references], "lines": len(lines)}
        value["scores"] = {
            metric: _of_row(tables[metric][number], alone=len(systems) == 1) if tables else scorer.score(lines).as_dict() for metric, scorer in scorers.items()
        }
        for metric, scorer in scorers.items():
            if counts := scorer.counts(lines):
                value["scores"][metric]["counts"] = dict(counts)
        if wanted.options.protocol:
            value["protocol"] = _protocol(wanted.options)
        if lengths[number]:
            value["by_length"] = [part.as_dict() for part in lengths[number]]
        values.append(value)
    return json.dumps(values if len(values) > 1 else values[0], ensure_ascii=False, indent=2)


def _of_row(row: Row, *, alone: bool) -> dict[str, Any]:
    """A system alone has nothing to be tested against."""
    return {key: value for key, value in row.as_dict().items() if not (alone and key == "p_value")}


def _protocol(options: MetricOptions) -> dict[str, Any]:
    """The protocol's name, language and steps: name -> what stands in the signature."""
    from ..evaluation.protocols import steps

    protocol = options.protocol
    assert protocol is not None
    done = {name: label for name, (label, _) in steps(protocol).items()} | {"bleu": "multi-bleu"}
    return {"name": protocol.name, "language": protocol.language, "steps": done, "tokenized_references": protocol.tokenized_references}


def _decimals(metric: str, width: int | None) -> int:
    from ..evaluation.metrics import spec

    return width or spec(metric).decimals
