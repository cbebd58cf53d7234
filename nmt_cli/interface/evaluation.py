"""`nmt score` as a function: translations against references, by metrics, with significance and checks of the outputs.

    lines or files ──▶ evaluate
        ──▶ Evaluation: scores, resampled rows, scores by length, errors of the outputs, for each system

The package `evaluation` computes these parts; this file puts them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..console import status
from ..errors import DataError, UsageError
from ..evaluation.lengths import BucketScores, by_length
from ..evaluation.metric import MetricOptions, Protocol
from ..evaluation.metrics import Score, Scorer, check_parallel
from ..evaluation.outputs import check_outputs, count_faults, worst_lines
from ..evaluation.references import remarks as reference_remarks
from ..evaluation.significance import BOOTSTRAP, SEED, Row, compare
from ..evaluation.significance import remark as few_differences
from ..options import with_keywords
from ..text.lines import decoded_lines, open_binary
from .evaluation_options import EvaluationOptions, Text
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    import nmt_cli

WORST = 5
"""Number of worst lines by default, without --worst."""
HYPOTHESIS = "hypothesis"
"""The name of a system that was given without a name."""

System = tuple[str, Sequence[str]]
"""The name of a system, and its lines."""


@dataclass(frozen=True)
class WorstLine:
    """A line that the checks of the outputs rank among the worst."""

    line: int
    """Its number, from 1."""
    faults: tuple[str, ...]
    chrf: float
    """sacrebleu's sentence chrF, against all references."""
    source: str
    hypothesis: str
    reference: str
    """The line of the first reference that has text."""


@dataclass(frozen=True)
class SystemOutputs:
    """The results of the checks for one system."""

    system: str
    lines: int
    counts: Mapping[str, int]
    """Number of lines with each kind of error."""
    worst: Sequence[WorstLine]

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: `lines`, a count per kind of error, `worst`."""
        return {"lines": self.lines, **self.counts, "worst": [asdict(line) for line in self.worst]}


def _checked(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    source: Sequence[str] | None,
    scorers: Mapping[str, Scorer],
    options: MetricOptions,
    most: int,
) -> list[SystemOutputs]:
    """Return the results of the checks for every system, with up to `most` of its worst lines; an empty list without a
    source.

    If chrF is one of `scorers`, its statistics are reused.
    """
    if source is None:
        return []
    chrf = scorers.get("chrf") or Scorer("chrf", references, options)
    results = []
    for name, hypotheses in systems:
        errors = check_outputs(source, hypotheses, chrf.references)
        not_blank = [
            line
            for line, (text, output) in enumerate(zip(source, hypotheses, strict=True))
            if text.strip() or output.strip()
        ]
        scores = {line: chrf.score(hypotheses, [line]).value for line in not_blank} if most else {}
        worst = [
            WorstLine(line + 1, errors[line], scores[line], source[line], hypotheses[line], chrf.references[0][line])
            for line in worst_lines(errors, scores, most)
        ]
        results.append(SystemOutputs(name, len(hypotheses), count_faults(errors), worst))
    return results


@dataclass(frozen=True)
class Evaluation:
    """The scores of one or several systems."""

    systems: Sequence[System]
    scorers: Mapping[str, Scorer]
    """A scorer per metric."""
    resampled: Mapping[str, Sequence[Row]]
    """For each metric, a row per system with mean, interval and p-value; empty if nothing was resampled."""
    lengths: Sequence[Sequence[BucketScores]]
    """For each system, its scores by length; empty if they were not asked for."""
    outputs: Sequence[SystemOutputs]
    """For each system, the checks of its outputs; empty without a source."""
    references: Sequence[Sequence[str]]
    test: str = BOOTSTRAP
    """The test of significance."""
    protocol: Protocol | None = None

    def scores(self, system: str | None = None) -> dict[str, Score]:
        """Return the scores of the named system by metric; without a name, those of the first system.

        Raises UsageError for an unknown name.
        """
        lines = next((lines for name, lines in self.systems if system in (None, name)), None)
        if lines is None:
            raise UsageError(
                f"there is no system {system!r}: expected {', '.join(repr(name) for name, _ in self.systems)}."
            )
        return {metric: scorer.score(lines) for metric, scorer in self.scorers.items()}

    def remarks(self, names: Sequence[str] = (), named: Callable[[str], str] = repr) -> list[str]:
        """Return what the user should know about the scores: lines that do not count, missing references, and the like.

        `names`: the names of the references. `named`: how to write the name of a system.
        """
        names = names or [f"reference {number}" for number in range(1, len(self.references) + 1)]
        texts: dict[str, list[str]] = {}
        """Remark → the systems that it concerns."""
        remarks = [
            remark
            for name, lines in self.systems
            for remark in reference_remarks(named(name), lines, self.references, names)
        ]
        for name, lines in self.systems:
            for text in (text for scorer in self.scorers.values() for text in scorer.remarks(lines)):
                texts.setdefault(text, []).append(named(name))
        remarks += [f"{', '.join(systems)}: {text}" for text, systems in texts.items()]
        first = named(self.systems[0][0])
        for number, (name, lines) in enumerate(self.systems):
            rows = [rows[number] for rows in self.resampled.values()]
            if few := few_differences(first, rows, len(lines), self.test):
                remarks.append(f"{named(name)}: {few}")
        return list(dict.fromkeys(remarks))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for JSON per system: `hypothesis`, `lines`, `scores`, and, if they were asked for,
        `protocol`, `by_length`, `outputs`.
        """
        return [self._as_dict(number) for number in range(len(self.systems))]

    def _as_dict(self, number: int) -> dict[str, Any]:
        name, lines = self.systems[number]
        rows = {metric: rows[number].as_dict() for metric, rows in self.resampled.items()}
        if len(self.systems) == 1:  # one system alone is not compared
            rows = {
                metric: {key: value for key, value in row.items() if key not in ("p_value", "differing_lines")}
                for metric, row in rows.items()
            }
        scores = rows or {metric: scorer.score(lines).as_dict() for metric, scorer in self.scorers.items()}
        for metric, scorer in self.scorers.items():
            if counts := scorer.counts(lines):
                scores[metric]["counts"] = dict(counts)
        value: dict[str, Any] = {"hypothesis": name, "lines": len(lines), "scores": scores}
        if self.protocol:
            value["protocol"] = _protocol(self.protocol)
        if self.lengths[number]:
            value["by_length"] = [part.as_dict() for part in self.lengths[number]]
        if self.outputs:
            value["outputs"] = self.outputs[number].as_dict()
        return value


