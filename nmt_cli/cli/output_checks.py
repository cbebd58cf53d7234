"""The checks of the outputs in `nmt score --src`: their counts as a table, and the worst lines, as text and for JSON.

    systems, references, source ──▶ checked ──▶ one SystemOutputs per system ──▶ texts or as_dict

`evaluation.outputs` finds the faults. Shown text is one row per text: its middle is left out where the row is too short,
and control characters are written as their numbers.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluation.metric import MetricOptions
from ..evaluation.metrics import Scorer
from ..evaluation.outputs import check_outputs, count_faults, worst_lines
from .inputs import System
from .table import Column, Table

WORST = 5
"""Lines shown without --worst."""
ROW = 200
"""Characters of a row where the output is no terminal."""
NARROWEST = 40
JOINERS = "\u200c\u200d"
"""Invisible characters that the spelling of some scripts needs. They are harmless."""


@dataclass(frozen=True)
class Line:
    """One of the worst lines."""

    number: int
    """From 1."""
    faults: tuple[str, ...]
    chrf: float
    """sacrebleu's sentence chrF, against all references."""
    source: str
    hypothesis: str
    reference: str
    """The first one."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `line`, `faults`, `chrf`, `source`, `hypothesis`, `reference`, all unshortened."""
        return {
            "line": self.number, "faults": list(self.faults), "chrf": self.chrf,
            "source": self.source, "hypothesis": self.hypothesis, "reference": self.reference,
        }  # fmt: skip


@dataclass(frozen=True)
class SystemOutputs:
    """What the checks say about one system."""

    system: str
    lines: int
    counts: Mapping[str, int]
    """Lines with each fault."""
    worst: Sequence[Line]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `lines`, a count per fault, `worst`."""
        return {"lines": self.lines, **self.counts, "worst": [line.as_dict() for line in self.worst]}


def checked(
    systems: Sequence[System], references: Sequence[Sequence[str]], source: Sequence[str] | None, scorers: Mapping[str, Scorer], options: MetricOptions, most: int
) -> list[SystemOutputs]:
    """Return the checks of every system, with up to `most` of its worst lines; an empty list without a source.

    If chrF is one of `scorers`, its statistics are used again.
    """
    if source is None:
        return []
    chrf = scorers.get("chrf") or Scorer("chrf", references, options)
    results = []
    for name, hypotheses in systems:
        faults = check_outputs(source, hypotheses, references)
        not_blank = [line for line, (text, output) in enumerate(zip(source, hypotheses, strict=True)) if text.strip() or output.strip()]
        scores = {line: chrf.score(hypotheses, [line]).value for line in not_blank} if most else {}
        worst = [
            Line(line + 1, faults[line], scores[line], source[line], hypotheses[line], references[0][line])
            for line in worst_lines(faults, scores, most)
        ]  # fmt: skip
        results.append(SystemOutputs(name, len(hypotheses), count_faults(faults), worst))
    return results


def texts(results: Sequence[SystemOutputs]) -> Iterable[str | Table]:
    """Yield the table of counts, then the worst lines of each system."""
    if not results:
        return
    names = list(results[0].counts)
    rows = [[str(result.lines), *(str(result.counts[name]) for name in names), result.system] for result in results]
    yield Table("outputs  (lines with a fault)", [Column("lines", 6), *(Column(name) for name in names), Column("system", left=True)], rows)
    width = max(shutil.get_terminal_size().columns, NARROWEST) if sys.stdout.isatty() else ROW
    for result in results:
        if result.worst:
            yield "\n".join([f"{result.system}  worst lines", *(_shown(line, width) for line in result.worst)])


def _shown(line: Line, width: int) -> str:
    """Return a line with the number, the faults and chrF, then one each for source, hypothesis and reference."""
    sides = (("SRC", line.source), ("HYP", line.hypothesis), ("REF", line.reference))
    head = f"line {line.number}  {', '.join(line.faults) or 'no fault'}  chrF2 {line.chrf:.2f}"
    return "\n".join([head, *(f"  {side}  {shortened(visible(text), width - 7)}".rstrip() for side, text in sides)])


def visible(text: str) -> str:
    """Return text that cannot control a terminal: control characters as their numbers, such as \\x1b, and every space as a plain one."""
    return "".join(
        character if character.isprintable() or character in JOINERS
        else " " if unicodedata.category(character) == "Zs"
        else repr(character)[1:-1]
        for character in text
    )  # fmt: skip


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` columns of a terminal: "…" replaces its middle where it is longer."""
    columns = [_columns(character) for character in text]
    if sum(columns) <= width:
        return text
    return _fitting(text, (width - 1) - (width - 1) // 2) + "…" + _fitting(text[::-1], (width - 1) // 2)[::-1]


def _fitting(text: str, width: int) -> str:
    """Return the longest beginning of `text` that fits into `width` columns."""
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return text[:index]
    return text


def _columns(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
