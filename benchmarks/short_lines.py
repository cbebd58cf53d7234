"""Faults of a model on words, headings and numbers, with and without a second choice (`decode.second_choice`).

    python benchmarks/short_lines.py --model DIR --text FILE [FILE …] [--longest 16]

The words (1,000, every other one with a capital) and the headings (500 lines of 2 to 8 words without an end mark) come from running
text, such as all of newstest's English; the numbers (500: amounts, dates, times, counts) are made up. Faults that need no reference:
"doubled": a word stands twice that the source has once; "invented": brackets, commas or colons that the source has not, or more than
twice its words; "changed": not the source's digits. "%, seconds" is what the second choice costs in processor time of the whole file
of short lines, and of the text itself, whose long lines it does not touch.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from common import NMT, print_rows, setup
from students import lines_of

WORDS, HEADINGS, NUMBERS, MOST_WORDS = 1000, 500, 500, 8
WORD = re.compile(r"[^\W\d_]+")
INVENTED = re.compile(r"[()\[\]]|[,:;](?!\d)")


def words(text: Sequence[str], rng: random.Random) -> list[str]:
    counts = Counter(word for line in text for word in re.findall(r"[A-Za-z][a-z]+", line))
    common = [word for word, count in counts.most_common(8 * WORDS) if count > 2]
    return [word if n % 2 else word.capitalize() for n, word in enumerate(rng.sample(common, WORDS))]


def headings(text: Sequence[str], rng: random.Random) -> list[str]:
    short = (line for line in dict.fromkeys(text) if 2 <= len(line.split()) <= MOST_WORDS)
    return rng.sample([line for line in short if line[-1].isalnum()], HEADINGS)


def numbers(rng: random.Random) -> list[str]:
    n = rng.randint
    kinds: list[Callable[[], str]] = [
        lambda: str(n(0, 99)),
        lambda: f"{n(1, 999)},{n(0, 999):03d}",
        lambda: f"{n(0, 99)}.{n(0, 99):02d}",
        lambda: f"{n(1, 12)}/{n(1, 28)}/{n(1990, 2026)}",
        lambda: f"{n(0, 23)}:{n(0, 59):02d}",
        lambda: f"${n(1, 900)}",
        lambda: f"{n(1, 99)}%",
        lambda: f"Page {n(1, 99)} of {n(100, 300)}",
        lambda: f"{n(2, 99)} {rng.choice(['km', 'years', 'people', 'hours', 'GB', 'points'])}",
        lambda: f"{rng.choice(['May', 'June', 'March', 'Version', 'Chapter', 'Room', 'No.'])} {n(1, 30)}",
    ]
    return [kinds[index % len(kinds)]() for index in range(NUMBERS)]


def faults(source: str, output: str) -> list[str]:
    """Return the names of the faults of a short output."""
    own, others = ([word.casefold() for word in WORD.findall(text)] for text in (source, output))
    twice = {word for word, count in Counter(others).items() if count > max(Counter(own).values(), default=1)}
    next_to = any(a == b for a, b in pairwise(others)) and len(set(own)) == len(own)
    marks = set(INVENTED.findall(output)) - set(INVENTED.findall(source))
    digits, expected = (sorted(number.lstrip("0") for number in re.findall(r"\d+", text)) for text in (output, source))
    found = {
        "doubled": next_to or any(len(word) > 3 for word in twice),
        "invented": bool(marks) or len(others) > 2 * len(own) + 2,
        "changed": "".join(digits) != "".join(expected) and sorted("".join(digits)) != sorted("".join(expected)),
    }
    return [name for name, has in found.items() if has]


def translated(model: Path, lines: Sequence[str], longest: int) -> tuple[list[str], float]:
    """Return the translations, and the processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*NMT, "translate", "--model", str(model), "--devices", "1", "--set", f"decode.second_choice={longest}"]
    text = "".join(line + "\n" for line in lines)
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    done = subprocess.run(command, input=text, stdout=pipe, stderr=none, encoding="utf-8", check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout.split("\n")[:-1], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--longest", type=int, default=16)
    options = parser.parse_args()
    setup(1)
    rng = random.Random(1)
    text = [line for path in options.text for line in lines_of(path) if line.strip()]
    sets = {"words": words(text, rng), "headings": headings(text, rng), "numbers": numbers(rng)}
    rows = [["", "lines", "faults", "doubled", "invented", "changed", "changed lines", "cost, %"]]
    for name, lines in {**sets, "running text": text[:2000]}.items():
        (usual, seconds), (second, more) = (translated(options.model, lines, most) for most in (0, options.longest))
        changed = [n for n, (a, b) in enumerate(zip(usual, second, strict=True)) if a != b]
        for texts in (usual, second):
            counts = Counter(fault for pair in zip(lines, texts, strict=True) for fault in faults(*pair))
            wrong = sum(bool(faults(*pair)) for pair in zip(lines, texts, strict=True))
            cells = [str(counts[fault]) for fault in ("doubled", "invented", "changed")]
            of_second = [str(len(changed)), f"{100 * (more / seconds - 1):+.1f}"] if texts is second else ["", ""]
            if name in sets or texts is second:
                rows.append([name, str(len(lines)), *([str(wrong), *cells] if name in sets else [""] * 4), *of_second])
    print_rows(rows)


if __name__ == "__main__":
    main()
