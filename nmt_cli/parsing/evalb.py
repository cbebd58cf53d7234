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

Linearised parses (`linearization`) are compared in another way, which `repair` selects for parses in brackets too: the
words that count are those of the gold tree by its parts of speech, roots are removed on both sides, and the parse is
repaired to cover just these words. Then only damaged gold trees are errors. `terminals_of` recognises the kind of
terminals from all parses together.

`metric` computes a metric from these counts.

Sources: EVALB (Sekine and Collins, 1997; with the changes of 2005 and 2006), its README and COLLINS.prm; Black et al.
(1991); Collins (1997).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import DataError
from .brackets import ROOTS, UNTAGGED, Leaf, Span, Tree, between_spaces, escaped, plain, short
from .linearization import delinearise, is_tag, linearise, repaired

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
LONE_WORD = re.compile(r"(?:^|\s)XX(?:\s|$)", re.ASCII)
BRACKETS, LINEARISED = "brackets", "linearised"
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

    words: list[str]
    tags: list[str]
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
    before, words = [0], list[str]()  # words that count before each leaf
    tags = [tag for tag, _ in leaves if tag not in DELETED]
    for tag, word in leaves:
        if tag not in DELETED:
            words.append(word)
        before.append(len(words))
    constituents = Counter[tuple[str, int, int]]()
    for label, start, end in (span[:3] for span in spans):
        label = re.split("[-=]", label, maxsplit=1)[0]  # EVALB's way: -LRB- becomes an empty label, which counts
        if before[start] < before[end] and label not in DELETED:
            constituents[EQUAL.get(label, label), before[start], before[end]] += 1
    return CountedSide(words, tags, constituents)


def compare(gold: CountedSide, parse: CountedSide, unbalanced: str = "") -> tuple[BracketCounts, str]:
    """Return the counts of a sentence, and why the sentence is an error ("" if it is not)."""
    if not parse.words:
        return SKIPPED, ""
    reason = unbalanced or _difference(gold.words, parse.words)
    if reason:
        return ERROR, reason
    matched = (gold.constituents & parse.constituents).total()
    sizes = gold.constituents.total(), parse.constituents.total()
    correct_tags = sum(gold_tag == parse_tag for gold_tag, parse_tag in zip(gold.tags, parse.tags, strict=True))
    return BracketCounts(
        matched,
        *sizes,
        complete=int(matched == sizes[0] == sizes[1]),
        valid=1,
        words=len(gold.words),
        correct_tags=correct_tags,
    ), ""


def _difference(gold: Sequence[str], parse: Sequence[str]) -> str:
    if len(gold) != len(parse):
        return (
            f"the parse has {len(parse):,} words, the reference {len(gold):,}, without those that are deleted "
            "by their part of speech"
        )
    return next(
        (
            f"the parse has the word {short(parsed)}, the reference {short(word)}"
            for word, parsed in zip(gold, parse, strict=True)
            if word != parsed
        ),
        "",
    )


def score_line(
    gold_line: str, line: str, number: int, repair: bool, terminals: str = "xx"
) -> tuple[BracketCounts, str]:
    """Return the counts of a pair of lines, and why the pair is an error ("" if it is not).

    Raises DataError for a reference that is not a tree.

    `terminals`: the kind of terminals of a linearised parse.
    """
    gold = read_gold(gold_line, number)
    if not repair:
        parse = read(line)
        if parse.text:
            return ERROR, f"in the parse, {short(parse.text)} is no part of a tree in brackets"
        unbalanced = [
            f"the {side} has {reading.unbalanced}"
            for side, reading in (("reference", gold), ("parse", parse))
            if reading.unbalanced
        ]
        return compare(
            countable(gold.leaves, gold.brackets), countable(parse.leaves, parse.brackets), ", ".join(unbalanced)
        )
    if gold.unbalanced:
        return ERROR, f"the reference has {gold.unbalanced}"
    tree = gold.tree
    parsed, was_repaired = parse_over(line, tree, terminals)
    tags = [tag for tag, leaf in zip(parsed.tags, tree.leaves, strict=True) if leaf.tag not in DELETED]
    counts, reason = compare(
        countable(tree.leaves, tree.spans), countable(tree.leaves, parsed.spans)._replace(tags=tags)
    )
    return counts._replace(repaired=int(was_repaired)), reason


