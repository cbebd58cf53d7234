"""`nmt score --metric evalb` beside EVALB itself, sentence by sentence.

    python benchmarks/evalb.py EVALB PARSES GOLD

EVALB is a folder with the compiled program `evalb` and its settings COLLINS.prm (nlp.cs.nyu.edu/evalb: `make` there). PARSES
and GOLD are trees in brackets, a line each. Prints the figures of both, and every sentence in which they differ: status,
matched constituents, those of the gold tree and of the parse, words, right parts of speech. Sentences with more than 200
words or constituents are beyond the memory of EVALB (its results on them are undefined), and are named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from common import print_rows

from nmt_cli.lines import read_parallel
from nmt_cli.parsing.evalb import Counts, f1, percent, score_line

MOST = 200
"""Words and constituents of a sentence for which EVALB has memory."""
SENTENCE = re.compile(
    r"\s*(?P<line>\d+)\s+\d+\s+(?P<status>[012])\s+[\d.]+\s+[\d.]+\s+(?P<matched>\d+)\s+(?P<gold>\d+)\s+(?P<test>\d+)\s+\d+\s+(?P<words>\d+)\s+(?P<tags>\d+)\s+[\d.]+"
)
"""A sentence in EVALB's report: status 0 valid, 1 an error, 2 skipped (the program, not its comments)."""
SHARES = ("Bracketing Recall", "Bracketing Precision", "Bracketing FMeasure", "Complete match", "Tagging accuracy")


def reported(program: Path, parses: Path, gold: Path) -> str:
    """Return what EVALB prints; it goes on after any number of errors."""
    command = [str(program / "evalb"), "-p", str(program / "COLLINS.prm"), "-e", "1000000000", str(gold), str(parses)]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", errors="replace")


def sentences(report: str) -> list[Counts]:
    """Return EVALB's figures of each sentence."""
    counts = []
    for line in report.partition("=== Summary ===")[0].splitlines():
        match = SENTENCE.match(line)
        if match:
            status = int(match["status"])
            matched, gold, test, words, tags = (
                int(match[name]) if status == 0 else 0 for name in ("matched", "gold", "test", "words", "tags")
            )
            counts.append(
                Counts(
                    matched,
                    gold,
                    test,
                    valid=int(status == 0),
                    skipped=int(status == 2),
                    errors=int(status == 1),
                    words=words,
                    correct_tags=tags,
                )
            )
    return counts


def figures(counts: Counts) -> dict[str, str]:
    """Return nmt's figures under EVALB's names."""
    shares = (
        percent(counts.matched, counts.gold),
        percent(counts.matched, counts.test),
        f1(counts),
        percent(counts.complete, counts.valid),
        percent(counts.correct_tags, counts.words),
    )
    numbers = zip(("Valid", "Error", "Skip "), (counts.valid, counts.errors, counts.skipped), strict=True)
    return {
        **{f"Number of {status} sentence": f"{count}" for status, count in numbers},
        **{name: f"{share:.2f}" for name, share in zip(SHARES, shares, strict=True)},
    }


def main() -> None:
    """Count with both, print the figures and the differences; exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("evalb", "parses", "gold"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    pairs = list(read_parallel([options.gold], [options.parses]))
    report = reported(options.evalb, options.parses, options.gold)
    theirs, ours = (
        sentences(report),
        [score_line(gold, parse, number, False)[0] for number, (gold, parse) in enumerate(pairs, 1)],
    )
    if len(theirs) != len(ours):
        sys.exit(f"EVALB reports {len(theirs):,} sentences, the files have {len(ours):,}")
    summary = dict(re.findall(r"^(.+?)\s+=\s+([\d.]+)$", report.partition("-- len<=40 --")[0], re.MULTILINE))
    mine = figures(Counts(*map(sum, zip(*ours, strict=True))))
    print_rows(
        [["", "EVALB", "nmt"], *([" ".join(name.split()), summary[name], value] for name, value in mine.items())], True
    )
    different = [
        number
        for number, pair in enumerate(zip(theirs, ours, strict=True), 1)
        if len({counts._replace(complete=0, repaired=0) for counts in pair}) > 1
    ]
    long = [number for number, pair in enumerate(pairs, 1) if max(tree.count("(") for tree in pair) > MOST]
    for what, lines in (("counted differently", different), (f"with more than {MOST} brackets", long)):
        print(
            f"{len(lines):,} of {len(ours):,} sentences {what}{': lines ' + ', '.join(map(str, lines)) if lines else ''}"
        )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
