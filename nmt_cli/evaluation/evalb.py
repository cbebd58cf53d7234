r"""Labelled bracket precision, recall and F1 of parses, counted as EVALB counts them with its settings COLLINS.prm.

    gold tree, parse ──▶ constituents (label, start, end) ──▶ matched, gold, test, summed over sentences ──▶ P, R, F1

A constituent is right if the other tree has one with its label over the same words; each matches once. As there:

- punctuation does not count: words whose part of speech is one of , : `` '' . are taken out of both trees before spans
  are counted, traces (-NONE-) likewise, and constituents that lose all their words with them;
- the root (TOP, ROOT, S1 or no label) does not count; function tags and indices are cut off: NP-SBJ=2 is NP;
- ADVP and PRT are one label;
- precision and recall are of the sums, not means over sentences; a sentence without words but punctuation is left out
  of the share of complete matches.

In one point it differs. EVALB takes parts of speech from each tree, and leaves out a sentence whose words then do not
agree; here the words and parts of speech are always the gold tree's, and the parse is repaired to cover just these
(`trees.linear`): no sentence is left out, and how many needed repair is told.

Sources: Black et al. (1991); Collins (1997); the README of EVALB (Sekine and Collins).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import __version__
from ..errors import DataError, UsageError
from ..trees.brackets import Tree, read_trees
from ..trees.linear import delinearise, linearise, repaired
from .additive import Additive

PUNCTUATION = (",", ":", "``", "''", ".")
"""Parts of speech that COLLINS.prm deletes."""
EQUAL = {"PRT": "ADVP"}
"""Labels that count as another one."""
SIGNATURE = {"labelled": "yes", "prm": "COLLINS", "punct": "no", "root": "no", "equal": ",".join(f"{one}={other}" for one, other in EQUAL.items())}
LINEAR = re.compile(r"(?:^|\s)(?:\)[^()\s]|XX(?:\s|$))")
"""What only a linearised tree has: a closing bracket with its label, or XX by itself."""
LEAF = re.compile(r"\([^()\s]+\s+[^()\s]+\s*\)")
"""What a tree in brackets has: a word with its part of speech."""


class Counts(NamedTuple):
    """What is summed over sentences; shares are of the sums."""

    matched: int
    gold: int
    test: int
    """Constituents that agree, of the gold tree, of the parse."""
    complete: int
    """1: the two have the same constituents."""
    scored: int
    """1: the sentence holds more than punctuation."""
    repaired: int
    """1: the parse was no tree of the sentence's words as it stood."""


def count(gold: Tree, parse: Tree, mended: bool = False) -> Counts:
    """Compare two trees of the same words."""
    kept = [tag not in PUNCTUATION for tag in gold.tags]
    ours, theirs = (Counter(_counted(tree, kept)) for tree in (gold, parse))
    matched = (ours & theirs).total()
    scored = any(kept)
    complete = scored and matched == ours.total() == theirs.total()
    return Counts(matched, ours.total(), theirs.total(), int(complete), int(scored), int(mended))


def _counted(tree: Tree, kept: Sequence[bool]) -> list[tuple[str, int, int]]:
    spans = tree.keeping(kept).without_functions().spans
    return [(EQUAL.get(label, label), start, end) for label, start, end in spans]


def gold_tree(line: str, number: int) -> Tree:
    """The tree of the reference's line of this number, traces taken out. Raises DataError, which says what the line should be."""
    wanted = "Give the trees in brackets, one a line, with words and parts of speech, as (TOP (NP (DT the) (NN dog))): NAME.ptb of `nmt data trees`."
    where = f"the reference, line {number:,},"
    if not line.strip():
        raise DataError(f"{where} is blank: evalb has nothing to compare with. {wanted}")
    if LINEAR.search(line):
        raise DataError(f"{where} is a linearised tree: without parts of speech it cannot be told what is punctuation, which evalb does not count. {wanted}")
    trees = list(read_trees([line], "the reference", number))
    if len(trees) != 1:
        raise DataError(f"{where} holds {len(trees)} trees, expected one. {wanted}")
    return trees[0].without_traces()


def parse_tree(line: str, number: int, gold: Tree) -> tuple[Tree, bool]:
    """The tree of the hypothesis's line of this number, linearised or in brackets, over the gold tree's words; and whether it had to
    be repaired for that. Raises DataError for brackets that are no tree."""
    if LEAF.search(line) and not LINEAR.search(line):
        trees = [tree.without_traces() for tree in read_trees([line], "the hypothesis", number)]
        if len(trees) == 1 and len(trees[0].leaves) == len(gold.leaves):
            return trees[0], False
        line = " ".join(linearise(tree) for tree in trees)
        return delinearise(line, gold.words), True
    parse = delinearise(line, gold.words)
    return parse, repaired(line, parse)


def evalb(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
    """The sums over parallel lines: trees in brackets as references, linearised or in brackets as hypotheses."""
    return Counts(*map(sum, zip(*each(hypotheses, references), strict=True)))


def each(hypotheses: Sequence[str], references: Sequence[str]) -> list[Counts]:
    """The counts of every line."""
    found = []
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True), 1):
        gold = gold_tree(reference, number)
        found.append(count(gold, *parse_tree(hypothesis, number, gold)))
    return found


def f1(counts: Counts) -> float:
    """In per cent: the harmonic mean of precision and recall; 0 where there are no constituents."""
    return _share(2 * counts.matched, counts.gold + counts.test)


def _share(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


class Evalb(Additive):
    """`evalb` as a metric: a row of `Counts` a sentence."""

    def __init__(self) -> None:
        super().__init__("EVALB", version=f"nmt-{__version__}")

    def signature(self) -> Mapping[str, str]:
        return SIGNATURE

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[Counts]:
        """Raises UsageError for several references, DataError for a line that is no tree."""
        if len(references) != 1:
            raise UsageError(f"evalb compares with one tree a sentence, {len(references)} references were given. Give --ref once, or leave the metric out.")
        return each(hypotheses, references[0])

    def value(self, sums: Sequence[float]) -> float:
        return f1(Counts(*map(int, sums)))

    def details(self, sums: Sequence[float]) -> str:
        counts = Counts(*map(int, sums))
        return (
            f"P {_share(counts.matched, counts.test):.2f} R {_share(counts.matched, counts.gold):.2f} complete {_share(counts.complete, counts.scored):.2f} "
            f"(matched = {counts.matched} gold = {counts.gold} test = {counts.test} sentences = {counts.scored} repaired = {counts.repaired})"
        )
