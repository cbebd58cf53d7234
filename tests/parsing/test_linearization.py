"""Linearised trees and back: hand-worked ones, each rule of repair, and garbage."""

import random

import pytest

from nmt_cli.parsing.brackets import Span, Tree, escaped, read_trees
from nmt_cli.parsing.linearization import TERMINALS, delinearise, linearise, repaired


def tree(text: str) -> Tree:
    [found] = read_trees([text], "here")
    return found


def parsed(line: str, words: str = "a b c") -> str:
    """The tree in brackets, tags left out."""
    return str(delinearise(line, words.split())).replace("XX ", "").removeprefix("(TOP ").removesuffix(")")


def test_trees_as_they_are_written() -> None:
    # "Grammar as a Foreign Language", figure 2 (John has a dog .), with XX for every word
    john = tree("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    assert linearise(john) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"
    back = delinearise(linearise(john), john.words)
    assert str(back) == "(TOP (S (NP (XX John)) (VP (XX has) (NP (XX a) (XX dog))) (XX .)))"
    # the root is not written, and a tree may be empty
    assert linearise(tree("( (NP (NN a)) (. .) )")) == "(NP XX )NP XX"
    assert delinearise("XX", ["Run"]) == tree("(XX Run)")
    assert delinearise("(S XX )S", []) == Tree((), ())
    assert linearise(Tree((), ())) == ""


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        ("(S (NP XX XX )NP XX )S", "(S (NP (a) (b)) (c))"),  # well formed
        ("  (S  (NP XX\tXX )NP XX )S ", "(S (NP (a) (b)) (c))"),
        ("", "(a) (b) (c)"),
        ("⁇ (S junk XX ( ) (( )) (N(P )X) XX XX )S XXX", "(S (a) (b) (c))"),  # no symbols: dropped
        (")NP (S XX )VP XX XX )S )S", "(S (a) (b) (c))"),  # closers of what is not open: dropped
        ("(S (NP XX (PP XX )NP XX )S", "(S (NP (a) (PP (b))) (c))"),  # )NP closes the PP within
        ("(S (NP XX (NP XX )NP XX )S", "(S (NP (a) (NP (b)) (c)))"),  # the innermost of the label, )S the other
        ("(S (NP XX (VP XX XX", "(S (NP (a) (VP (b) (c))))"),  # open at the end: closed
        ("(S (NP XX )NP )S", "(S (NP (a)) (b) (c))"),  # too few: the outermost one takes them
        ("(S (NP XX )NP", "(S (NP (a)) (b) (c))"),  # closed before they are added
        ("(S (S XX )S )S", "(S (S (a)) (b) (c))"),
        ("(S XX )S XX", "(S (a)) (b) (c)"),  # none spans all before: beside
        ("XX (NP XX )NP", "(a) (NP (b)) (c)"),
        ("(S XX XX XX XX (NP XX )NP )S", "(S (a) (b) (c))"),  # too many: dropped, and what holds nothing else
        ("(S (NP )NP XX XX XX (VP", "(S (a) (b) (c))"),  # without words: dropped
        ("(NP XX )NP (VP XX )VP XX", "(NP (a)) (VP (b)) (c)"),  # side by side below the root
    ],
)
def test_what_is_no_tree_is_repaired_by_rule(line: str, mended: str) -> None:
    assert parsed(line) == mended


@pytest.mark.parametrize(
    ("terminals", "line", "left"),
    [
        ("xx", "(S (NP XX XX )NP (VP XX )VP XX )S", "XX XX XX XX"),
        ("tags", "(S (NP DT NN )NP (VP VBZ )VP . )S", "DT NN VBZ ."),
        ("words", "(S (NP The dog )NP (VP barks )VP . )S", "XX XX XX XX"),
        ("both", "(S (NP The /DT dog /NN )NP (VP barks /VBZ )VP . /. )S", "DT NN VBZ ."),
    ],
)
def test_a_word_becomes_xx_its_part_of_speech_itself_or_both(terminals: str, line: str, left: str) -> None:
    dog = tree("(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))")
    assert linearise(dog, terminals) == line
    back = delinearise(line, dog.words, terminals)
    assert (back.words, back.spans, " ".join(back.tags)) == (dog.words, dog.spans, left)
    assert not repaired(line, back, terminals)


