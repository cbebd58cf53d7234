r"""Constituents of a parse that match those of its reference, counted as EVALB counts them with its settings
COLLINS.prm.

    gold line, parse line ──▶ words, constituents (label, start, end) ──▶ status; matched, gold, test
        ──▶ sums ──▶ P, R, F1

A line is a sentence. Each side is read by itself, as EVALB reads it:

- A word whose part of speech is TOP, -NONE-, or one of , : `` '' . is deleted. Spans count the remaining words.
- A constituent without words is deleted, and so is one whose label is TOP, -NONE-, or one of , : `` '' . at any depth.
  Any other root (ROOT, S1, no label) is a constituent like the rest.
- Function tags and indices are cut off: NP-SBJ=2 is NP. ADVP and PRT are one label.

Then the sentence has a status. It is skipped if the parse has no words left. It is an error if brackets are not
balanced, or if the words of the two sides differ. Else it is valid, and each constituent matches at most one of its
label over the same words. Precision and recall are computed from the sums over valid sentences. Tagging accuracy: of
the words that count in these sentences, the share whose part of speech is exactly the gold one.

`repair` selects another comparison: the words that count are those of the gold tree by its parts of speech, roots are
removed on both sides, and the parse is repaired to cover just these words (`linearization.delinearise`). Then only
damaged gold trees are errors.

`metric` computes a metric from these counts.

Sources: EVALB (Sekine and Collins, 1997; with the changes of 2005 and 2006), its README and COLLINS.prm; Black et al.
(1991); Collins (1997).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from operator import eq
from typing import NamedTuple

from ..errors import DataError, shown
from .brackets import ROOTS, Leaf, Span, Tree
from .linearization import delinearise, linearise

DELETED = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
"""DELETE_LABEL of COLLINS.prm: parts of speech whose words do not count, and labels that do not."""
EQUAL = {"PRT": "ADVP"}
"""EQ_LABEL of COLLINS.prm: labels that count as another one."""
TOKEN = re.compile(
    r"\((?P<tag>[^()\s]*+)\s++(?P<word>[^()\s]*+)\s*+\)|\((?P<label>[^()\s]*+)|(?P<close>\))|(?P<text>[^()\s]++)",
    re.ASCII,
)
"""A word with its part of speech, an opening bracket with its label, a closing one, or text that is none of these.
Nothing backtracks, so that time is linear in the line's length."""
LABELLED_CLOSING = re.compile(r"(?:^|\s)\)[^()\s]", re.ASCII)
"""A symbol of a linearised tree; text glued to a tree in brackets, as in `(NN a)x`, is none."""
TAGGED = re.compile(r"\((?!XX\s)[^()\s]++\s++[^()\s]*+\s*+\)", re.ASCII)
"""A word whose part of speech is known, in a tree in brackets."""
EXPECTED = (
    "Expected trees in brackets, one per line, as (TOP (NP (DT the) (NN dog))): NAME.ptb of `nmt data trees`, the "
    "output of nmt parse, or linearised trees that `nmt data trees --back --words FILE` has turned into trees."
)
ROOTED = re.compile(r"\s*+\((?:ROOT|S1)?+\s*+\([^()\s]", re.ASCII)
"""The beginning of a tree whose root COLLINS.prm does not delete: ROOT, S1 or no label."""


class BracketCounts(NamedTuple):
    """Figures of one sentence, or their sums. Only valid sentences have constituents."""

    matched: int = 0
    gold: int = 0
    test: int = 0
    """Constituents: those that match, all of the gold tree, all of the parse."""
    complete: int = 0
    """1 if the gold tree and the parse have the same constituents."""
    valid: int = 0
    skipped: int = 0
    errors: int = 0
    """The status: one of the three is 1."""
    repaired: int = 0
    """1 if the parse was not a tree of the sentence's words, and was repaired."""
    words: int = 0
    correct_tags: int = 0
    """Words of a valid sentence that count, and those with the right part of speech. 0 if the parses have no parts of
    speech."""


SKIPPED = BracketCounts(skipped=1)
ERROR = BracketCounts(errors=1)


class Bracket(NamedTuple):
    """A constituent as the line has it. It may be empty, and it may be a root."""

    label: str
    start: int
    end: int
    outermost: bool


class Reading(NamedTuple):
    """The contents of a line in brackets, read as EVALB reads it."""

    leaves: list[Leaf]
    brackets: list[Bracket]
    """In the order of their opening brackets."""
    unbalanced: str
    """Which brackets have no counterpart; empty if all have one."""
    text: str
    """The first text outside of a tree, where EVALB stops; empty if there is none."""

    @property
    def tree(self) -> Tree:
        """Return the tree without roots and traces."""
        spans = (
            Span(label, start, end)
            for label, start, end, outermost in self.brackets
            if start < end and not (outermost and label in ROOTS)
        )
        return Tree(tuple(self.leaves), tuple(spans)).without_traces()


class CountedSide(NamedTuple):
    """The words and constituents of one side that count."""

    leaves: list[Leaf]
    constituents: Counter[tuple[str, int, int]]


