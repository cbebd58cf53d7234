"""EVALB as a metric: labelled bracket precision, recall and F1 of parses, and the accuracy of their parts of speech, if
they have any. `evalb` computes the counts.

    gold line, parse line ──▶ evalb.score_line ──▶ a row of `BracketCounts` per sentence ──▶ sums ──▶ P, R, F1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import __version__
from ..errors import UsageError, listed
from ..evaluation.metric import MetricSpec, SentenceStatisticsMetric
from .evalb import ROOTED, TAGGED, BracketCounts, f1, percent, read, score_line

SHOWN = 3
"""Maximum number of lines that a remark describes. The other lines are only counted."""


class Evalb(SentenceStatisticsMetric):
    """EVALB; a row is the `BracketCounts` of a sentence.

    `repair`: compare over the words and parts of speech of the reference.
    """

    def __init__(self, repair: bool = False) -> None:
        super().__init__("EVALB", version=f"nmt-{__version__}")
        self.repair = repair

    def signature_entries(self) -> Mapping[str, str]:
        return {"labelled": "yes", "prm": "COLLINS", "words": "ref" if self.repair else "hyp"}

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[BracketCounts]:
        """See `Metric`.

        Raises UsageError for several references, DataError for a reference that is not a tree and for a linearised
        parse.
        """
        if len(references) != 1:
            raise UsageError(
                f"evalb compares with one tree a sentence, {len(references)} references were given. Give --ref "
                "once, or leave the metric out."
            )
        pairs = enumerate(zip(references[0], hypotheses, strict=True), 1)
        rows = [score_line(gold, line, number, self.repair)[0] for number, (gold, line) in pairs]
        if any(map(TAGGED.search, hypotheses)):
            return rows
        return [row._replace(words=0, correct_tags=0) for row in rows]

    def remarks(
        self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Iterator[str]:
        """Yield remarks about sentences that do not count, with the reasons, and about roots that count."""
        counts = [BracketCounts(*map(int, row)) for row in rows]
        errors = [line for line, row in enumerate(counts) if row.errors]
        skipped = [line for line, row in enumerate(counts) if row.skipped]
        if errors:
            reasons = [
                f"line {line + 1:,}: {score_line(references[0][line], hypotheses[line], line + 1, self.repair)[1]}"
                for line in errors[: SHOWN + 1]
            ]
            yield (
                f"{len(errors):,} of {len(rows):,} sentences have the status error and do not count, as in EVALB: "
                f"{listed(reasons, SHOWN, '; ')}."
                + " To compare over the words and parts of speech of the reference instead, give --evalb-repair."
                * (not self.repair)
            )
        if skipped:
            yield (
                f"{len(skipped):,} of {len(rows):,} sentences are skipped and do not count, as in EVALB, for the "
                f"parse has no words that count: line {listed([f'{line + 1:,}' for line in skipped], SHOWN)}."
            )
        rooted = [sum(bool(ROOTED.match(line)) for line in lines) for lines in (references[0], hypotheses)]
        if any(rooted) and not self.repair:
            yield (
                f"{rooted[0]:,} references and {rooted[1]:,} parses have a root called ROOT, S1 or nothing, "
                "which counts as a constituent: COLLINS.prm deletes TOP alone. "
                "Call it TOP on both sides if it should not count."
            )

    def words(self, line: str) -> int:
        """See `Metric`. Brackets, labels and parts of speech are no words."""
        return len(read(line).leaves)

    def value(self, sums: Sequence[float]) -> float:
        return f1(BracketCounts(*map(int, sums)))

    def counts(self, sums: Sequence[float]) -> dict[str, int]:
        """See `Metric`. Words and their tags are left out if the parses have no parts of speech."""
        counts = BracketCounts(*map(int, sums))._asdict()
        left_out = () if counts["words"] else ("words", "correct_tags")
        return {name: count for name, count in counts.items() if name not in left_out}

    def details(self, sums: Sequence[float]) -> str:
        counts = BracketCounts(*map(int, sums))
        tagging = f"tagging accuracy {percent(counts.correct_tags, counts.words):.2f} " if counts.words else ""
        return (
            f"P {percent(counts.matched, counts.test):.2f} R {percent(counts.matched, counts.gold):.2f} "
            f"complete {percent(counts.complete, counts.valid):.2f} {tagging}"
            f"(matched = {counts.matched} gold = {counts.gold} test = {counts.test} valid = {counts.valid} "
            f"skipped = {counts.skipped} errors = {counts.errors} repaired = {counts.repaired})"
        )


SPEC = MetricSpec(lambda options: Evalb(options.evalb_repair))