@pytest.mark.parametrize(
    ("terminals", "line", "words", "mended", "sound"),
    [
        # a wrong terminal is a terminal: the words are the sentence's
        ("words", "(NP x ⁇ )NP c", "a b c", "(NP (XX a) (XX b)) (XX c)", True),
        ("tags", "(NP DT ⁇ )NP XX", "a b c", "(NP (DT a) (⁇ b)) (XX c)", True),
        ("both", "(NP x /NN ⁇ /XX )NP c /c", "a b c", "(NP (NN a) (XX b)) (c c)", True),
        # text with a bracket is none
        ("words", "(NP a (( b )NP c d(", "a b c", "(NP (XX a) (XX b)) (XX c)", False),
        ("both", "(NP a ( /DT b /NN )NP c /x) /CD", "a b c", "(NP (DT a) (NN b)) (CD c)", False),
        # too few, too many
        ("tags", "(S (NP DT )NP )S", "a b c", "(S (NP (DT a)) (XX b) (XX c))", False),
        ("words", "(S a b c d )S", "a b c", "(S (XX a) (XX b) (XX c))", False),
        ("both", "(S a /A b /B c /C )S", "a b", "(S (A a) (B b))", False),
        # words without tags, tags without words
        ("both", "(S a b /B )S", "a b", "(S (XX a) (B b))", False),
        ("both", "/X (S a /A /Y b /B )S", "a b", "(S (A a) (B b))", False),
        ("both", "(S a / b /B )S", "a b", "(S (XX a) (XX b))", False),  # / alone is no tag, but a word
        # words that begin like a tag
        ("both", "(S / // /NN /NNP /NN /TAG )S", "/ /NN /NN", "(S (/ /) (NNP /NN) (TAG /NN))", True),
        ("both", "(S a /A /B /B )S", "a /B", "(S (A a) (B /B))", True),
    ],
)
def test_repair_of_other_terminals(terminals: str, line: str, words: str, mended: str, sound: bool) -> None:
    found = delinearise(line, words.split(), terminals)
    assert str(found) == f"(TOP {mended})"
    assert repaired(line, found, terminals) is not sound


GARBAGE = "XX (S )S (NP )NP (VP )VP ( ) ⁇ x (( (N(P XXX )XX (XX /NN / //"


def test_garbage_gives_a_tree_of_the_words_and_a_repaired_tree_is_left_alone() -> None:
    draw = random.Random(7)
    symbols = GARBAGE.split()
    for number in range(4000):
        terminals = TERMINALS[number % 4]
        words = [draw.choice([f"w{i}", "(", "-RRB-", "/NN", "/", "\u00a0", "1\\/2"]) for i in range(draw.randrange(9))]
        line = " ".join(draw.choices(symbols, weights=[8, *[3] * 6, *[1] * 12], k=draw.randrange(30)))
        found = delinearise(line, words, terminals)
        assert found.words == words
        assert all(0 <= start < end <= len(words) for _, start, end in found.spans)
        order = [(start, -end) for _, start, end in found.spans]
        assert order == sorted(order)  # pre-order
        assert all(not (a.start < b.start < a.end < b.end) for a in found.spans for b in found.spans)  # nested
        well_formed = linearise(found, terminals)
        assert delinearise(well_formed, words, terminals) == found
        assert not repaired(well_formed, found, terminals)
        assert repaired(f"{well_formed} x(", found, terminals)
        if words:
            [read] = read_trees([str(found)], "garbage")
            assert (read.spans, read.tags, read.words) == (found.spans, found.tags, [escaped(word) for word in words])


@pytest.mark.slow
def test_deep_trees_take_linear_time() -> None:
    """A search of all open brackets for each closing one would take longer than the time limit of a test."""
    depth = 100_000
    labels = range(depth)
    opened, closed = " ".join(f"(A{label}" for label in labels), " ".join(f")A{label}" for label in reversed(labels))
    assert linearise(delinearise(f"{opened} XX {closed}", ["a"])) == f"{opened} XX {closed}"
    assert delinearise("(A " * depth + "XX " + ")B " * depth, ["a"]).spans == (Span("A", 0, 1),) * depth
