"""How well terms are used: words of the references that the translations must contain.

    python benchmarks/terms.py MODEL --source FILE --reference FILE [--lines N] [--markdown]

For each line, terms are drawn from its reference: always the same ones with one seed. Each kind of terms (`KINDS`) is
translated without terms and with them, as `nmt translate --terms` does, with each beam, in fp32, on one core. The columns:

- in free outputs, in outputs with terms: the share of the terms that are there as whole words. A term that was given twice
  counts twice;
- of the missing: of the terms that the free outputs lack, the share that the outputs with terms contain;
- BLEU (sacrebleu) of both;
- BLEU of the rest: one occurrence of each term is removed from output and reference. So the words that were given do not
  count, only the others;
- time: seconds with terms, divided by the median of the seconds without. The free translation is timed again for each kind;
- length: characters of the outputs with terms, divided by those of the free ones.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import parallel_lines, print_rows, setup, timed
from sacrebleu import corpus_bleu

from nmt_cli.interface.translator import load
from nmt_cli.translation.line_translator import LineTranslator, Request

WORD = re.compile(r"\w+")
ATTEMPTS = 40
"""Phrases that are drawn for one line, at most."""


@dataclass(frozen=True)
class Kind:
    """The terms of a line: at most `count`, each of one to `longest` words."""

    count: int
    longest: int


KINDS = {
    "one word": Kind(1, 1),
    "two words": Kind(2, 1),
    "a phrase of up to three words": Kind(1, 3),
    "three terms of up to two words": Kind(3, 2),
    "ten words": Kind(10, 1),
}
HEADS = [
    "terms",
    "beam",
    "number",
    "in free outputs",
    "in outputs with terms",
    "of the missing",
    "BLEU, free",
    "BLEU, with terms",
    "BLEU of the rest, free",
    "BLEU of the rest, with terms",
    "time",
    "length",
]


def drawn_terms(reference: str, kind: Kind, rng: random.Random) -> list[str]:
    """Return terms of this kind: words that are next to each other in the reference, each word in one term at most."""
    words = WORD.findall(reference)
    terms: list[str] = []
    used: set[int] = set()
    for _ in range(ATTEMPTS if words else 0):
        length = min(rng.randint(1, kind.longest), len(words))
        start = rng.randrange(len(words) - length + 1)
        phrase = " ".join(words[start : start + length])
        if used.isdisjoint(range(start, start + length)) and occurrences(
            phrase, reference
        ):  # none where a comma is between the words
            used.update(range(start, start + length))
            terms.append(phrase)
        if len(terms) == kind.count:
            break
    return terms


def whole_words(term: str) -> re.Pattern[str]:
    """Return the pattern of a term that is not a part of a longer word."""
    return re.compile(rf"(?<!\w){re.escape(term)}(?!\w)")


def occurrences(term: str, text: str) -> int:
    """Return how often the text contains the term."""
    return len(whole_words(term).findall(text))


def satisfied(terms: Sequence[str], output: str) -> Counter[str]:
    """Return how often the output contains each term, at most as often as it was given."""
    return Counter({term: min(count, occurrences(term, output)) for term, count in Counter(terms).items()})


def without(terms: Sequence[str], text: str) -> str:
    """Return the text without one occurrence of each term, the longest terms first."""
    for term in sorted(terms, key=len, reverse=True):
        text = whole_words(term).sub("", text, count=1)
    return " ".join(text.split())


def term_columns(terms: Sequence[Sequence[str]], free: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Return the number of terms, their shares in both outputs, and the share of the missing ones that the second has."""
    total = sum(map(len, terms))
    before, after = ([satisfied(*pair) for pair in zip(terms, texts, strict=True)] for texts in (free, outputs))
    missing = total - sum(map(Counter.total, before))
    gained = sum((now - then).total() for now, then in zip(after, before, strict=True))
    return [
        f"{total:,}",
        *(share(sum(map(Counter.total, counts)), total) for counts in (before, after)),
        share(gained, missing),
    ]


def share(part: int, total: int) -> str:
    """Return a share in percent."""
    return f"{100 * part / total:.2f} %" if total else "–"


def bleu_columns(
    terms: Sequence[Sequence[str]], free: Sequence[str], outputs: Sequence[str], references: Sequence[str]
) -> list[str]:
    """Return BLEU of both outputs, and of the rest of both."""
    stripped = [[without(*pair) for pair in zip(terms, texts, strict=True)] for texts in (free, outputs, references)]
    scores = [corpus_bleu(texts, [references]) for texts in (free, outputs)] + [
        corpus_bleu(texts, [stripped[2]]) for texts in stripped[:2]
    ]
    return [f"{score.score:.2f}" for score in scores]


def measure(
    free_search: LineTranslator, with_terms: LineTranslator, source: Sequence[str], references: Sequence[str], seed: int
) -> list[list[str]]:
    """Return a row for each kind of terms, without the column of the beam."""
    rows, free_times, times = [], [], []
    for name, kind in KINDS.items():
        rng = random.Random(seed)
        terms = [drawn_terms(reference, kind, rng) for reference in references]
        requests = [Request(line, {"terms": chosen}) for line, chosen in zip(source, terms, strict=True)]
        (free_results, free_seconds), (results, seconds) = timed(free_search, source), timed(with_terms, requests)
        free_times.append(free_seconds)
        times.append(seconds)
        free, outputs = ([result.text for result in side] for side in (free_results, results))
        length = sum(map(len, outputs)) / max(1, sum(map(len, free)))
        rows.append(
            [
                name,
                *term_columns(terms, free, outputs),
                *bleu_columns(terms, free, outputs, references),
                f"{length:.3f}",
            ]
        )
        print(
            f"{name}, beam {free_search.decode.beam}: free {free_seconds:.1f} s, with terms {seconds:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    usual = statistics.median(free_times)
    return [[*row[:-1], f"{seconds / usual:.2f}", row[-1]] for row, seconds in zip(rows, times, strict=True)]


def main() -> None:
    """Translate the file with each kind of terms and each beam, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="model or run folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True, help="references, from which the terms are drawn")
    parser.add_argument("--lines", type=int, default=0, help="lines of the file, from its beginning; default: all")
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 8], help="default: 4 8")
    parser.add_argument("--seed", type=int, default=5, help="random seed of the terms; default: %(default)s")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="decode.KEY=VALUE",
        help="change the recipe's [decode], as decode.alpha=1.2",
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    setup(1)
    source, references = parallel_lines(options.source, options.reference, options.lines)
    print(f"{len(source):,} lines", flush=True)
    rows = [HEADS]
    for beam in options.beams:
        translator = load(options.model, device="cpu", devices=1, precision="fp32")
        free_search, with_terms = (
            translator.with_options({"overrides": options.set, "search": "beam", "beam": beam, "terms": terms})
            for terms in (False, True)
        )
        rows += [
            [row[0], str(beam), *row[1:]] for row in measure(free_search, with_terms, source, references, options.seed)
        ]
    print_rows(rows, options.markdown)


if __name__ == "__main__":
    main()