def read_gold(line: str, number: int) -> Reading:
    """Return the contents of a line of the reference. Raises DataError if it is not a tree in brackets."""
    expected = (
        "Give the trees in brackets, one per line, with words and parts of speech, as (TOP (NP (DT the) "
        "(NN dog))): NAME.ptb of `nmt data trees`."
    )
    where = f"the reference, line {number:,}"
    if form(line) == LINEARISED:
        raise DataError(
            f"{where}, is a linearised tree: without parts of speech evalb does not know what is punctuation, "
            f"which does not count. {expected}"
        )
    gold = read(line)
    if gold.text:
        raise DataError(f"{where}: {short(gold.text)} is no part of a tree. {expected}")
    return gold


def parse_over(line: str, gold: Tree, terminals: str = "xx") -> tuple[Tree, bool]:
    """Return the tree of a parse, linearised or in brackets, over the gold tree's words, and whether it had to be
    repaired.
    """
    if form(line) == BRACKETS:
        parse = read(line)
        tree = parse.tree
        if tree.words == gold.words and not parse.unbalanced and not parse.text:
            return tree, False
        return delinearise(linearise(tree, "tags"), gold.words, "tags"), True
    tree = delinearise(line, gold.words, terminals)
    return tree, repaired(line, tree, terminals)


def form(line: str) -> str | None:
    """Return BRACKETS, or LINEARISED if the closing brackets have labels; None if the line has no sign of either."""
    labelled = len(LABELLED_CLOSING.findall(line))
    bare = line.count(")") - labelled
    if labelled == bare:
        return LINEARISED if LONE_WORD.search(line) else None
    return LINEARISED if labelled > bare else BRACKETS


def form_of_all(hypotheses: Sequence[str]) -> str:
    """Return the form of a system's lines; BRACKETS if all lines are blank, since they will be skipped.

    Raises DataError for a mixture.
    """
    first: dict[str, int] = {}
    for number, line in enumerate(hypotheses, 1):
        line_form = form(line)
        if line_form:
            first.setdefault(line_form, number)
    if len(first) > 1:
        raise DataError(
            f"a hypothesis mixes two forms: line {first[BRACKETS]:,} is a tree in brackets "
            f"({short(hypotheses[first[BRACKETS] - 1])}), "
            f"line {first[LINEARISED]:,} a linearised one ({short(hypotheses[first[LINEARISED] - 1])}). "
            "Give one form only; or --evalb-repair, which compares both over the words of the reference."
        )
    return next(iter(first), LINEARISED if any(line.strip() for line in hypotheses) else BRACKETS)


def terminals_of(hypotheses: Sequence[str], references: Sequence[str]) -> str:
    """Return the kind of terminals of the linearised parses among a system's lines: one of `linearization.TERMINALS`.

    The kind is xx if half of the texts that are no brackets are XX, and both if a third of them begin with the prefix
    of a tag. Else it is words if more texts are words of the references than tags of them; tags if not, and xx if none
    is a tag.
    """
    texts = Counter(
        text for line in hypotheses if form(line) != BRACKETS for text in between_spaces(line) if text[0] not in "()"
    )
    if 2 * texts[UNTAGGED] >= texts.total():
        return "xx"
    if 3 * sum(count for text, count in texts.items() if is_tag(text)) >= texts.total():
        return "both"
    leaves = {leaf for line in references for leaf in read(line).leaves}
    words = {spelling for _, word in leaves for spelling in (word, escaped(plain(word)))}
    as_tags, as_words = (sum(texts[text] for text in vocabulary) for vocabulary in ({tag for tag, _ in leaves}, words))
    return "words" if as_words > as_tags else "tags" if as_tags else "xx"


def words_of(line: str) -> int:
    """Return the number of words of a parse, in brackets or linearised."""
    if form(line) == BRACKETS:
        return len(read(line).leaves)
    texts = [text for text in between_spaces(line) if text[0] not in "()"]
    if terminals_of([line], ()) == "both":
        return sum(not is_tag(text) for text in texts)
    return len(texts)


def has_tags(line: str, terminals: str) -> bool:
    """Return whether a parse has parts of speech. `terminals`: the kind of terminals of linearised parses."""
    return bool(TAGGED.search(line)) if form(line) == BRACKETS else terminals in ("tags", "both") and bool(line.strip())


def f1(counts: BracketCounts) -> float:
    """Return the harmonic mean of precision and recall in per cent; 0 if there are no constituents."""
    return percent(2 * counts.matched, counts.gold + counts.test)


def percent(part: float, whole: float) -> float:
    """Return 100 · part / whole; 0 if `whole` is 0."""
    return 100.0 * part / whole if whole else 0.0
