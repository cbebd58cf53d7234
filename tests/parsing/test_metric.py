"""Brackets counted as EVALB counts them: its own results on a table of cases, a twin that counts as its C does, parses
without words, and every message."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from nmt_cli import __version__
from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metric import MetricOptions
from nmt_cli.evaluation.metrics import Scorer, compute
from nmt_cli.parsing.evalb import BracketCounts, read
from nmt_cli.parsing.linearization import delinearise
from nmt_cli.parsing.metric import Evalb

BRACKETS = f"nrefs:1|labelled:yes|prm:COLLINS|words:hyp|version:nmt-{__version__}"
GOLD = "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (, ,) (NP (NN blue)))) (. .)))"
"""Words The 0 dog 1 saw 2 a 3 cat 4 blue 5; constituents S 0-6, NP 0-2, VP 2-6, NP 3-6, NP 3-5, NP 5-6."""

AB = "(TOP (S (NP (NN a)) (VP (VB b))))"
TABLE = f"""
a tree against itself | {GOLD} | {GOLD} | valid 6 6 6
no punctuation in the parse | {GOLD} | (TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (NP (NN blue)))))) | valid 6 6 6
a word tagged as punctuation in the parse | {AB} | (TOP (S (NP (NN a)) (VP (. b)))) | error
another word | {AB} | (TOP (S (NP (NN a)) (VP (VB c)))) | error
a word too many | {AB} | (TOP (S (NP (NN a)) (VP (VB b) (RB c)))) | error
ROOT against TOP | (ROOT (S (NP (NN a)) (VP (VB b)))) | {AB} | valid 3 4 3
a root without a label | ( (S (NP (NN a)) (VP (VB b)))) | {AB} | valid 3 4 3
no root at all | (S (NP (NN a)) (VP (VB b))) | {AB} | valid 3 3 3
constituents labelled as punctuation | (TOP (S (, (NN a) (NN b)) (: (. (NN c))))) | (TOP (S (NN a) (NN b) (`` (NN c)))) | valid 1 1 1
punctuation with an index is a label of punctuation, but no such part of speech | (TOP (S (,-x (NN a)) (,-x ,))) | (TOP (S (NN a))) | error
traces and what holds nothing else | (TOP (S (NP-SBJ-1 (PRP he)) (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))) | (TOP (S (NP (PRP he)) (VP (VBD said)))) | valid 3 3 3
function tags and indices | (TOP (S-TPC-1 (NP-SBJ=2 (NN a)) (VP=3 (VB b)))) | (TOP (S (NP (NN a)) (VP-X (VB b)))) | valid 3 3 3
ADVP and PRT | (TOP (VP (VB give) (PRT (RP up)) (ADVP (RB so)))) | (TOP (VP (VB give) (ADVP (RP up)) (PRT-X (RB so)))) | valid 3 3 3
equal labels over the same words, more in the reference | (TOP (NP (NP (NP (NN a))))) | (TOP (NP (NN a))) | valid 1 3 1
a sentence of punctuation alone | (TOP (NP (. !))) | (TOP (NP (. !))) | skipped
words in the reference, punctuation alone in the parse | (TOP (NP (NN a))) | (TOP (NP (. a))) | skipped
punctuation alone in the reference, words in the parse | (TOP (NP (. a))) | (TOP (NP (NN a))) | error
words without constituents | (TOP (NN a)) | (TOP (NN a)) | valid 0 0 0
a blank parse | {GOLD} |  | skipped
a blank reference |  | (TOP (NN a)) | error
the empty tree of parsers that failed | {GOLD} | (()) | skipped
a bracket with a space and no word holds a word of no letters | (TOP (S (NP ) (NN a))) | (TOP (S (NN a))) | error
several trees on a line | (NP (NN a)) (NP (NN b)) | (TOP (NP (NN a)) (NP (NN b))) | valid 2 2 2
a constituent without a label | (TOP (S ((NN a) (NN b)))) | (TOP (S (NN a) (NN b))) | valid 1 2 1
a bracket that never closes in the parse | {GOLD} | {GOLD[:-1]} | error
a bracket that never closes in the reference | {GOLD[:-1]} | {GOLD} | error
a bracket that closes what is not open | {GOLD} | {GOLD}) | error
other spaces | {GOLD} | (TOP\t(S\t(NP\t(DT The)\t(NN dog))\t(VP\t(VBD saw)\t(NP\t(NP\t(DT a)\t(NN cat))\t(, ,)\t(NP\t(NN blue))))\t(. .))) \r | valid 6 6 6
letters beyond ASCII | (TOP (NP (NN \xe9\xa0\xe9))) | (TOP (NP (NN \xe9\xa0\xe9))) | valid 1 1 1
"""
CASES: list[tuple[str, str, str, Any]] = [
    (what, gold, parse, (status, *map(int, numbers or "000")))
    for what, gold, parse, expected in (line.split(" | ") for line in TABLE.strip("\n").split("\n"))
    for status, *numbers in [expected.split()]
]
"""What, reference, parse; EVALB's own status of the line, and its brackets: matched, gold, test (0 unless valid)."""


