"""Checks of the outputs themselves: empty, invented, looping, copied, or far too short or too long.

    source, hypotheses, references ──▶ each check ──▶ one bool per line ──▶ check_outputs: the names of the faults per line

All texts are parallel lists of lines. A metric averages over lines and hides a few broken ones; these checks count them.
A new check is a function in this file and one line in `CHECKS`. Nothing here needs a model or a metric.
`cli.output_checks` prints the results.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ..errors import DataError
from ..scripts import IN_SCRIPT, UNSPACED
from .metrics import check_parallel

Lines = Sequence[str]
Check = Callable[[Lines, Lines, Sequence[Lines]], list[bool]]
"""(source, hypotheses, references) → for each line, whether it has the fault."""

UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""A unit of a loop: a word between spaces, or a character of an unspaced script."""
TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
"""A token by which copies are found: a word, a punctuation mark, or a character of an unspaced script."""
ADDRESS = re.compile(r"://|^www\.|\S@\S")
"""A URL or e-mail address."""

LOOP = 4
"""Number of repetitions in a row that make a loop."""
LONGEST_NGRAM = 40
"""The longest n-gram of a loop, in units."""
LONG_WORD = re.compile(r"[^\W\d_]{12,}")
"""A word that is searched for loops: it has the length of four strings of three letters, or more."""
SHORTEST_SYLLABLE = 3
"""Letters of the shortest string whose repetition inside a word is a loop: "haha" and "brrr" are words."""


# --- blank lines ---


