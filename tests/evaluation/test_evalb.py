"""F1 of brackets: hand-worked trees, a twin that counts as EVALB's C does, and every error message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nmt_cli import __version__
from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.evalb import Counts, evalb, f1
from nmt_cli.evaluation.metrics import DEFAULT_METRICS, METRICS, Scorer, compute
from nmt_cli.evaluation.significance import compare

SIGNATURE = f"nrefs:1|labelled:yes|prm:COLLINS|punct:no|root:no|equal:PRT=ADVP|version:nmt-{__version__}"
GOLD = "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN in) (NP (DT the) (NN park)))) (. .)))"
"""Words The 0 dog 1 saw 2 a 3 cat 4 in 5 the 6 park 7; without the full stop S 0-8, NP 0-2, VP 2-8, NP 3-5, PP 5-8, NP 6-8."""


def counts(gold: str, parse: str) -> tuple[int, int, int]:
    found = evalb([parse], [gold])
    return found.matched, found.gold, found.test


def test_a_tree_against_itself() -> None:
    assert evalb([GOLD], [GOLD]) == Counts(matched=6, gold=6, test=6, complete=1, scored=1, repaired=0)


def test_precision_and_recall_of_a_hand_worked_parse() -> None:
    # the PP inside the object: S 0-8, NP 0-2, VP 2-8, NP 3-8, NP 3-5, PP 5-8, NP 6-8; NP 3-8 is not in gold
    parse = "(S (NP XX XX )NP (VP XX (NP (NP XX XX )NP (PP XX (NP XX XX )NP )PP )NP )VP XX )S"
    assert counts(GOLD, parse) == (6, 6, 7)
    score = compute("evalb", [parse], [[GOLD]])
    assert score.value == pytest.approx(100 * 12 / 13)  # F1 = 2 · 6 / (6 + 7)
    assert (score.name, score.signature) == ("EVALB", SIGNATURE)
    assert score.details == "P 85.71 R 100.00 complete 0.00 (matched = 6 gold = 6 test = 7 sentences = 1 repaired = 0)"  # 6/7, 6/6


def test_sums_over_sentences_and_complete_matches() -> None:
    # 6 of 6 and 6; then gold S 0-2, NP 0-1, VP 1-2 against S 0-2, VP 0-1, VP 1-2: 2 of 3 and 3. P = R = 8/9
    second = "(TOP (S (NP (NN dogs)) (VP (VBP bark))))"
    found = evalb([GOLD, "(S (VP XX )VP (VP XX )VP )S"], [GOLD, second])
    assert found == Counts(matched=8, gold=9, test=9, complete=1, scored=2, repaired=0)
    assert f1(found) == pytest.approx(100 * 8 / 9)


def test_a_label_counts_and_each_constituent_matches_once() -> None:
    assert counts("(TOP (S (NP (NN a)) (VP (VB b))))", "(S (VP XX )VP (VP XX )VP )S") == (2, 3, 3)
    # README of EVALB, section 7.5: gold has NP twice over the same words, the parse once (n = 2 > m = 1), and the other way
    assert counts("(TOP (NP (NP (DT the) (NN man))))", "(NP XX XX )NP") == (1, 2, 1)
    assert counts("(TOP (NP (DT the) (NN man)))", "(NP (NP XX XX )NP )NP") == (1, 1, 2)
    assert counts("(TOP (NP (NP (DT the) (NN man))))", "(NP (NP XX XX )NP )NP") == (2, 2, 2)


def test_the_order_in_a_chain_of_constituents_does_not_count() -> None:
    assert counts("(TOP (S (VP (VB go))))", "(VP (S XX )S )VP") == (2, 2, 2)


@pytest.mark.parametrize("tag", [",", ":", "``", "''", "."])
def test_punctuation_takes_no_place_inside_a_sentence(tag: str) -> None:
    # words a 0 b 1; NP 0-1 with or without the punctuation between, S 0-2 with or without that at the end
    gold = f"(TOP (S (NP (NN a)) ({tag} x) (VP (VB b)) ({tag} y)))"
    for parse in ("(S (NP XX XX )NP (VP XX )VP XX )S", "(S (NP XX )NP (VP XX XX )VP )S XX", "(S (NP XX )NP (VP XX XX XX )VP )S"):
        assert counts(gold, parse) == (3, 3, 3)


@pytest.mark.parametrize("tag", ["-LRB-", "-RRB-", "HYPH", "$", "#", "SYM", "NN"])
def test_what_collins_prm_does_not_delete_takes_its_place(tag: str) -> None:
    assert counts(f"(TOP (S (NP (NN a)) ({tag} x) (VP (VB b))))", "(S (NP XX XX )NP (VP XX )VP )S") == (2, 3, 3)


def test_a_constituent_of_punctuation_alone_does_not_count_and_its_sentence_is_not_complete() -> None:
    gold = "(TOP (S (NP (NN a)) (PRN (: -) (: -)) (. .)))"
    assert counts(gold, "(S (NP XX )NP (X XX XX )X (Y XX )Y )S") == (2, 2, 2)  # S 0-1 and NP 0-1
    found = evalb(["(NP XX )NP", "(NP XX )NP"], ["(TOP (NP (. !)))", "(TOP (NP (NN a)))"])
    assert found == Counts(matched=1, gold=1, test=1, complete=1, scored=1, repaired=0)


def test_adverb_and_particle_phrases_are_one() -> None:
    assert counts("(TOP (VP (VB give) (PRT (RP up))))", "(VP XX (ADVP XX )ADVP )VP") == (2, 2, 2)
    assert counts("(TOP (VP (VB give) (ADVP (RP up))))", "(VP XX (PRT XX )PRT )VP") == (2, 2, 2)
    assert counts("(TOP (VP (VB give) (PP (RP up))))", "(VP XX (PRT XX )PRT )VP") == (1, 2, 2)


@pytest.mark.parametrize("root", ["TOP", "ROOT", "S1", ""])
def test_the_root_does_not_count_on_either_side(root: str) -> None:
    assert counts(f"({root} (NP (NN a)))", "(TOP (NP (XX a)))") == (1, 1, 1)
    assert counts("(NP (NN a))", f"({root} (NP (XX a)))") == (1, 1, 1)
    assert counts("(TOP (NP (NN a)))", "(TOP (NP XX )NP )TOP") == (1, 1, 2)  # a model that writes roots has one too many


def test_function_tags_and_traces_do_not_count() -> None:
    gold = "(TOP (S (NP-SBJ=1 (NN a)) (VP (VBD b) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))"
    assert counts(gold, "(S-x (NP XX )NP (VP-y=2 XX )VP-y=2 )S-x") == (3, 3, 3)
    assert counts("(TOP (S (NP (NN a)) (VP (VBD b))))", gold) == (3, 3, 3)


def test_a_parse_in_brackets_needs_no_tags_of_its_own() -> None:
    # "John ;" is punctuation by gold's tag, whatever the parse calls it: EVALB would leave the sentence out
    assert evalb(["(TOP (S (NP (NNP John)) (CC ;)))"], ["(TOP (S (NP (NNP John)) (: ;)))"]) == Counts(2, 2, 2, 1, 1, 0)


def test_malformed_parses_are_repaired_and_told_of() -> None:
    assert evalb(["(S (NP XX XX )NP (VP XX"], [GOLD]) == Counts(matched=2, gold=6, test=3, complete=0, scored=1, repaired=1)  # S 0-8, NP 0-2
    assert evalb(["", "⁇"], [GOLD, GOLD]) == Counts(matched=0, gold=12, test=0, complete=0, scored=2, repaired=2)
    assert evalb(["(S", "(S (NP"], [GOLD, GOLD]) == Counts(matched=0, gold=12, test=0, complete=0, scored=2, repaired=2)  # a model may stop there
    assert evalb(["(TOP (S (NP (DT The)) (VP (VB x))))"], [GOLD]).repaired == 1  # brackets over fewer words
    assert evalb(["(NP (NN a)) (NP (NN b))"], ["(TOP (NP (NN a)) (NP (NN b)))"]) == Counts(2, 2, 2, 1, 1, 1)  # two trees on a line


def test_nothing_to_match_is_zero() -> None:
    assert f1(evalb(["XX"], ["(TOP (NN a))"])) == 0.0


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("(S (NP XX )NP XX )S", "the reference, line 2, is a linearised tree: without parts of speech it cannot be told what is punctuation"),
        ("XX", "the reference, line 2, is a linearised tree"),
        ("  ", "the reference, line 2, is blank: evalb has nothing to compare with."),
        ("(NN a) (NN b)", "the reference, line 2, holds 2 trees, expected one."),
        ("(S (NN a)", "the reference, line 2: the tree that begins here lacks 1 closing bracket(s)"),
        ("a dog", "the reference, line 2: 'a' stands outside of any tree"),
    ],
)
def test_a_wrong_reference_is_named(gold: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        compute("evalb", [GOLD, GOLD], [[GOLD, gold]])
    assert said in str(error.value)


def test_a_parse_in_damaged_brackets_is_named() -> None:
    with pytest.raises(DataError, match="the hypothesis, line 2: the tree"):
        compute("evalb", [GOLD, "(S (NN a)"], [[GOLD, GOLD]])


def test_several_references_are_refused() -> None:
    with pytest.raises(UsageError, match="evalb compares with one tree a sentence, 2 references were given"):
        compute("evalb", [GOLD], [[GOLD], [GOLD]])


def test_it_is_scored_only_when_asked_for() -> None:
    assert "evalb" in METRICS
    assert DEFAULT_METRICS == ("bleu", "chrf", "ter")


def test_systems_are_compared_by_resampling() -> None:
    draw = random.Random(1)
    gold = [GOLD] * 60
    good = [draw.choice([GOLD, "(S (NP XX XX )NP (VP XX XX XX XX XX XX )VP XX )S"]) for _ in gold]
    poor = ["(S (NP XX XX )NP (VP XX XX XX XX XX XX )VP XX )S"] * 60
    first, second, third = compare([("poor", poor), ("good", good), ("same", poor)], {"evalb": Scorer("evalb", [gold])})["evalb"]
    assert first.score.value == compute("evalb", poor, [gold]).value < second.score.value == compute("evalb", good, [gold]).value
    assert first.score.signature == SIGNATURE.replace("nrefs:1|", "nrefs:1|bs:1000|seed:12345|")
    assert second.p_value is not None
    assert second.p_value < 0.01
    assert (first.ci, third.p_value) == (0.0, 1.0)


# --- a twin that counts in the way of EVALB's C: one pass over the characters' brackets, deleted words take no number ---

DELETED = {"TOP", "-NONE-", ",", ":", "``", "''", "."}


def brackets(text: str) -> list[list[Any]]:
    tokens, word, found, stack = text.replace("(", " ( ").replace(")", " ) ").split(), 0, list[list[Any]](), list[list[Any]]()
    while tokens:
        token = tokens.pop(0)
        if token == ")":
            stack.pop()[2] = word
        elif tokens[1] not in "()":  # ( TAG word )
            word += tokens[0] not in DELETED
            del tokens[:3]
        else:
            stack.append([tokens.pop(0), word, word, False])
            found.append(stack[-1])
    cut = [[label.split("-")[0].split("=")[0].replace("PRT", "ADVP"), *rest] for label, *rest in found]
    return [one for one in cut if one[1] < one[2] and one[0] not in DELETED]


def twin(gold: str, parse: str) -> tuple[int, int, int]:
    ours, theirs = brackets(gold), brackets(parse)
    matched = 0
    for one in ours:
        for other in theirs:
            if not other[3] and one[:3] == other[:3]:
                other[3] = True
                matched += 1
                break
    return matched, len(ours), len(theirs)


def random_tree(draw: random.Random, leaves: list[str]) -> str:
    label = draw.choice(["S", "NP", "VP", "PRT", "ADVP", "NP-SBJ", "PP=2"])
    if len(leaves) == 1 or draw.random() < 0.2:
        inner = leaves
    else:
        cut = draw.randrange(1, len(leaves))
        inner = [random_tree(draw, leaves[:cut]), random_tree(draw, leaves[cut:])]
    return f"({label} {' '.join(inner)})"


def test_random_trees_count_as_with_evalbs_own_way() -> None:
    draw = random.Random(5)
    compared = 0
    for _ in range(400):
        leaves = [f"({draw.choice(['NN', 'VB', 'DT', ',', '.', ':', '-LRB-', '-NONE-'])} w{i})" for i in range(draw.randrange(1, 9))]
        gold, parse = (f"(TOP {random_tree(draw, leaves)})" for _ in range(2))
        if all(leaf.startswith("(-NONE-") for leaf in leaves):
            continue
        assert counts(gold, parse) == twin(gold, parse)
        assert counts(gold, gold) == twin(gold, gold)
        compared += counts(gold, parse)[0]
    assert compared > 100
