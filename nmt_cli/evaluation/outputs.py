"""Checks of the outputs themselves: empty, invented, looping, copied, of unusual length, or without the source's
numbers.

    source, hypotheses, references ──▶ each check ──▶ one bool per line
        ──▶ check_outputs: the names of the faults per line

All texts are parallel lists of lines. A metric averages over lines and hides a few broken ones; these checks count
them. What the source and a reference show too is no fault. A new check is a function in this file and one line in
`CHECKS`. Nothing here needs a model or a metric. `cli.output_checks` prints the results.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median

from ..text.placeholders import MARK, find_placeholders
from ..text.scripts import IN_SCRIPT, UNSPACED
from .references import present_first

Lines = Sequence[str]
Check = Callable[[Lines, Lines, Sequence[Lines]], list[bool]]
"""(source, hypotheses, references) → for each line, whether it has the fault."""

UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""A word between spaces with its punctuation, or a character of an unspaced script."""
TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
"""A token by which copies are found: a word, a punctuation mark, or a character of an unspaced script."""


# --- blank lines ---


def empty(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is blank and the source is not."""
    return [not output.strip() and bool(text.strip()) for text, output in zip(source, hypotheses, strict=True)]


def invented(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the source is blank and the output is not."""
    return empty(hypotheses, source, references)


# --- loops ---

LONGEST_NGRAM = 60
"""The longest n-gram of a loop, in units."""
LONG_WORD = re.compile(r"[^\W\d_]{12,}")
"""A word that is searched for loops of its letters."""
MOST = 5
"""Smallest number of times that a word must occur, and be half of the line, to be a loop without being in a row."""
GROUPED = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f](?=\d{3}(?!\d))")
"""A space between the groups of digits of a number: "1 000 000" is one number."""


