r"""Labelled bracket precision, recall and F1 of parses, counted as EVALB counts them with its settings COLLINS.prm.

    gold line, parse line ──▶ words, constituents (label, start, end) ──▶ status; matched, gold, test ──▶ sums ──▶ P, R, F1

A line is a sentence. Each side is read by itself, as EVALB reads it:

- A word whose part of speech is TOP, -NONE-, or one of , : `` '' . is deleted. Spans count the words that are left.
- A constituent without words is deleted, and so is one whose label is TOP, -NONE-, or one of , : `` '' . at any depth. Any
  other root (ROOT, S1, no label) is a constituent like the rest.
- Function tags and indices are cut off: NP-SBJ=2 is NP. ADVP and PRT are one label.

Then the sentence has a status. It is skipped if the parse has no words left. It is an error if brackets are not balanced,
or if the words of the two sides differ. Else it is valid, and each constituent matches at most one of its label over the
same words. Precision and recall are of the sums over valid sentences.

Linearised parses (`trees.linear`) hold no words and no parts of speech. They are compared in another way, which
`repair` selects for parses in brackets too: the words and parts of speech are those of the gold tree, roots are taken off
on both sides, and the parse is repaired to cover just these words. So there are no errors but damaged gold trees.

Sources: EVALB (Sekine and Collins, 1997; with the changes of 2005 and 2006), its README and COLLINS.prm; Black et al.
(1991); Collins (1997).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import __version__
from ..errors import DataError, UsageError
from ..parsing.brackets import ROOTS, Leaf, Span, Tree
from ..parsing.linearization import delinearise, linearise, repaired
from .sentence_statistics import Additive

DELETED = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
"""DELETE_LABEL of COLLINS.prm: parts of speech whose words do not count, and labels that do not."""
EQUAL = {"PRT": "ADVP"}
"""EQ_LABEL of COLLINS.prm: labels that count as another one."""
TOKEN = re.compile(r"\((?P<tag>[^()\s]*+)\s++(?P<word>[^()\s]*+)\s*+\)|\((?P<label>[^()\s]*+)|(?P<close>\))|(?P<text>[^()\s]++)", re.ASCII)
"""A word with its part of speech, an opening bracket with its label, a closing one, or text that is none of these. Nothing
backtracks, so that time is linear in the line's length."""
LABELLED_CLOSING = re.compile(r"(?:^|\s)\)[^()\s]", re.ASCII)
"""A symbol of a linearised tree; text glued to a tree in brackets, as in `(NN a)x`, is none."""
LONE_WORD = re.compile(r"(?:^|\s)XX(?:\s|$)", re.ASCII)
BRACKETS, LINEARISED = "brackets", "linearised"
SHOWN = 3
"""Lines that a remark describes; the others are counted."""
ROOTED = re.compile(r"\s*+\((?:ROOT|S1)?+\s*+\([^()\s]", re.ASCII)
"""The beginning of a tree whose root COLLINS.prm does not delete."""


class Counts(NamedTuple):
    """What is summed over sentences; shares are of the sums. Only valid sentences have constituents."""

    matched: int = 0
    gold: int = 0
    test: int = 0
    """Constituents that agree, of the gold tree, of the parse."""
    complete: int = 0
    """1: the two have the same constituents."""
    valid: int = 0
    skipped: int = 0
    errors: int = 0
    """The status: one of the three is 1."""
    repaired: int = 0
    """1: the parse was no tree of the sentence's words, and was repaired."""


SKIPPED = Counts(skipped=1)
ERROR = Counts(errors=1)


class Bracket(NamedTuple):
    """A constituent as it was read: maybe empty, maybe a root."""

    label: str
    start: int
    end: int
    outermost: bool


class Reading(NamedTuple):
    """What a line in brackets holds, read as EVALB does."""

    leaves: list[Leaf]
    brackets: list[Bracket]
    """In the order of their beginnings."""
    unbalanced: str
    """Which brackets lack their counterpart; empty if none."""
    text: str
    """The first text that is no part of a tree, where EVALB stops; empty if there is none."""

    @property
    def tree(self) -> Tree:
        """The tree without roots and traces."""
        spans = (Span(label, start, end) for label, start, end, outermost in self.brackets if start < end and not (outermost and label in ROOTS))
        return Tree(tuple(self.leaves), tuple(spans)).without_traces()


class Sentence(NamedTuple):
    """What counts of one side."""

    words: list[str]
    constituents: Counter[tuple[str, int, int]]


