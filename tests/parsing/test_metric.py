"""Brackets counted as EVALB counts them: its own results on a table of cases, a twin that counts as its C does, parses
without words, and every message."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from nmt_cli import __version__
from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metric import MetricOptions
from nmt_cli.evaluation.metrics import Scorer, compute
from nmt_cli.parsing.evalb import BracketCounts, f1, read
from nmt_cli.parsing.linearization import delinearise
from nmt_cli.parsing.metric import Evalb

BRACKETS = f"nrefs:1|labelled:yes|prm:COLLINS|words:hyp|version:nmt-{__version__}"
REPAIRED = f"nrefs:1|labelled:yes|prm:COLLINS|words:ref|version:nmt-{__version__}"
GOLD = "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (, ,) (NP (NN blue)))) (. .)))"
"""Words The 0 dog 1 saw 2 a 3 cat 4 blue 5; constituents S 0-6, NP 0-2, VP 2-6, NP 3-6, NP 3-5, NP 5-6."""

AB = "(TOP (S (NP (NN a)) (VP (VB b))))"
TABLE = f"""
a tree against itself | {GOLD} | {GOLD} | valid 6 6 6
no punctuation in the parse | {GOLD} | (TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (NP (NN blue)))))) | valid 6 6 6
no punctuation in the reference | {AB} | (TOP (S (NP (NN a)) (, ,) (VP (VB b)) (. .))) | valid 3 3 3
punctuation of another kind | (TOP (S (NP (NN a)) (: ;) (VP (VB b)) (. .))) | (TOP (S (`` x) (NP (NN a) ('' y)) (VP (VB b)))) | valid 3 3 3
punctuation tagged as a word | (TOP (S (NP (NN a)) (CC ;))) | (TOP (S (NP (NN a)) (: ;))) | error
a word tagged as punctuation in the parse | {AB} | (TOP (S (NP (NN a)) (VP (. b)))) | error
another word | {AB} | (TOP (S (NP (NN a)) (VP (VB c)))) | error
another case of a letter | {AB} | (TOP (S (NP (NN A)) (VP (VB b)))) | error
a word too few | {AB} | (TOP (S (NP (NN a)))) | error
a word too many | {AB} | (TOP (S (NP (NN a)) (VP (VB b) (RB c)))) | error
other parts of speech | {AB} | (TOP (S (NP (XX a)) (VP (XX b)))) | valid 3 3 3
ROOT against TOP | (ROOT (S (NP (NN a)) (VP (VB b)))) | {AB} | valid 3 4 3
S1 against TOP | {AB} | (S1 (S (NP (NN a)) (VP (VB b)))) | valid 3 3 4
ROOT against ROOT | (ROOT (S (NP (NN a)) (VP (VB b)))) | (ROOT (S (NP (NN a)) (VP (VB b)))) | valid 4 4 4
ROOT against S1 | (ROOT (NP (NN a))) | (S1 (NP (NN a))) | valid 1 2 2
a root without a label | ( (S (NP (NN a)) (VP (VB b)))) | {AB} | valid 3 4 3
roots without labels, with and without a space | ( (NP (NN a))) | ((NP (NN a))) | valid 2 2 2
no root at all | (S (NP (NN a)) (VP (VB b))) | {AB} | valid 3 3 3
a root with an index | (TOP-1 (NP (NN a))) | (TOP=2 (NP (NN a))) | valid 1 1 1
TOP inside a tree | (TOP (S (TOP (NN a)) (TOP (VP (VB b))))) | (TOP (S (NN a) (VP (VB b)))) | valid 2 2 2
TOP as a part of speech | (TOP (S (TOP a) (VP (VB b)))) | (TOP (S (VP (VB b)))) | valid 2 2 2
constituents labelled as punctuation | (TOP (S (, (NN a) (NN b)) (: (. (NN c))))) | (TOP (S (NN a) (NN b) (`` (NN c)))) | valid 1 1 1
punctuation with an index is a label of punctuation, but no such part of speech | (TOP (S (,-x (NN a)) (,-x ,))) | (TOP (S (NN a))) | error
-LRB- as part of speech and as label | (TOP (S (-LRB- -LRB-) (NP (NN a)))) | (TOP (S (-LRB- (-LRB- -LRB-)) (-RRB- (NN a)))) | valid 1 2 3
a label of -NONE- counts | (TOP (-NONE- (NN a))) | ( (NN a)) | valid 1 1 1
traces and what holds nothing else | (TOP (S (NP-SBJ-1 (PRP he)) (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))) | (TOP (S (NP (PRP he)) (VP (VBD said)))) | valid 3 3 3
function tags and indices | (TOP (S-TPC-1 (NP-SBJ=2 (NN a)) (VP=3 (VB b)))) | (TOP (S (NP (NN a)) (VP-X (VB b)))) | valid 3 3 3
ADVP and PRT | (TOP (VP (VB give) (PRT (RP up)) (ADVP (RB so)))) | (TOP (VP (VB give) (ADVP (RP up)) (PRT-X (RB so)))) | valid 3 3 3
ADVP and PP | (TOP (VP (VB give) (ADVP (RP up)))) | (TOP (VP (VB give) (PP (RP up)))) | valid 1 2 2
equal labels over the same words, more in the reference | (TOP (NP (NP (NP (NN a))))) | (TOP (NP (NN a))) | valid 1 3 1
equal labels over the same words, more in the parse | (TOP (NP (NN a))) | (TOP (NP (NP (NN a)))) | valid 1 1 2
ADVP and PRT in a chain | (TOP (ADVP (PRT (RB a)))) | (TOP (PRT (PRT (ADVP (RB a))))) | valid 2 2 3
a chain in another order | (TOP (S (VP (VB go)))) | (TOP (VP (S (VB go)))) | valid 2 2 2
a constituent of punctuation alone | (TOP (S (NP (NN a)) (PRN (: -) (: -)))) | (TOP (S (NP (NN a)) (X (: -)) (Y (. -)))) | valid 2 2 2
a sentence of punctuation alone | (TOP (NP (. !))) | (TOP (NP (. !))) | skipped
words in the reference, punctuation alone in the parse | (TOP (NP (NN a))) | (TOP (NP (. a))) | skipped
punctuation alone in the reference, words in the parse | (TOP (NP (. a))) | (TOP (NP (NN a))) | error
words without constituents | (TOP (NN a)) | (TOP (NN a)) | valid 0 0 0
a blank parse | {GOLD} |  | skipped
blank on both sides |  |  | skipped
a blank reference |  | (TOP (NN a)) | error
the empty tree of parsers that failed | {GOLD} | (()) | skipped
empty constituents | (TOP (S (NP) (NN a) (PP (X)))) | (TOP (S (NN a))) | valid 1 1 1
a bracket with a space and no word holds a word of no letters | (TOP (S (NP ) (NN a))) | (TOP (S (NN a))) | error
several trees on a line | (NP (NN a)) (NP (NN b)) | (TOP (NP (NN a)) (NP (NN b))) | valid 2 2 2
a constituent without a label | (TOP (S ((NN a) (NN b)))) | (TOP (S (NN a) (NN b))) | valid 1 2 1
a bracket that never closes in the parse | {GOLD} | {GOLD[:-1]} | error
a bracket that never closes in the reference | {GOLD[:-1]} | {GOLD} | error
the same damage on both sides | {GOLD[:-1]} | {GOLD[:-1]} | error
a bracket that closes what is not open | {GOLD} | {GOLD}) | error
damage without words | {GOLD} | (TOP (S (NP)) | skipped
other spaces | {GOLD} | (TOP\t(S\t(NP\t(DT The)\t(NN dog))\t(VP\t(VBD saw)\t(NP\t(NP\t(DT a)\t(NN cat))\t(, ,)\t(NP\t(NN blue))))\t(. .))) \r | valid 6 6 6
brackets without spaces between them | (TOP(S(NP(NN a))(VP(VB b)))) | {AB} | valid 3 3 3
letters beyond ASCII | (TOP (NP (NN \xe9\xa0\xe9))) | (TOP (NP (NN \xe9\xa0\xe9))) | valid 1 1 1
"""
CASES = [
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


def test_a_file_counts_as_with_evalb() -> None:
    """The figures are those of EVALB's summary, `evalb -p COLLINS.prm -e 1000` on the cases as two files; tagging accuracy is by the twin below."""
    score = compute("evalb", [parse for _, _, parse, _ in CASES], [[gold for _, gold, _, _ in CASES]])
    assert score.details == (
        "P 91.95 R 90.91 complete 70.59 tagging accuracy 97.10 (matched = 80 gold = 88 test = 87 valid = 34 skipped = 6 errors = 14 repaired = 0)"
    )
    assert (score.name, score.signature) == ("EVALB", BRACKETS)
    assert score.value == pytest.approx(91.43, abs=0.005)


# --- a twin that reads and counts in the way of EVALB's C: a character at a time, loops instead of sets ---

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
    kind, left = draw.randrange(6), list(words)
    if kind == 0:
        left = [(tag, word) for tag, word in words if tag not in DELETE_LABEL]
    elif kind == 1:
        left = [(draw.choice(TAGS), word) if draw.random() < 0.2 else (tag, word) for tag, word in words]
    elif kind == 2 and words:
        left[draw.randrange(len(words))] = (draw.choice(TAGS), "other")
    elif kind == 3 and words:
        del left[draw.randrange(len(words))]
    return left


def test_random_trees_count_as_with_evalb() -> None:
    draw = random.Random(5)
    statuses, matched = dict.fromkeys(("valid", "skipped", "error"), 0), 0
    for _ in range(3000):
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
    assert min(statuses.values()) > 1000
    assert matched > 5000


# --- what is known of the lines: statuses, remarks, forms ---


def scorer(gold: Sequence[str], repair: bool = False) -> Scorer:
    return Scorer("evalb", [gold], MetricOptions(evalb_repair=repair))


def test_what_does_not_count_is_counted_and_described() -> None:
    parses = [GOLD, "", GOLD.replace("cat", "rat"), GOLD[:-1], "(())", GOLD.replace("(DT a) ", ""), GOLD + " dog"]
    found = scorer([GOLD] * 7)
    assert found.score(parses).value == 100
    counted = BracketCounts(6, 6, 6, 1, valid=1, skipped=2, errors=4, words=6, correct_tags=6)
    assert found.counts(parses) == counted._asdict()
    errors, skipped = found.remarks(parses)
    assert errors.startswith("4 of 7 sentences have the status error")
    for said in (
        "line 3: the parse has the word 'rat', the reference 'cat'; ",
        "line 4: the parse has 1 bracket(s) that never close; ",
        "line 6: the parse has 5 words, the reference 6, ",
        "--evalb-repair",
    ):
        assert said in errors
    assert "line 7" not in errors  # three are shown
    assert skipped.startswith("2 of 7 sentences are skipped")
    assert skipped.endswith(": line 2, 5.")
    assert "line 1: in the parse, 'dog' is no part" in scorer([GOLD]).remarks([GOLD + " dog"])[0]
    [said] = scorer([GOLD[:-1], GOLD]).remarks([GOLD + ")", GOLD])
    assert "the reference has 1 bracket(s) that never close, the parse has 1 bracket(s) that close what" in said


def test_nothing_is_remarked_where_all_is_valid_and_nothing_to_match_is_zero() -> None:
    assert scorer([GOLD]).remarks([GOLD]) == []
    assert Scorer("bleu", [["a"]]).remarks(["a"]) == []
    assert Scorer("bleu", [["a"]]).counts(["a"]) == {}
    assert f1(BracketCounts()) == f1(row("(TOP (NN a))", "(TOP (NN a))")) == 0.0


@pytest.mark.parametrize("root", ["ROOT", "S1", ""])
def test_roots_that_count_are_remarked_on(root: str) -> None:
    other = GOLD.replace("TOP", root, 1)
    [said] = scorer([GOLD, other, other]).remarks([other, other, GOLD])
    assert said.startswith("2 references and 2 parses have a root called ROOT, S1 or nothing")
    assert scorer([other], repair=True).remarks([GOLD]) == []


def test_the_sums_over_valid_sentences_give_the_shares() -> None:
    # S 0-2, VP 0-1, VP 1-2 against S 0-2, NP 0-1, VP 1-2: 2 of 3 and 3; with the 6 of GOLD P = R = 8/9
    score = compute(
        "evalb",
        [GOLD, "(TOP (S (VP (NN dogs)) (VP (VBP bark))))", ""],
        [[GOLD, "(TOP (S (NP (NN dogs)) (VP (VBP bark))))", GOLD]],
    )
    assert score.value == pytest.approx(100 * 8 / 9)
    assert score.details.startswith("P 88.89 R 88.89 complete 50.00 tagging accuracy 100.00 (matched = 8 gold = 9 ")


@pytest.mark.parametrize("line", ["(S (NP XX XX )NP (VP XX )VP )S", "(S (NP DT NN )NP"])
def test_a_linearised_parse_is_refused(line: str) -> None:
    for repair in (False, True):
        with pytest.raises(DataError, match=r"line 2: '\(S \(NP .*nmt data trees --back --words FILE"):
            rows([GOLD, line], [GOLD] * 2, repair)
    assert rows([GOLD, "(TOP (NN a)x"], [GOLD] * 2)[1] == BracketCounts(errors=1)  # `)x` is no label here


# --- over the words of the reference: --evalb-repair ---


def repaired(gold: str, symbols: str) -> BracketCounts:
    """Return the counts of a parse, written as symbols, over all words of the reference, punctuation included."""
    return row(gold, str(delinearise(symbols, [leaf.word for leaf in read(gold).tree.leaves])), repair=True)


def counts(gold: str, symbols: str) -> tuple[int, int, int]:
    found = repaired(gold, symbols)
    assert found.valid
    return found.matched, found.gold, found.test


def test_precision_and_recall_of_a_hand_worked_parse() -> None:
    # the second NP outside the object: S 0-6, NP 0-2, VP 2-5, NP 3-5, NP 5-6; VP 2-5 is not in gold
    symbols = "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP XX (NP XX )NP XX )S"
    assert counts(GOLD, symbols) == (4, 6, 5)
    assert f1(repaired(GOLD, symbols)) == pytest.approx(100 * 8 / 11)  # F1 = 2 · 4 / (6 + 5)


def test_punctuation_takes_no_position_inside_a_sentence_what_collins_prm_keeps_does() -> None:
    # words a 0 b 1; NP 0-1 with or without the punctuation between, S 0-2 with or without that at the end
    for tag in (",", ":", "``", "''", "."):
        gold = f"(TOP (S (NP (NN a)) ({tag} x) (VP (VB b)) ({tag} y)))"
        for symbols in (
            "(S (NP XX XX )NP (VP XX )VP XX )S",
            "(S (NP XX )NP (VP XX XX )VP )S XX",
            "(S (NP XX )NP (VP XX XX XX )VP )S",
        ):
            assert counts(gold, symbols) == (3, 3, 3)
    for tag in ("-LRB-", "-RRB-", "HYPH", "$", "#", "SYM", "NN"):
        assert counts(f"(TOP (S (NP (NN a)) ({tag} x) (VP (VB b))))", "(S (NP XX XX )NP (VP XX )VP )S") == (2, 3, 3)


def test_no_root_counts_and_labels_count_as_without_repair() -> None:
    one = BracketCounts(1, 1, 1, 1, valid=1, words=1, correct_tags=1)
    for root in ("(TOP ", "(ROOT ", "( "):
        for gold in ("(S1 (NP (NN a)))", "(NP (NN a))", f"{root}(NP (NN a)))"):
            assert row(gold, f"{root}(NP (NN a)))", repair=True) == one
    traces = "(TOP (S (NP-SBJ=1 (NN a)) (VP (VBD b) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))"
    assert counts(traces, "(S-x (NP XX )NP (VP-y=2 XX )VP-y=2 )S-x") == (3, 3, 3)
    assert counts("(TOP (VP (VB give) (PRT (RP up))))", "(VP XX (ADVP XX )ADVP )VP") == (2, 2, 2)
    assert counts("(TOP (S (TOP (NN a)) (, (VB b))))", "(S (TOP XX XX )TOP )S") == (1, 1, 1)


def test_tagging_accuracy_is_the_share_of_the_words_that_count() -> None:
    other = GOLD.replace("(NN dog)", "(NNS dog)").replace("(DT a)", "(CC a)").replace("(, ,)", "(: ,)")
    found = scorer([GOLD] * 3, repair=True)
    parses = [other, "", "(TOP (S (NP (DT The) (NNS dog))))"]  # two words have tags, one of them is right
    assert [(one.matched, one.words, one.correct_tags, one.repaired) for one in rows(parses, [GOLD] * 3, True)] == [
        (6, 6, 4, 0),
        (0, 6, 0, 1),
        (2, 6, 1, 1),
    ]
    assert "complete 33.33 tagging accuracy 27.78 (matched = 8 gold = 18" in found.score(parses).details
    assert found.counts(parses)["correct_tags"] == 5


def test_parses_without_parts_of_speech_have_no_tagging_accuracy() -> None:
    assert compute("evalb", [GOLD], [[GOLD]], MetricOptions(evalb_repair=True)).signature == REPAIRED
    untagged = "(TOP (S (NP (XX The) (XX dog)) (VP (XX saw) (NP (NP (XX a) (XX cat)) (XX ,) (NP (XX blue)))) (XX .)))"
    assert set(scorer([GOLD], repair=True).counts([untagged])) == set(BracketCounts._fields) - {"words", "correct_tags"}
    assert "tagging" not in compute("evalb", [untagged], [[GOLD]], MetricOptions(evalb_repair=True)).details
    tagged = compute("evalb", [untagged, GOLD], [[GOLD] * 2], MetricOptions(evalb_repair=True)).details
    assert "tagging accuracy 50.00" in tagged  # a word without a part of speech is wrong beside words that have one


def test_references_of_punctuation_alone_are_skipped_and_damaged_ones_errors() -> None:
    assert row("(TOP (NP (. !)))", "(TOP (NP (NN !)))", repair=True) == BracketCounts(skipped=1)
    found = scorer([GOLD[:-1], GOLD], repair=True)
    assert found.rows([GOLD, GOLD])[0] == BracketCounts(errors=1)
    [said] = found.remarks([GOLD, GOLD])
    assert said.endswith("line 1: the reference has 1 bracket(s) that never close.")


def test_parses_in_brackets_are_repaired_on_demand() -> None:
    # the same words, tags of their own: "John ;" is punctuation by the reference's tag alone
    gold = "(TOP (S (NP (NNP John)) (: ;)))"
    assert row(gold, "(TOP (S (NP (NNP John)) (CC ;)))").errors == 1
    whole = BracketCounts(6, 6, 6, 1, valid=1, repaired=1, words=6, correct_tags=6)
    two = BracketCounts(2, 2, 2, 1, valid=1, words=1, correct_tags=1)
    assert row(gold, "(TOP (S (NP (NNP John)) (CC ;)))", repair=True) == two
    assert row(GOLD, "(TOP (S (NP (DT The)) (VP (VB x))))", repair=True).repaired == 1  # fewer words
    assert row(GOLD, GOLD.replace("cat", "rat"), repair=True) == whole  # another word
    assert row(GOLD, GOLD[:-1], repair=True) == whole  # damaged
    assert row(GOLD, "(())", repair=True) == row(GOLD, "", repair=True) == BracketCounts(0, 6, 0, valid=1, repaired=1)
    two = two._replace(words=2, correct_tags=2)
    assert row("(TOP (NP (NN a)) (NP (NN b)))", "(NP (NN a)) (NP (NN b))", repair=True) == two


# --- input of any shape ---


def test_deep_and_long_lines_need_no_deep_stack_and_linear_time() -> None:
    deep = "(A " * 20_000 + "(NN a)" + ")" * 20_000
    counted = BracketCounts(20_000, 20_000, 20_000, 1, valid=1, words=1, correct_tags=1)
    assert row(deep, deep) == row(deep, deep, repair=True) == counted
    for damaged in ("(" * 30_000, ")" * 30_000, f"( {' ' * 300_000}", f"(NN{' ' * 300_000}", "( " * 30_000):
        assert row("(TOP (NN a))", damaged + "()").skipped


def test_a_line_is_read_as_it_stands() -> None:
    found = read("(S (NN a ) (NP) junk (VB b)) ) (X")
    # a space before the closing bracket is no harm, though EVALB stops at it
    assert [leaf.word for leaf in found.leaves] == ["a", "b"]
    assert [(label, start, end) for label, start, end, _ in found.brackets] == [("S", 0, 2), ("NP", 1, 1), ("X", 2, 2)]
    assert found.text == "junk"
    assert found.unbalanced == "1 bracket(s) that never close and 1 bracket(s) that close what is not open"


@pytest.mark.parametrize(
    ("gold", "named"),
    [("(S (NP XX )NP XX )S", r"'\(S \(NP XX \)NP XX \)S'"), ("a dog", "'a'"), ("(S (NN a)) (NN b c)", "'b'")],
)
def test_a_reference_that_is_no_tree_is_named(gold: str, named: str) -> None:
    with pytest.raises(DataError, match=f"the reference, line 2: {named}"):
        compute("evalb", [GOLD, GOLD], [[GOLD, gold]])


def test_several_references_are_refused() -> None:
    with pytest.raises(UsageError, match="one tree a sentence, 2 references"):
        compute("evalb", [GOLD], [[GOLD], [GOLD]])