def loops(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether an n-gram is repeated too often in a row, or one word is half of the line or more.

    A source or a reference that loops too excuses its output, up to twice as many repetitions: "no no no" may be
    translated so.
    """
    flags = []
    for output, *texts in zip(hypotheses, source, *references, strict=True):
        count = repetitions(output)
        allowed = max(map(repetitions, texts)) if count > 1 else 1
        flags.append(count > (2 * allowed if allowed > 1 else 1))
    return flags


def repetitions(text: str) -> int:
    """Return how many times an n-gram of `text` is repeated, at most; 1 if none is repeated often enough to be a loop.

    An n-gram has 1 to 60 units: words without punctuation, or characters in scripts without spaces. Case does not
    count. In a word of 12 letters or more, strings of letters are n-grams too. A word that is half of the line counts
    as often as it occurs.
    """
    text = GROUPED.sub("", text.casefold())
    units = UNIT.findall(text)
    words = [word for unit in units if (word := _bare(unit))]
    most = max(
        repeated(words, words_of_a_loop),
        repeated(units, lambda ngram: 4) if len(units) > len(words) + 2 else 1,  # punctuation alone: ". . . ."
        *(repeated(word, letters_of_a_loop) for word in LONG_WORD.findall(text)),
    )
    word, count = Counter(words).most_common(1)[0] if words else ("", 0)
    return max(most, count) if count >= MOST and 2 * count >= len(words) and any(map(str.isalpha, word)) else most


def _bare(unit: str) -> str:
    """Return a word without the punctuation around it; "" for punctuation alone."""
    if unit.isalnum():
        return unit
    inner = [index for index, mark in enumerate(unit) if unicodedata.category(mark)[0] in "LMN"]
    return unit[inner[0] : inner[-1] + 1] if inner else ""


def words_of_a_loop(ngram: Sequence[str]) -> int:
    """Return from how many times in a row words are a loop: 3; 2 for long n-grams, 4 for a number or one character."""
    letters = "".join(ngram)
    if not any(map(str.isalpha, letters)):
        return 4
    unspaced = bool(IN_SCRIPT.search(letters))
    if len(ngram) >= (12 if unspaced else 6):
        return 2
    return 4 if unspaced and len(ngram) == 1 else 3


def letters_of_a_loop(ngram: Sequence[str]) -> int:
    """Return how many times in a row these letters of one word must occur to be a loop. "haha" and "brrr" are words."""
    return 8 if len(ngram) < 3 else 4 if len(ngram) == 3 else 3


def repeated(units: Sequence[str], enough: Callable[[Sequence[str]], int]) -> int:
    """Return how many times in a row an n-gram of `units` is repeated, at most; only n-grams with `enough` repetitions
    count, else 1.

    An n-gram is repeated r times where (r - 1) n units in a row are equal to the unit n before them. So a loop has at
    least n units that occurred before. This bounds n, and rules out most lines at once.
    """
    most = 1
    for size in range(1, min(LONGEST_NGRAM, len(units) - len(set(units))) + 1):
        run = longest_run = end = 0
        for index in range(size, len(units)):
            run = run + 1 if units[index] == units[index - size] else 0
            if run > longest_run:
                longest_run, end = run, index + 1
        count = longest_run // size + 1
        if count == 2 and end == len(units) and size >= 3 and 2 * longest_run >= 3 * size:
            count = 3  # cut off at the end: half of the third n-gram is enough
        if count > most and count >= enough(units[end - size : end]):
            most = count
            if longest_run == len(units) - size:
                break  # nothing but this n-gram: a longer one has fewer repetitions
    return most


# --- copies of the source ---

NEAR_COPY = 0.9
"""An output is nearly a copy if this share of the tokens of each side is also on the other."""
SHORT_WORD = 2
"""Words of at most this number of letters are often articles and the like. They do not tell a name from other text."""
COPIED_WORDS = 4
"""Number of words from which on a near copy of the source is a fault, too."""


def copies(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is a copy of the source, or nearly a copy.

    White space, case and punctuation do not count. A copy is no fault if a reference copies this line too, or has the
    same words: nine tenths of them, or half of them if there are fewer than four, which may be a name.
    """
    return [
        is_copy(text, output) and not any(_allows(reference, text) for reference in line_references)
        for text, output, *line_references in zip(source, hypotheses, *references, strict=True)
    ]


def _allows(reference: str, source: str) -> bool:
    words, others = _words(source), set(_words(reference))
    if len(words) < COPIED_WORDS:
        words = [word for word in words if len(word) > SHORT_WORD] or words
    share = sum(word in others for word in words) / len(words)
    return share >= (NEAR_COPY if len(words) >= COPIED_WORDS else 0.5) or is_copy(source, reference)


def is_copy(source: str, output: str) -> bool:
    """Return whether `output` copies `source`, and `source` is text: not only numbers, addresses, codes and
    placeholders.

    The words must be the same. From four words on, a tenth of the tokens may differ.
    """
    tokens = [TOKEN.findall(_folded(text)) for text in (source, output)]
    same, *others = ([token for token in side if unicodedata.category(token[0])[0] in "LMN"] for side in tokens)
    if [same] != others and not _nearly(*tokens):
        return False
    words = _words(source)
    return bool(words) and ([same] == others or len(words) >= COPIED_WORDS)


def _words(text: str) -> list[str]:
    """Return the words that have letters and no digits, without addresses and placeholders, folded.

    Two characters of an unspaced script count as a word.
    """
    pieces = UNIT.findall(_folded(_without_placeholders(text)))
    words = [word for piece in pieces if (word := _bare(piece)) and _is_text(word)]
    characters = "".join(word for word in words if IN_SCRIPT.match(word))
    pairs = [characters[index : index + 2] for index in range(0, len(characters), 2)]
    return [word for word in words if not IN_SCRIPT.match(word)] + pairs


def _is_text(word: str) -> bool:
    return any(map(str.isalpha, word)) and not any(map(str.isdigit, word)) and not ADDRESS.search(word)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _nearly(a: Sequence[str], b: Sequence[str]) -> bool:
    return (Counter(a) & Counter(b)).total() >= NEAR_COPY * max(len(a), len(b))


# --- length ---

DEVIATIONS = 5
"""Robust standard deviations of the log-ratio between a usual length and an unusual one."""
SMALLEST_DEVIATION = 0.1
"""Smallest standard deviation of the log-ratio. Few lines, or very regular ones, would give a value that is too small.
"""
CHARACTERS = 20
"""An output is not unusual if its length differs from the expected one by at most this number of characters."""


def length(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output is far shorter or longer than expected from the source, in characters.

    log(reference / source) of the first reference has a median m and a robust standard deviation d = 1.4826 MAD, over
    all lines. An output is unusual if its own log-ratio is more than 5 d from m, and its length more than 20 characters
    from exp(m) times the source's. Lines with a blank side are left out: `empty` and `invented` count them.
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


# --- numbers, addresses and placeholders ---

NUMBER = re.compile(r"\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,'’٫٬]\d+)*")
DATE = re.compile(r"\d\d?\.\d\d?\.(?:\d\d)?\d\d")
"""Three numbers: the month may be spelled out."""
AFTERNOON = re.compile(r"(?:[:.] ?\d\d)*[ \u00a0]?p\.?[ \u00a0]?m\b", re.IGNORECASE)
"""What follows the hour in "3 pm" and "3:30 p.m."."""
SPELLED = 12
"""Numbers up to this one are often spelled out, as are 20, 50, 100 or 1,000."""
DECADE = re.compile(r"[12]\d(\d0)")
"""The 1990s are also the 90s."""
ADDRESS = re.compile(r"://|^www\.|\S@\S")
"""A URL or e-mail address."""


def numbers(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output lacks a number that the source and all references have.

    Digits count by their value, in any script. Separators do not count: 1,000.5 is 1.000,5 and 1 000,5. "3 pm" is also
    15. A number up to 12, and a round one, may be spelled out: it is lost only if the output has a number that is in no
        other text.
    """
    return _each(_lacks_number, source, hypotheses, references)


def placeholders(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[bool]:
    """Return for each line whether the output lacks a URL, e-mail or placeholder that source and references have."""
    return _each(_lacks_placeholder, source, hypotheses, references)


def _each(
    lacks: Callable[[str, str, Sequence[str]], bool], source: Lines, hypotheses: Lines, references: Sequence[Lines]
) -> list[bool]:
    """Return for each line `lacks(source, output, references)`, of references with text; False if a side is blank."""
    return [
        bool(output.strip())
        and bool(present := [line for line in others if line.strip()])
        and lacks(text, output, present)
        for text, output, *others in zip(source, hypotheses, *references, strict=True)
    ]


def _lacks_number(source: str, output: str, references: Sequence[str]) -> bool:
    expected = _numbers(source)
    if not expected:
        return False
    own, *others = (set[str]().union(*chain.from_iterable(_numbers(text))) for text in (output, *references))
    lost = [number for number in expected if not _found(number, own) and all(_found(number, keys) for keys in others)]
    if not lost:
        return False
    new = own.difference(*others, chain.from_iterable(chain.from_iterable(expected)))
    return bool(new) or any(not _may_be_spelled(digits) for first, *_ in lost for digits in first)


def _numbers(text: str) -> list[list[set[str]]]:
    """Return for each number of a text the forms it may have, each a set of digits without leading zeros."""
    if not re.search(r"\d", text):
        return []
    text = _without_placeholders(text)
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(mark)) if mark.isdecimal() else mark for mark in text)
    found: list[list[list[str]]] = []
    for match in NUMBER.finditer(text):
        whole, parts = re.sub(r"\D", "", match[0]), re.split(r"\D", match[0])
        if DATE.fullmatch(match[0]):
            found += [[[part]] for part in parts]
            continue
        forms = [[whole]]
        if not any(map(str.isspace, match[0])):
            forms.append(parts)
            decimals = len(parts[-1]) if len(parts) > 1 else 0
            if decimals < 3:
                forms += [[whole + "0" * (zeros - decimals)] for zeros in (6, 9)]  # 1.5 million is 1 500 000
        if len(parts[0]) <= 2 and AFTERNOON.match(text, match.start() + len(parts[0])):
            forms.append([str(int(parts[0]) % 12 + 12), *parts[1:]])
        if decade := DECADE.fullmatch(match[0]):
            forms.append([decade[1]])
        found.append(forms)
    return [[{part.lstrip("0") or "0" for part in form} for form in forms] for forms in found]


def _found(number: Sequence[set[str]], digits: set[str]) -> bool:
    return any(form <= digits for form in number)


def _may_be_spelled(digits: str) -> bool:
    return (len(digits) <= 2 and int(digits) <= SPELLED) or not digits[1:].strip("0")


def _lacks_placeholder(source: str, output: str, references: Sequence[str]) -> bool:
    return any(
        output.count(part) < min(text.count(part) for text in (source, *references))
        for part in set(_placeholders(source))
    )


def _placeholders(text: str) -> list[str]:
    """Return the URLs, addresses, tags and placeholders of a text. They end where a script without spaces begins."""
    if not MARK.search(text):
        return []
    found = ((text[part.start : part.end], part.hidden) for part in find_placeholders(text))
    parts = (IN_SCRIPT.split(part)[0] for part, hidden in found if not hidden or part[0] == "<")
    return [part for part in parts if part]


def _without_placeholders(text: str) -> str:
    for part in set(_placeholders(text)):
        text = text.replace(part, " ")
    return text


# --- all of them ---

CHECKS: dict[str, Check] = {
    "empty": empty,
    "invented": invented,
    "loops": loops,
    "copies": copies,
    "length": length,
    "numbers": numbers,
    "placeholders": placeholders,
}
"""Name of a fault → its check. The names are columns of the table and keys of the JSON."""


def check_outputs(source: Lines, hypotheses: Lines, references: Sequence[Lines]) -> list[tuple[str, ...]]:
    """Return the names of the faults of each line, in the order of `CHECKS`."""
    references = present_first(references)
    flags = {name: check(source, hypotheses, references) for name, check in CHECKS.items()}
    return [tuple(name for name, faulty in flags.items() if faulty[line]) for line in range(len(hypotheses))]


def count_faults(faults: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the number of lines with each fault: a count for every name in `CHECKS`."""
    return {name: sum(name in names for names in faults) for name in CHECKS}


def worst_lines(faults: Sequence[Sequence[str]], scores: Mapping[int, float], most: int) -> list[int]:
    """Return up to `most` of the lines in `scores`, counted from 0: first those with faults, and the lowest scores."""
    return sorted(scores, key=lambda line: (not faults[line], scores[line], line))[:most]
