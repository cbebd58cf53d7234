"""`nmt score` by metrics: read the text, score it, print lines, tables or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..evaluation.lengths import BucketScores
from ..evaluation.metrics import Score, Scorer, spec
from ..evaluation.significance import Row
from ..interface.evaluation import Evaluation, evaluated
from ..interface.evaluation_options import EvaluationOptions
from . import output, output_checks
from .inputs import read_parallel, remark, remark_on_scores
from .table import Column, Table, show

SIGNIFICANT = 0.05
"""p-values below this number are marked with *."""


def score_by_metrics(
    hypotheses: list[Path],
    references: list[Path],
    src: Path | None,
    options: EvaluationOptions,
    as_json: bool,
    width: int | None,
) -> None:
    """Score every system by every metric and print the scores. `width`: decimals."""
    options.check(len(hypotheses))  # a wrong option is an error before any file is read
    systems, streams, source = read_parallel(hypotheses, references, src)
    remark(systems, hypotheses, references, src, options)
    evaluation = evaluated(systems, streams, source, options)
    remark_on_scores(evaluation, references)
    if as_json:
        output.write_json(_as_json(references, evaluation))
    else:
        show([*_texts(width, evaluation), *output_checks.texts(evaluation.outputs)])


def _texts(width: int | None, evaluation: Evaluation) -> Iterable[str | Table]:
    """Yield the parts of the text output, in order."""
    systems, scorers, tables, lengths = evaluation.systems, evaluation.scorers, evaluation.resampled, evaluation.lengths
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
    return (
        f"{score.name:<5}  {score.value:>{width + 4}.{width}f}  {interval}{score.signature}  {score.details}".rstrip()
    )


def _compared(rows: Sequence[Row], width: int | None) -> Table:
    """Return a table with the columns `score mean ci95 p system`; its title has metric and signature.

    The system is last because its name may contain spaces.
    """
    first = rows[0].score
    width = _decimals(first.metric, width)
    cells = []
    for row in rows:
        p = "-" if row.p_value is None else f"{row.p_value:.4f}" + "*" * (row.p_value < SIGNIFICANT)
        cells.append([*(f"{number:.{width}f}" for number in (row.score.value, row.mean, row.ci)), p, row.system])
    title = f"{first.name}  {first.signature}  ({'higher' if first.higher_is_better else 'lower'} is better)"
    numbers = [Column(name, max(width + 4, 5)) for name in ("score", "mean", "ci95")]
    return Table(title, [*numbers, Column("p", 7, left=True), Column("system", left=True)], cells)


def _by_length(system: str, parts: Sequence[BucketScores], scorers: Mapping[str, Scorer], width: int | None) -> Table:
    """Return a table with the columns `words lines ratio`, then one column per metric."""
    names = {name: part.scores[name].name for name in scorers for part in parts if part.scores}
    rows = [
        [part.bucket.name, str(len(part.bucket.lines)), "-" if part.ratio is None else f"{part.ratio:.3f}"]
        + [f"{part.scores[name].value:.{_decimals(name, width)}f}" if part.scores else "-" for name in names]
        for part in parts
    ]
    columns = [
        Column("words"),
        Column("lines", 6),
        Column("ratio", 5),
        *(Column(names[name], _decimals(name, width) + 4) for name in names),
    ]
    return Table(f"{system}  by words of the reference", columns, rows)


def _as_json(references: Sequence[Path], evaluation: Evaluation) -> Any:
    """Return for JSON one object for one system, a list of objects for several systems."""
    named = {"references": [str(path) for path in references]}
    values = [{"hypothesis": values["hypothesis"], **named, **values} for values in evaluation.as_dicts()]
    return values if len(values) > 1 else values[0]


def _decimals(metric: str, width: int | None) -> int:
    return width or spec(metric).decimals