def empty(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is blank and the source is not."""
    return [not output.strip() and bool(text.strip()) for text, output in zip(source, hypotheses, strict=True)]


def invented(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the source is blank and the output is not."""
    return empty(hypotheses, source, references)


# --- loops ---


def loops(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether an n-gram is repeated four times in a row or more.

    A source line that loops too excuses its output, up to twice as many repetitions: "no no no no" may be translated so.
    """
    return [
        (count := repetitions(output)) >= LOOP and count > 2 * repetitions(text)
        for text, output in zip(source, hypotheses, strict=True)
    ]


def repetitions(text: str) -> int:
    """Return how many times in a row an n-gram of `text` is repeated, at most; 1 if no n-gram is repeated four times.

    An n-gram has 1 to 40 units: words, or characters in scripts without spaces. Case does not count. Inside a word of 12
    letters or more, strings of three letters or more are n-grams too.
    """
    text = text.casefold()
    return max(
        repeated(UNIT.findall(text), 1), *(repeated(word, SHORTEST_SYLLABLE) for word in LONG_WORD.findall(text)), 1
    )


def repeated(units: Sequence[str], shortest: int) -> int:
    """Return how many times in a row an n-gram of at least `shortest` units is repeated, at most; 1 if this is below 4.

    An n-gram is repeated r times where (r - 1) n units in a row are equal to the unit n before them. So a loop has at least
    3 n units that occurred before. This bounds n, and rules out most lines at once.
    """
    most = 1
    for size in range(shortest, min(LONGEST_NGRAM, (len(units) - len(set(units))) // (LOOP - 1)) + 1):
        run = longest_run = 0
        for unit, before in zip(units[size:], units, strict=False):
            run = run + 1 if unit == before else 0
            longest_run = max(longest_run, run)
        most = max(most, longest_run // size + 1)
    return most if most >= LOOP else 1


# --- copies of the source ---

NEAR_COPY = 0.9
"""An output is nearly a copy if the longest common subsequence has this share of the tokens of both sides."""
COPIED_WORDS = 4
"""Number of words from which on the copy of a source is a fault, whatever the words are."""


def copies(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is a copy of the source, or nearly a copy.

    White space and case do not count. A copy is no fault if a reference copies this line too.
    """
    return [
        is_copy(text, output) and not any(is_copy(text, reference) for reference in line_references)
        for text, output, *line_references in zip(source, hypotheses, *references, strict=True)
    ]


def is_copy(source: str, output: str) -> bool:
    """Return whether `output` copies `source`, and `source` is text that should be translated.

    A source of four or more words with letters should be translated: its copy may differ in up to a tenth of the tokens. The
    copy of a shorter source must be exact, and the source must have two words with letters, one of them in lower case.
    Other short sources may be numbers, names or addresses.
    """
    text, copy = source.casefold().split(), output.casefold().split()
    words, lower = _words(source)
    if words < COPIED_WORDS:
        return words >= 2 and lower and text == copy
    return text == copy or _nearly(TOKEN.findall(" ".join(text)), TOKEN.findall(" ".join(copy)))


def _words(text: str) -> tuple[float, bool]:
    """Return the number of words with letters, without addresses, and whether one begins in lower case.

    Two characters of an unspaced script count as a word.
    """
    words = [word for word in text.split() if not ADDRESS.search(word) and any(map(str.isalpha, word))]
    return sum(len(IN_SCRIPT.findall(word)) / 2 or 1 for word in words), any(
        word.lstrip("\"'„“”‘’«»(¿¡").lstrip()[:1].islower() for word in words
    )


def _nearly(a: Sequence[str], b: Sequence[str]) -> bool:
    enough = NEAR_COPY * max(len(a), len(b))
    if min(len(a), len(b)) < enough or (Counter(a) & Counter(b)).total() < enough:  # most lines end here
        return False
    return common_subsequence(a, b) >= enough


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by bit-parallel rows (Hyyrö, 2004).

    Row j has a bit per token of `a`: 0 where the subsequence with b[:j] becomes longer at this token.
    """
    masks: dict[str, int] = {}
    for index, token in enumerate(a):
        masks[token] = masks.get(token, 0) | 1 << index
    full = (1 << len(a)) - 1
    row = full
    for token in b:
        matches = row & masks.get(token, 0)
        row = (row + matches | row - matches) & full
    return len(a) - row.bit_count()


# --- length ---

DEVIATIONS = 5
"""Robust standard deviations of the log-ratio between a usual length and an unusual one."""
SMALLEST_DEVIATION = 0.1
"""Smallest standard deviation of the log-ratio. Few lines, or very regular ones, would give a value that is too small."""
CHARACTERS = 20
"""An output is not unusual if its length differs from the expected one by at most this number of characters."""


def length(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is far shorter or longer than expected from the source, in characters.

    log(reference / source) of the first reference has a median m and a robust standard deviation d = 1.4826 MAD, over all
    lines. An output is unusual if its own log-ratio is more than 5 d from m, and its length more than 20 characters from
    exp(m) times the source's. Lines with a blank side are left out: `empty` and `invented` count them.
    """
    sizes = [[len(line.strip()) for line in lines] for lines in (source, hypotheses, references[0])]
    ratios = [math.log(reference / text) for text, _, reference in zip(*sizes, strict=True) if text and reference]
    if not ratios:
        return [False] * len(source)
    middle = median(ratios)
    deviation = max(1.4826 * median(abs(ratio - middle) for ratio in ratios), SMALLEST_DEVIATION)
    return [
        bool(text and output)
        and abs(math.log(output / text) - middle) > DEVIATIONS * deviation
        and abs(output - text * math.exp(middle)) > CHARACTERS
        for text, output, _ in zip(*sizes, strict=True)
    ]


# --- all of them ---

CHECKS: dict[str, Check] = {
    "empty": empty,
    "invented": invented,
    "loops": loops,
    "copies": copies,
    "length": length,
}
"""Name of a fault → its check. The names are columns of the table and keys of the JSON."""


def check_outputs(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[tuple[str, ...]]:
    """Return the names of the faults of each line, in the order of `CHECKS`. Raises DataError if the lines are not parallel."""
    check_parallel(hypotheses, references)
    if len(source) != len(hypotheses):
        raise DataError(
            f"{len(hypotheses)} hypothesis lines cannot be checked against {len(source)} lines of the source: they must be parallel, line by line."
        )
    flags = {name: check(source, hypotheses, references) for name, check in CHECKS.items()}
    return [tuple(name for name, faulty in flags.items() if faulty[line]) for line in range(len(hypotheses))]


def count_faults(faults: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the number of lines with each fault: a count for every name in `CHECKS`."""
    return {name: sum(name in names for names in faults) for name in CHECKS}


def worst_lines(faults: Sequence[Sequence[str]], scores: Mapping[int, float], most: int) -> list[int]:
    """Return up to `most` of the lines in `scores`, counted from 0: those with faults first, and by score, lowest first."""
    return sorted(scores, key=lambda line: (not faults[line], scores[line], line))[:most]