def rows(parses: Sequence[str], gold: Sequence[str], repair: bool = False) -> list[BracketCounts]:
    return Evalb(repair).rows(parses, [gold])


def row(gold: str, parse: str, repair: bool = False) -> BracketCounts:
    return rows([parse], [gold], repair)[0]


def status(counts: BracketCounts) -> str:
    [found] = [
        name for name, one in (("valid", counts.valid), ("skipped", counts.skipped), ("error", counts.errors)) if one
    ]
    return found


@pytest.mark.parametrize(("what", "gold", "parse", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_line_counts_as_with_evalb(what: str, gold: str, parse: str, expected: tuple[str, int, int, int]) -> None:
    """The expected values are the output of EVALB itself: evalb.c with F-measure and quotes (2006), `evalb -p COLLINS.prm`, line by line."""
    found = row(gold, parse)
    assert (status(found), found.matched, found.gold, found.test) == expected
    assert found.repaired == 0
    assert twin_with_tags(gold, parse)[:4] == expected


def test_a_file_counts_the_sum_of_its_lines() -> None:
    """And the shares follow from the sums; every case that EVALB would print in its summary is among the lines."""
    score = compute("evalb", [parse for _, _, parse, _ in CASES], [[gold for _, gold, _, _ in CASES]])
    matched, gold, test = (sum(case[3][number] for case in CASES) for number in (1, 2, 3))
    statuses = [case[3][0] for case in CASES]
    counted = f"(matched = {matched} gold = {gold} test = {test} valid = {statuses.count('valid')} skipped = {statuses.count('skipped')} errors = {statuses.count('error')} repaired = 0)"
    assert score.details.startswith(f"P {100 * matched / test:.2f} R {100 * matched / gold:.2f} complete ")
    assert score.details.endswith(counted)
    assert score.value == pytest.approx(200 * matched / (gold + test))
    assert (score.name, score.signature) == ("EVALB", BRACKETS)


SPACES, DELETE_LABEL = " \t\n\v\f\r", ["TOP", "-NONE-", ",", ":", "``", "''", "."]


def until_space_or_bracket(line: str, at: int) -> int:
    while line[at] not in SPACES + "()":
        at += 1
    return at


def read_line(line: str) -> tuple[list[tuple[str, str]], list[list[int | str]], bool]:
    """(word, part of speech), [label, start, end] of each bracket, and whether they are balanced. As in C the line ends in a newline."""
    line, at = line + "\n", 0
    words, found, stack, balanced = list[tuple[str, str]](), list[list[int | str]](), list[int](), True
    while at < len(line):
        if line[at] in SPACES:
            at += 1
        elif line[at] == ")":
            if stack:
                found[stack.pop()][2] = len(words)
            else:
                balanced = False
            at += 1
        else:
            assert line[at] == "(", line
            end = until_space_or_bracket(line, at + 1)
            label, after = line[at + 1 : end], end
            while line[after : after + 1] and line[after] in SPACES:
                after += 1
            if after > end and after < len(line):
                last = until_space_or_bracket(line, after)
                if line[last] == ")":
                    if label not in DELETE_LABEL:
                        words.append((line[after:last], label))
                    at = last + 1
                    continue
            stack.append(len(found))
            found.append([label, len(words), -1])
            at = end
    return words, found, balanced and not stack


def labels_equal(one: int | str, other: int | str) -> bool:
    return one == other or {one, other} == {"ADVP", "PRT"}


def constituents(found: list[list[int | str]]) -> list[list[int | str]]:
    left = []
    for label, start, end in found:
        if start != end:
            cut = str(label)
            for position, character in enumerate(cut):
                if character in "-=":
                    cut = cut[:position]
                    break
            if not any(labels_equal(cut, deleted) for deleted in DELETE_LABEL):
                left.append([cut, start, end, 0])
    return left


def twin_with_tags(gold_line: str, parse_line: str) -> tuple[str, int, int, int, int, int]:
    (gold_words, gold_found, gold_balanced), (parse_words, parse_found, parse_balanced) = (
        read_line(gold_line),
        read_line(parse_line),
    )
    if not parse_words:
        return ("skipped", 0, 0, 0, 0, 0)
    if not (gold_balanced and parse_balanced) or [word for word, _ in gold_words] != [word for word, _ in parse_words]:
        return ("error", 0, 0, 0, 0, 0)
    gold, parse, matched = constituents(gold_found), constituents(parse_found), 0
    for one in gold:
        for other in parse:
            if not other[3] and one[1:3] == other[1:3] and labels_equal(one[0], other[0]):
                other[3] = 1
                matched += 1
                break
    tagged = sum(one == other for one, other in zip(gold_words, parse_words, strict=True))
    return ("valid", matched, len(gold), len(parse), len(gold_words), tagged)


TAGS = ["NN", "VB", "DT", "TOP", "-LRB-", "-NONE-", "NN-x", ",-x", "$", ",", ".", ":", "``", "''"]
NAMES = "S|NP|VP|PRT|ADVP-TMP|NP-SBJ|PP=2|TOP|TOP-1|ROOT||,|.|:|``|''|-NONE-|-LRB-|,-x|="
LABELS = NAMES.split("|")


def random_tree(draw: random.Random, leaves: list[str]) -> str:
    label = draw.choice(LABELS if draw.random() < 0.4 else LABELS[:6])
    if len(leaves) < 2 or draw.random() < 0.2:
        inner = leaves or [draw.choice(["()", "(())", "(X )", "(X)"])]
    else:
        cut = draw.randrange(1, len(leaves))
        inner = [random_tree(draw, leaves[:cut]), random_tree(draw, leaves[cut:])]
    return f"({label}{draw.choice([' ', '', chr(9)])}{draw.choice([' ', '']).join(inner)}{draw.choice(['', '', ' '])})"


def random_line(draw: random.Random, words: list[tuple[str, str]]) -> str:
    line = random_tree(draw, [f"({tag} {word})" for tag, word in words])
    if draw.random() < 0.5:
        line = f"({draw.choice(['TOP', 'ROOT', 'S1', ''])} {line})"
    if draw.random() < 0.04:
        return line[:-1]
    return line + draw.choice(["", "", "", " (. .)", "(NP (, ,))", " \r"])


def changed(draw: random.Random, words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The words with other parts of speech, another word, or some of them left out."""
    kind, at = draw.randrange(6), draw.randrange(len(words) or 1)
    return {
        0: [(tag, word) for tag, word in words if tag not in DELETE_LABEL],
        1: [(draw.choice(TAGS), word) if draw.random() < 0.2 else (tag, word) for tag, word in words],
        2: [*words[:at], (draw.choice(TAGS), "other"), *words[at + 1 :]],
        3: words[:at] + words[at + 1 :],
    }.get(kind, words)


def test_random_trees_count_as_with_evalb() -> None:
    draw = random.Random(5)
    statuses, matched = dict.fromkeys(("valid", "skipped", "error"), 0), 0
    for _ in range(1500):
        words = [
            (draw.choice(TAGS if draw.random() < 0.5 else TAGS[:3]), f"w{number}")
            for number in range(draw.randrange(9))
        ]
        gold = random_line(draw, words)
        for parse in (gold, random_line(draw, changed(draw, words)), draw.choice(["", " ", "(())", "(TOP (S))"])):
            found = row(gold, parse)
            counted = found.matched, found.gold, found.test, found.words, found.correct_tags
            assert (status(found), *counted) == twin_with_tags(gold, parse), (gold, parse)
            assert found.complete == (found.valid and found.matched == found.gold == found.test)
            statuses[status(found)] += 1
            matched += found.matched
    assert min(statuses.values()) > 500
    assert matched > 2500


def scorer(gold: Sequence[str], repair: bool = False) -> Scorer:
    return Scorer("evalb", [gold], MetricOptions(evalb_repair=repair))


def test_what_does_not_count_is_counted_and_described() -> None:
    parses = [GOLD, "", GOLD.replace("cat", "rat"), GOLD[:-1], "(())", GOLD.replace("(DT a) ", ""), GOLD + " dog"]
    found = scorer([GOLD] * 7)
    assert found.score(parses).value == 100
    counted = BracketCounts(6, 6, 6, 1, valid=1, skipped=2, errors=4, words=6, correct_tags=6)
    assert found.counts(parses) == counted._asdict()
    errors, skipped = found.remarks(parses)
    for said in ("4 of 7", "line 3: ", "'rat'", "line 4: ", "never close", "line 6: ", "5 words", "--evalb-repair"):
        assert said in errors
    assert "line 7" not in errors  # three are shown
    assert skipped.startswith("2 of 7")
    assert skipped.endswith(": line 2, 5.")
    [said] = scorer([GOLD[:-1], GOLD]).remarks([GOLD + ")", GOLD])
    assert re.search(r"reference .* never close, the parse .* close what is not open", said)
    assert scorer([GOLD]).remarks([GOLD]) == []


@pytest.mark.parametrize("root", ["ROOT", "S1", ""])
def test_roots_that_count_are_remarked_on(root: str) -> None:
    other = GOLD.replace("TOP", root, 1)
    [said] = scorer([GOLD, other, other]).remarks([other, other, GOLD])
    assert said.startswith("2 references and 2 parses have a root")
    assert scorer([other], repair=True).remarks([GOLD]) == []


@pytest.mark.parametrize(
    ("gold", "parse", "named"),
    [
        (GOLD, "(S (NP XX XX )NP (VP XX )VP )S", r"line 2: '\(S \(NP .*nmt data trees --back --words FILE"),
        ("(S (NP XX )NP XX )S", GOLD, r"the reference, line 2: '\(S \(NP XX \)NP XX \)S'"),
        ("a dog", GOLD, "the reference, line 2: 'a'"),
        ("(S (NN a)) (NN b c)", GOLD, "the reference, line 2: 'b'"),
    ],
)
def test_what_is_no_tree_in_brackets_is_named(gold: str, parse: str, named: str) -> None:
    for repair in (False, True):
        with pytest.raises(DataError, match=named):
            rows([GOLD, parse], [GOLD, gold], repair)
    assert rows([GOLD, "(TOP (NN a)x"], [GOLD] * 2)[1] == BracketCounts(errors=1)  # `)x` is no label here
    with pytest.raises(UsageError, match="2 references"):
        compute("evalb", [GOLD], [[GOLD], [GOLD]])


PUNCTUATED = [
    f"punctuation {tag} takes no position | (TOP (S (NP (NN a)) ({tag} x) (VP (VB b)) ({tag} y))) | {parse} | 3 3 3"
    for tag in (",", "``")
    for parse in ("(S (NP XX XX )NP (VP XX )VP XX )S", "(S (NP XX )NP (VP XX XX )VP )S XX")
]
REPAIR = f"""
the second NP outside the object | {GOLD} | (S (NP XX XX )NP (VP XX (NP XX XX )NP )VP XX (NP XX )NP XX )S | 4 6 5
other symbols take one | (TOP (S (NP (NN a)) (HYPH x) (VP (VB b)))) | (S (NP XX XX )NP (VP XX )VP )S | 2 3 3
no root counts | (ROOT (NP (NN a))) | (S1 (NP (NN a))) | 1 1 1
nor one without a label | ( (NP (NN a))) | (NP (NN a)) | 1 1 1
traces go | (TOP (S (NP-SBJ=1 (NN a)) (VP (VBD b) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))))) | (S-x (NP XX )NP (VP-y=2 XX )VP-y=2 )S-x | 3 3 3
ADVP and PRT | (TOP (VP (VB give) (PRT (RP up)))) | (VP XX (ADVP XX )ADVP )VP | 2 2 2
TOP inside a tree | (TOP (S (TOP (NN a)) (, (VB b)))) | (S (TOP XX XX )TOP )S | 1 1 1
punctuation by the reference's tag alone | (TOP (S (NP (NNP John)) (: ;))) | (TOP (S (NP (NNP John)) (CC ;))) | 2 2 2
fewer words, repaired | {GOLD} | (TOP (S (NP (DT The)) (VP (VB x)))) | 1 6 3
another word, repaired | {GOLD} | {GOLD.replace("cat", "rat")} | 6 6 6
damaged, repaired | {GOLD} | {GOLD[:-1]} | 6 6 6
nothing, repaired | {GOLD} | (()) | 0 6 0
blank, repaired | {GOLD} |  | 0 6 0
several trees | (TOP (NP (NN a)) (NP (NN b))) | (NP (NN a)) (NP (NN b)) | 2 2 2
"""
REPAIRS = [line.split(" | ") for line in [*PUNCTUATED, *REPAIR.strip("\n").split("\n")]]


@pytest.mark.parametrize(("what", "gold", "parse", "expected"), REPAIRS, ids=[case[0] for case in REPAIRS])
def test_a_parse_counts_over_all_words_of_the_reference(what: str, gold: str, parse: str, expected: str) -> None:
    """The figures are worked by hand; a parse of symbols is written as a tree of these words."""
    if re.search(r"\s\)[^)\s]", parse):
        parse = str(delinearise(parse, [leaf.word for leaf in read(gold).tree.leaves]))
    found = row(gold, parse, repair=True)
    assert found.valid
    assert [found.matched, found.gold, found.test] == [*map(int, expected.split())]
    assert found.repaired == what.endswith("repaired")


def test_tagging_accuracy_is_the_share_of_the_words_that_count() -> None:
    other = GOLD.replace("(NN dog)", "(NNS dog)").replace("(DT a)", "(CC a)").replace("(, ,)", "(: ,)")
    found = scorer([GOLD] * 3, repair=True)
    parses = [other, "", "(TOP (S (NP (DT The) (NNS dog))))"]  # two words have tags, one of them is right
    assert [one.correct_tags for one in rows(parses, [GOLD] * 3, True)] == [4, 0, 1]
    assert "complete 33.33 tagging accuracy 27.78 (matched = 8 gold = 18" in found.score(parses).details
    assert found.counts(parses)["correct_tags"] == 5
    assert found.score(parses).signature == BRACKETS.replace("words:hyp", "words:ref")
    untagged = re.sub(r"\(\S+ ([\w,.])", r"(XX \1", GOLD)
    assert "correct_tags" not in scorer([GOLD], repair=True).counts([untagged])
    assert "tagging" not in scorer([GOLD], repair=True).score([untagged]).details
    tagged = scorer([GOLD] * 2, repair=True).score([untagged, GOLD]).details
    assert "tagging accuracy 50.00" in tagged  # a word without a part of speech is wrong beside words that have one


def test_references_of_punctuation_alone_are_skipped_and_damaged_ones_errors() -> None:
    assert row("(TOP (NP (. !)))", "(TOP (NP (NN !)))", repair=True) == BracketCounts(skipped=1)
    found = scorer([GOLD[:-1], GOLD], repair=True)
    assert found.rows([GOLD, GOLD])[0] == BracketCounts(errors=1)
    [said] = found.remarks([GOLD, GOLD])
    assert said.endswith("line 1: the reference has 1 bracket(s) that never close.")


def test_deep_and_long_lines_need_no_deep_stack_and_linear_time() -> None:
    deep = "(A " * 20_000 + "(NN a)" + ")" * 20_000
    counted = BracketCounts(20_000, 20_000, 20_000, 1, valid=1, words=1, correct_tags=1)
    assert row(deep, deep) == row(deep, deep, repair=True) == counted
    for damaged in ("(" * 30_000, ")" * 30_000, f"( {' ' * 300_000}", f"(NN{' ' * 300_000}", "( " * 30_000):
        assert row("(TOP (NN a))", damaged + "()").skipped
