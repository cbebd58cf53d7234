"""What each search costs, and how good its translations are; or whether a search depends on the batch.

    python benchmarks/searches.py MODEL --source FILE --reference FILE [--only NAME,NAME] [--markdown]
    python benchmarks/searches.py MODEL --source FILE --reference FILE --invariance [--markdown]

Precision is fp32, one process, one core. The first form translates the file with each search of `SEARCHES` and prints
BLEU and chrF (sacrebleu), seconds, and the outputs that are empty, loops or copies of the source, as `nmt score --source`
counts them. Beam search with a beam of 4 is timed again after each search; the ratio is to the median of these times.
Seconds are those of the translation alone, without the loading of the model.

The second form translates the first 1,000 lines at once, and again in groups of 1, 8, 64 and 256 lines, each group by
itself. The hypotheses of a line, their scores and their log-probabilities must be equal to the last bit. The table counts
lines that are equal and lines that differ; if one differs, the exit status is 1. Sampling has a fixed seed, so it is
checked too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import parallel_lines, print_rows, setup, timed
from sacrebleu import corpus_bleu, corpus_chrf

from nmt_cli.evaluation.outputs import check_outputs, count_faults
from nmt_cli.interface.options import TranslateOptions
from nmt_cli.interface.translator import load
from nmt_cli.translation.line_translator import LineTranslator
from nmt_cli.translation.translation import Translation


@dataclass(frozen=True)
class SearchRun:
    """A search and its options."""

    label: str
    """What the table calls it."""
    options: TranslateOptions

    @property
    def hypotheses(self) -> int:
        """Hypotheses per line."""
        return self.options.get("beam") or self.options.get("mbr_samples") or 1


BEAM_4 = "beam-4"
"""The search that the others are compared with."""
SEARCHES = {
    BEAM_4: SearchRun("beam 4", {"beam": 4}),
    "beam-1": SearchRun("beam 1", {"beam": 1}),
    "beam-8": SearchRun("beam 8", {"beam": 8}),
    "average": SearchRun("beam 4, length penalty average", {"beam": 4, "length_penalty": "average"}),
    "none": SearchRun("beam 4, length penalty none", {"beam": 4, "length_penalty": "none"}),
    "coverage": SearchRun("beam 4, coverage penalty 0.2", {"beam": 4, "coverage_penalty": 0.2}),
    "no-repeat": SearchRun("beam 4, no repeated 3-grams", {"beam": 4, "no_repeat_ngram": 3}),
    "repetition": SearchRun("beam 4, repetition penalty 1.1", {"beam": 4, "repetition_penalty": 1.1}),
    "diverse-4": SearchRun("diverse, beam 4, 4 groups", {"search": "diverse", "beam": 4, "diverse_groups": 4}),
    "diverse-8": SearchRun("diverse, beam 8, 4 groups", {"search": "diverse", "beam": 8, "diverse_groups": 4}),
    "sample": SearchRun("sample, temperature 1", {"search": "sample", "temperature": 1.0}),
    "top-p": SearchRun("sample, top-p 0.9", {"search": "sample", "top_p": 0.9}),
    "min-p": SearchRun("sample, min-p 0.05", {"search": "sample", "min_p": 0.05}),
    "mbr-chrf": SearchRun("MBR, 100 samples, chrF", {"search": "mbr", "mbr_utility": "chrf", "mbr_samples": 100}),
    "mbr-bleu": SearchRun("MBR, 100 samples, BLEU", {"search": "mbr", "mbr_utility": "bleu", "mbr_samples": 100}),
    "mbr-beam": SearchRun(
        "MBR, 50 hypotheses of beam search, chrF", {"search": "mbr", "mbr_candidates": "beam", "mbr_samples": 50}
    ),
}
"""By the name that --only takes."""
SIZES = (1, 8, 64, 256)
"""Lines of a group."""
INVARIANCE_LINES = 1000
WARMUP = 8
"""Lines that each search translates before it is timed."""


@dataclass(frozen=True)
class Subject:
    """A model and a text. `settings` are changes of [decode] for all searches."""

    model: Path
    settings: list[str]
    source: list[str]
    references: list[str]

    def translator(self, name: str, nbest: int = 1) -> LineTranslator:
        """Return a translator with the search of this name, on one core."""
        options: TranslateOptions = {"search": "beam", **SEARCHES[name].options}
        loaded = load(self.model, device="cpu", devices=1, precision="fp32")
        return loaded.with_options({**options, "nbest": nbest, "overrides": self.settings})


def warm(subject: Subject, name: str) -> LineTranslator:
    """Return a translator that has translated a few lines."""
    translator = subject.translator(name)
    list(translator.translate(subject.source[:WARMUP]))
    return translator


def compare(subject: Subject, names: Sequence[str]) -> tuple[dict[str, list[Translation]], dict[str, list[float]]]:
    """Translate with beam 4 and these searches. Return the results and the seconds of each; beam 4 has several."""
    beam_4 = warm(subject, BEAM_4)
    results, seconds = timed(beam_4, subject.source)
    outputs, times = {BEAM_4: results}, {BEAM_4: [seconds]}
    for name in names:
        if name != BEAM_4:
            outputs[name], seconds = timed(warm(subject, name), subject.source)
            times[name] = [seconds]
            times[BEAM_4].append(timed(beam_4, subject.source)[1])
            progress(f"{name}: {seconds:.1f} s, beam 4 {times[BEAM_4][-1]:.1f} s")
    return outputs, times


def table(
    subject: Subject, outputs: Mapping[str, Sequence[Translation]], times: Mapping[str, Sequence[float]]
) -> list[list[str]]:
    """Return the rows of the table of quality and time: the heads, then the searches."""
    rows = [["search", "BLEU", "chrF", "seconds", "÷ beam 4", "empty", "loops", "copies"]]
    for name, results in outputs.items():
        seconds, usual = (statistics.median(times[key]) for key in (name, BEAM_4))
        scores, errors = quality(subject, [result.text for result in results])
        rows.append([SEARCHES[name].label, *scores, f"{seconds:.1f}", f"{seconds / usual:.2f}", *errors])
    return rows


def quality(subject: Subject, hypotheses: list[str]) -> tuple[list[str], list[str]]:
    """Return BLEU and chrF, and the numbers of empty outputs, loops and copies."""
    scores = [corpus_bleu(hypotheses, [subject.references]).score, corpus_chrf(hypotheses, [subject.references]).score]
    errors = count_faults(check_outputs(subject.source, hypotheses, [subject.references]))
    return [f"{score:.2f}" for score in scores], [f"{errors[error]:,}" for error in ("empty", "loops", "copies")]


def invariance(subject: Subject, names: Sequence[str], alone: int) -> tuple[list[list[str]], bool]:
    """Return the rows of the table of equal and different lines, and whether all are equal.

    `alone`: lines of the groups of one line, which take long.
    """
    rows, all_equal = [["search, equal / different", *(f"groups of {size}" for size in SIZES)]], True
    for name in names:
        began = time.perf_counter()
        translator = subject.translator(name, nbest=SEARCHES[name].hypotheses)
        together = list(translator.translate(subject.source))
        row = [SEARCHES[name].label]
        for size in SIZES:
            lines = subject.source[: alone if size == 1 else None]
            equal = sum(
                same(grouped, ungrouped)
                for grouped, ungrouped in zip(in_groups(translator, lines, size), together, strict=False)
            )
            all_equal &= equal == len(lines)
            row.append(f"{equal:,} / {len(lines) - equal:,}")
        rows.append(row)
        progress(f"{name}: {', '.join(row[1:])}; {time.perf_counter() - began:.0f} s")
    return rows, all_equal


def in_groups(translator: LineTranslator, lines: Sequence[str], size: int) -> list[Translation]:
    """Translate each group of `size` lines by itself."""
    return [
        result for start in range(0, len(lines), size) for result in translator.translate(lines[start : start + size])
    ]


def same(one: Translation, other: Translation) -> bool:
    """Return whether the hypotheses of two results have the same texts, scores and log-probabilities."""
    first, second = ([(c.text, c.score, c.log_prob) for c in result.nbest] for result in (one, other))
    return first == second


def progress(text: str) -> None:
    """Print on stderr."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Translate the file with each search and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="model or run folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument(
        "--lines",
        type=int,
        default=0,
        help=f"lines of the file, from its beginning; default: all, with --invariance {INVARIANCE_LINES}",
    )
    parser.add_argument(
        "--only", default=",".join(SEARCHES), metavar="NAME,NAME", help="searches; default: %(default)s"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="decode.KEY=VALUE",
        help="change the recipe's [decode] for all searches, as decode.alpha=1.2",
    )
    parser.add_argument("--invariance", action="store_true", help="compare groups of lines instead of searches")
    parser.add_argument(
        "--invariance-lines", type=int, default=100, help="lines of the groups of one line; default: %(default)s"
    )
    parser.add_argument(
        "--outputs", type=Path, metavar="FOLDER", help="write the outputs of each search to FOLDER/NAME.txt"
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in SEARCHES]:
        parser.error(f"--only {','.join(unknown)!r}: expected {', '.join(SEARCHES)}")
    setup(1)
    count = options.lines or (INVARIANCE_LINES if options.invariance else 0)
    subject = Subject(options.model, options.set, *parallel_lines(options.source, options.reference, count))
    print(f"{len(subject.source):,} lines", flush=True)
    if options.invariance:
        rows, all_equal = invariance(subject, names, options.invariance_lines)
        print_rows(rows, options.markdown)
        sys.exit(0 if all_equal else 1)
    outputs, times = compare(subject, names)
    print_rows(table(subject, outputs, times), options.markdown)
    for name in outputs if options.outputs else ():
        options.outputs.mkdir(parents=True, exist_ok=True)
        (options.outputs / f"{name}.txt").write_text(
            "".join(f"{result.text}\n" for result in outputs[name]), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