@with_keywords(EvaluationOptions)
def evaluate(
    hypotheses: Text | Mapping[str, Text],
    references: Sequence[Text],
    *,
    progress: ProgressOption = None,
    **options: Unpack[nmt_cli.EvaluationKeywords],
) -> Evaluation:
    """Score translations, or several systems by name, against references. `nmt score --help` describes the options.

    `references` is a list of texts, each parallel to the translations.

    A text is a list of lines, or a `pathlib.Path`. If there are several systems, each is compared with the first. If
    `source` is given, the outputs are checked. Raises UsageError, DataError.
    """
    chosen = EvaluationOptions(**options)
    for what, value in (("references", references), ("metrics", chosen.metrics)):
        if isinstance(value, str | Path):
            raise UsageError(f"{what} {str(value)[:60]!r}: expected a list of them.")
    name = str(hypotheses) if isinstance(hypotheses, Path) else HYPOTHESIS
    systems = hypotheses if isinstance(hypotheses, Mapping) else {name: hypotheses}
    chosen.check(len(systems))
    with showing(progress):
        return evaluated(
            [(name, _lines(text, name)) for name, text in systems.items()],
            [_lines(text, "a reference") for text in references],
            _lines(chosen.source, "the source") if chosen.source is not None else None,
            chosen,
        )


def evaluated(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    source: Sequence[str] | None,
    options: EvaluationOptions,
) -> Evaluation:
    """Return the evaluation of systems whose lines are in memory, parallel to each reference."""
    if not systems:
        raise UsageError("there is nothing to score: give one system or more.")
    for name, lines in systems:
        check_parallel(lines, references)
        if source is not None and len(source) != len(lines):
            raise DataError(
                f"{name!r} has {len(lines):,} lines and the source {len(source):,}: they must be parallel, "
                "line by line."
            )
    if not any(line.strip() for reference in references for line in reference):
        raise DataError("there is nothing to score: all lines of the references are blank.")
    metric_options = options.metric_options
    scorers = {name: Scorer(name, references, replace(metric_options, source=source)) for name in options.names}
    resampled = _resampled(systems, scorers, options)
    bounds = options.bounds
    present = next(iter(scorers.values())).references[0]
    lengths = [by_length(lines, present, scorers, bounds) if bounds else [] for _, lines in systems]
    outputs = _checked(
        systems, references, source, scorers, metric_options, WORST if options.worst is None else options.worst
    )
    test = options.significance or BOOTSTRAP
    return Evaluation(systems, scorers, resampled, lengths, outputs, references, test, metric_options.protocol)


def _resampled(
    systems: Sequence[System], scorers: Mapping[str, Scorer], options: EvaluationOptions
) -> dict[str, list[Row]]:
    """Return for each metric one row per system; empty if no resampling was asked for."""
    if len(systems) == 1 and not options.confidence:
        return {}
    test, seed = options.significance or BOOTSTRAP, options.seed or SEED
    with status("resampling the test set"):
        return compare(systems, scorers, test=test, samples=options.samples, seed=seed)


def _protocol(protocol: Protocol) -> dict[str, Any]:
    """Return the protocol's name, language and steps (name → label in the signature) for JSON."""
    from ..evaluation.protocols import steps

    labels = {name: label for name, (label, _) in steps(protocol).items()} | {"bleu": "multi-bleu"}
    return {
        "name": protocol.name,
        "language": protocol.language,
        "steps": labels,
        "tokenized_references": protocol.tokenized_references,
    }


def _lines(text: Text, name: str) -> Sequence[str]:
    """Return the lines of a text as one list: a `Scorer` recognises a system by the identity of its list.

    Raises UsageError, DataError.
    """
    if isinstance(text, str):
        raise UsageError(f"{name} is the text {text[:60]!r}: expected a list of lines, or a pathlib.Path.")
    if not isinstance(text, Path):
        return list(text)
    replaced = Counter[str]()
    with open_binary(text) as stream:
        lines = list(decoded_lines(stream, str(text), replaced))
    if replaced:
        raise DataError(f"{str(text)!r}: {replaced.total():,} lines hold invalid UTF-8. Convert the file to UTF-8.")
    return lines