def read(line: str) -> Reading:
    """Return the words and brackets of a line.

    A bracket that is still open at the end closes there; one that was never opened is ignored.
    """
    leaves, brackets, open_brackets = list[Leaf](), list[Bracket](), list[int]()
    text, stray = "", 0
    for token in TOKEN.finditer(line):
        kind = token.lastgroup
        if kind == "word":
            leaves.append(Leaf(token["tag"], token["word"]))
        elif kind == "label":
            open_brackets.append(len(brackets))
            brackets.append(Bracket(token["label"], len(leaves), -1, len(open_brackets) == 1))
        elif kind == "text":
            text = text or token["text"]
        elif open_brackets:
            top = open_brackets.pop()
            brackets[top] = brackets[top]._replace(end=len(leaves))
        else:
            stray += 1
    for top in open_brackets:
        brackets[top] = brackets[top]._replace(end=len(leaves))
    unbalanced = [
        f"{count:,} bracket(s) that {what}"
        for count, what in ((len(open_brackets), "never close"), (stray, "close what is not open"))
        if count
    ]
    return Reading(leaves, brackets, " and ".join(unbalanced), text)


def countable(leaves: Sequence[Leaf], spans: Sequence[Span] | Sequence[Bracket]) -> CountedSide:
    """Return the words, their parts of speech, and the constituents that COLLINS.prm does not delete."""
    before = [0, *accumulate(int(tag not in DELETED) for tag, _ in leaves)]  # words that count before each leaf
    constituents = Counter[tuple[str, int, int]]()
    for label, start, end in (span[:3] for span in spans):
        label = re.split("[-=]", label, maxsplit=1)[0]  # EVALB's way: -LRB- becomes an empty label, which counts
        if before[start] < before[end] and label not in DELETED:
            constituents[EQUAL.get(label, label), before[start], before[end]] += 1
    return CountedSide([leaf for leaf in leaves if leaf.tag not in DELETED], constituents)


def compare(gold: CountedSide, parse: CountedSide, unbalanced: str = "") -> tuple[BracketCounts, str]:
    """Return the counts of a sentence, and why the sentence is an error ("" if it is not)."""
    if not parse.leaves:
        return SKIPPED, ""
    reason = unbalanced or _difference(gold.leaves, parse.leaves)
    if reason:
        return ERROR, reason
    matched = (gold.constituents & parse.constituents).total()
    sizes = gold.constituents.total(), parse.constituents.total()
    return BracketCounts(
        matched,
        *sizes,
        complete=int(matched == sizes[0] == sizes[1]),
        valid=1,
        words=len(gold.leaves),
        correct_tags=sum(map(eq, gold.leaves, parse.leaves)),  # the words are equal
    ), ""


def _difference(gold: Sequence[Leaf], parse: Sequence[Leaf]) -> str:
    if len(gold) != len(parse):
        return (
            f"the parse has {len(parse):,} words, the reference {len(gold):,}, without those that are deleted "
            "by their part of speech"
        )
    words = ((leaf.word, parsed.word) for leaf, parsed in zip(gold, parse, strict=True))
    return next(
        (f"the parse has the word {shown(own)}, the reference {shown(word)}" for word, own in words if word != own), ""
    )


def score_line(gold_line: str, line: str, number: int, repair: bool) -> tuple[BracketCounts, str]:
    """Return the counts of a pair of lines, and why the pair is an error ("" if it is not).

    Raises DataError for a reference that is not a tree, and for a linearised parse.
    """
    gold = read_tree(gold_line, f"the reference, line {number:,}")
    if gold.text:
        raise DataError(f"the reference, line {number:,}: {shown(gold.text)} is no part of a tree. {EXPECTED}")
    parse = read_tree(line, f"a hypothesis, line {number:,}")
    if repair:
        return _score_repaired(gold, parse)
    if parse.text:
        return ERROR, f"in the parse, {shown(parse.text)} is no part of a tree in brackets"
    unbalanced = [
        f"the {side} has {reading.unbalanced}"
        for side, reading in (("reference", gold), ("parse", parse))
        if reading.unbalanced
    ]
    return compare(
        countable(gold.leaves, gold.brackets), countable(parse.leaves, parse.brackets), ", ".join(unbalanced)
    )


def _score_repaired(gold: Reading, parse: Reading) -> tuple[BracketCounts, str]:
    """Return the counts of a parse over the words and parts of speech of the gold tree."""
    if gold.unbalanced:
        return ERROR, f"the reference has {gold.unbalanced}"
    tree, parsed = gold.tree, parse.tree
    repaired = parsed.words != tree.words or bool(parse.unbalanced or parse.text)
    if repaired:
        parsed = delinearise(linearise(parsed, "tags"), tree.words, "tags")
    leaves = [own for own, leaf in zip(parsed.leaves, tree.leaves, strict=True) if leaf.tag not in DELETED]
    counts, reason = compare(
        countable(tree.leaves, tree.spans), countable(tree.leaves, parsed.spans)._replace(leaves=leaves)
    )
    return counts._replace(repaired=int(repaired)), reason


def read_tree(line: str, where: str) -> Reading:
    """Return the contents of a line. Raises DataError for a linearised tree: most closing brackets have labels."""
    if 2 * len(LABELLED_CLOSING.findall(line)) > line.count(")"):
        raise DataError(
            f"{where}: {shown(line)} is a linearised tree, whose words and parts of speech are not known. {EXPECTED}"
        )
    return read(line)


def f1(counts: BracketCounts) -> float:
    """Return the harmonic mean of precision and recall in per cent; 0 if there are no constituents."""
    return percent(2 * counts.matched, counts.gold + counts.test)


def percent(part: float, whole: float) -> float:
    """Return 100 · part / whole; 0 if `whole` is 0."""
    return 100.0 * part / whole if whole else 0.0