def read(line: str) -> Reading:
    """The words and brackets of a line. What is open at the end is closed there; what is never opened is ignored."""
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
    unbalanced = [f"{count:,} bracket(s) that {what}" for count, what in ((len(open_brackets), "never close"), (stray, "close what is not open")) if count]
    return Reading(leaves, brackets, " and ".join(unbalanced), text)


def counted(leaves: Sequence[Leaf], spans: Sequence[Span] | Sequence[Bracket]) -> Sentence:
    """The words and constituents that COLLINS.prm leaves."""
    before, words = [0], list[str]()  # words left before each leaf
    for tag, word in leaves:
        if tag not in DELETED:
            words.append(word)
        before.append(len(words))
    constituents = Counter[tuple[str, int, int]]()
    for label, start, end in (span[:3] for span in spans):
        label = re.split("[-=]", label, maxsplit=1)[0]  # EVALB's way: -LRB- becomes an empty label, which counts
        if before[start] < before[end] and label not in DELETED:
            constituents[EQUAL.get(label, label), before[start], before[end]] += 1
    return Sentence(words, constituents)


def compare(gold: Sentence, parse: Sentence, unbalanced: str = "") -> tuple[Counts, str]:
    """The row of a sentence; and why it is an error, or nothing."""
    if not parse.words:
        return SKIPPED, ""
    reason = unbalanced or _difference(gold.words, parse.words)
    if reason:
        return ERROR, reason
    matched = (gold.constituents & parse.constituents).total()
    sizes = gold.constituents.total(), parse.constituents.total()
    return Counts(matched, *sizes, complete=int(matched == sizes[0] == sizes[1]), valid=1), ""


def _difference(gold: Sequence[str], parse: Sequence[str]) -> str:
    if len(gold) != len(parse):
        return f"the parse has {len(parse):,} words, the reference {len(gold):,}, without those that are deleted by their part of speech"
    return next((f"the parse has the word {_short(other)}, the reference {_short(one)}" for one, other in zip(gold, parse, strict=True) if one != other), "")


def score_line(gold_line: str, line: str, number: int, repair: bool) -> tuple[Counts, str]:
    """The row of a pair of lines; and why it is an error, or nothing. Raises DataError for a reference that is no tree."""
    gold = read_gold(gold_line, number)
    if not repair:
        parse = read(line)
        if parse.text:
            return ERROR, f"in the parse, {_short(parse.text)} is no part of a tree in brackets"
        unbalanced = [f"the {side} has {one.unbalanced}" for side, one in (("reference", gold), ("parse", parse)) if one.unbalanced]
        return compare(counted(gold.leaves, gold.brackets), counted(parse.leaves, parse.brackets), ", ".join(unbalanced))
    if gold.unbalanced:
        return ERROR, f"the reference has {gold.unbalanced}"
    tree = gold.tree
    parsed, was_repaired = parse_over(line, tree)
    counts, reason = compare(counted(tree.leaves, tree.spans), counted(tree.leaves, parsed.spans))
    return counts._replace(repaired=int(was_repaired)), reason


def read_gold(line: str, number: int) -> Reading:
    """The reference's line of this number. Raises DataError for what is no tree in brackets, which says what the line should be."""
    wanted = "Give the trees in brackets, one a line, with words and parts of speech, as (TOP (NP (DT the) (NN dog))): NAME.ptb of `nmt data trees`."
    where = f"the reference, line {number:,}"
    if form(line) == LINEARISED:
        raise DataError(f"{where}, is a linearised tree: without parts of speech evalb does not know what is punctuation, which does not count. {wanted}")
    gold = read(line)
    if gold.text:
        raise DataError(f"{where}: {_short(gold.text)} is no part of a tree. {wanted}")
    return gold


def parse_over(line: str, gold: Tree) -> tuple[Tree, bool]:
    """The tree of a hypothesis, linearised or in brackets, over the gold tree's words; and whether it had to be repaired for that."""
    if form(line) == BRACKETS:
        parse = read(line)
        tree = parse.tree
        if tree.words == gold.words and not parse.unbalanced and not parse.text:
            return tree, False
        return delinearise(linearise(tree), gold.words), True
    tree = delinearise(line, gold.words)
    return tree, repaired(line, tree)


def form(line: str) -> str | None:
    """Whether a line is a tree in brackets or a linearised one, whose closing brackets carry labels; None: it does not show."""
    labelled = len(LABELLED_CLOSING.findall(line))
    bare = line.count(")") - labelled
    if labelled == bare:
        return LINEARISED if LONE_WORD.search(line) else None
    return LINEARISED if labelled > bare else BRACKETS


def form_of_all(hypotheses: Sequence[str]) -> str:
    """The form of a system's lines. Lines that are all blank are in brackets, and will be skipped. Raises DataError for a mixture."""
    first: dict[str, int] = {}
    for number, line in enumerate(hypotheses, 1):
        found = form(line)
        if found:
            first.setdefault(found, number)
    if len(first) > 1:
        raise DataError(
            f"a hypothesis mixes two forms: line {first[BRACKETS]:,} is a tree in brackets ({_short(hypotheses[first[BRACKETS] - 1])}), "
            f"line {first[LINEARISED]:,} a linearised one ({_short(hypotheses[first[LINEARISED] - 1])}). "
            "Give one form only; or --evalb-repair, which compares both over the words of the reference."
        )
    return next(iter(first), LINEARISED if any(line.strip() for line in hypotheses) else BRACKETS)


def f1(counts: Counts) -> float:
    """In per cent: the harmonic mean of precision and recall; 0 where there are no constituents."""
    return _share(2 * counts.matched, counts.gold + counts.test)


def _share(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def _short(token: str) -> str:
    return repr(token[:40] + "…" * (len(token) > 40))


class Evalb(Additive):
    """EVALB as a metric: a row of `Counts` per sentence.

    `repair`: parses in brackets are compared as linearised ones always are, over the words and parts of speech of the reference.
    """

    def __init__(self, repair: bool = False) -> None:
        super().__init__("EVALB", version=f"nmt-{__version__}")
        self.repair = repair
        self._words: set[str] = set()
        """Whose words were compared so far, for the signature."""

    def signature(self) -> Mapping[str, str]:
        return {"labelled": "yes", "prm": "COLLINS", "words": ",".join(sorted(self._words)) or ("ref" if self.repair else "hyp")}

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[Counts]:
        """Raises UsageError for several references, DataError for a reference that is no tree and for a mixture of forms."""
        if len(references) != 1:
            raise UsageError(f"evalb compares with one tree a sentence, {len(references)} references were given. Give --ref once, or leave the metric out.")
        repair = self._repairs(hypotheses)
        self._words.add("ref" if repair else "hyp")
        pairs = enumerate(zip(references[0], hypotheses, strict=True), 1)
        return [score_line(gold, line, number, repair)[0] for number, (gold, line) in pairs]

    def remarks(self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
        """What is left out and why, and roots that count."""
        repair = self._repairs(hypotheses)
        counts = [Counts(*map(int, row)) for row in rows]
        errors = [line for line, row in enumerate(counts) if row.errors]
        skipped = [line for line, row in enumerate(counts) if row.skipped]
        if errors:
            reasons = (score_line(references[0][line], hypotheses[line], line + 1, repair)[1] for line in errors[:SHOWN])
            shown = "; ".join(f"line {line + 1:,}: {reason}" for line, reason in zip(errors, reasons, strict=False)) + "; …" * (len(errors) > SHOWN)
            way_out = "" if repair else " To compare over the words and parts of speech of the reference instead, give --evalb-repair."
            yield f"{len(errors):,} of {len(rows):,} sentences have the status error and do not count, as in EVALB: {shown}.{way_out}"
        if skipped:
            shown = ", ".join(f"{line + 1:,}" for line in skipped[:SHOWN]) + ", …" * (len(skipped) > SHOWN)
            yield f"{len(skipped):,} of {len(rows):,} sentences are skipped and do not count, as in EVALB, for the parse has no words that count: line {shown}."
        rooted = [sum(bool(ROOTED.match(line)) for line in lines) for lines in (references[0], hypotheses)]
        if any(rooted) and not repair:
            yield (
                f"{rooted[0]:,} references and {rooted[1]:,} parses have a root called ROOT, S1 or nothing, which counts as a constituent: COLLINS.prm deletes TOP alone. "
                "Call it TOP on both sides if it should not count."
            )

    def value(self, sums: Sequence[float]) -> float:
        return f1(Counts(*map(int, sums)))

    def counts(self, sums: Sequence[float]) -> dict[str, int]:
        return Counts(*map(int, sums))._asdict()

    def details(self, sums: Sequence[float]) -> str:
        counts = Counts(*map(int, sums))
        return (
            f"P {_share(counts.matched, counts.test):.2f} R {_share(counts.matched, counts.gold):.2f} complete {_share(counts.complete, counts.valid):.2f} "
            f"(matched = {counts.matched} gold = {counts.gold} test = {counts.test} valid = {counts.valid} skipped = {counts.skipped} errors = {counts.errors} repaired = {counts.repaired})"
        )

    def _repairs(self, hypotheses: Sequence[str]) -> bool:
        return self.repair or form_of_all(hypotheses) == LINEARISED
