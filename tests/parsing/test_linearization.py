"""Linearised trees and back: hand-worked ones, every tree of a treebank, each rule of repair, and garbage."""

from __future__ import annotations

import gzip
import itertools
import random
import time
from pathlib import Path

import pytest

from nmt_cli.parsing.brackets import Span, Tree, plain, read_trees
from nmt_cli.parsing.linearization import delinearise, linearise, repaired

GUM = Path(__file__).resolve().parents[3] / "shared" / "data" / "gum-constituency"


def tree(text: str) -> Tree:
    [found] = read_trees([text], "here")
    return found


def parsed(line: str, words: str = "a b c") -> str:
    """The tree in brackets, tags left out."""
    return str(delinearise(line, words.split())).replace("XX ", "").removeprefix("(TOP ").removesuffix(")")


def test_the_example_of_vinyals_et_al() -> None:
    # "Grammar as a Foreign Language", figure 2 (John has a dog .), with XX for every word
    john = tree("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    assert linearise(john) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"
    assert delinearise(linearise(john), john.words, tags=john.tags) == john
    assert str(delinearise(linearise(john), john.words)) == "(TOP (S (NP (XX John)) (VP (XX has) (NP (XX a) (XX dog))) (XX .)))"


def test_the_root_is_not_written_and_words_may_stand_alone() -> None:
    assert linearise(tree("(ROOT (VB Run))")) == "XX"
    assert linearise(tree("( (NP (NN a)) (. .) )")) == "(NP XX )NP XX"
    assert delinearise("XX", ["Run"], tags=["VB"]) == tree("(VB Run)")


def test_a_sentence_without_words_has_an_empty_tree() -> None:
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


def test_a_repaired_tree_is_well_formed() -> None:
    for line in ("(S (NP XX", ")S XX", "(S XX XX XX XX )S"):
        found = delinearise(line, ["a", "b", "c"])
        assert repaired(line, found)
        assert not repaired(f" {linearise(found)}  ", found)


def test_garbage_gives_a_tree_of_the_words_and_a_repaired_tree_is_left_alone() -> None:
    draw = random.Random(7)
    symbols = ["XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP", "(", ")", "⁇", "x", "((", "(N(P", "XXX", ")XX", "(XX"]
    for _ in range(3000):
        words = [f"w{i}" for i in range(draw.randrange(9))]
        line = " ".join(draw.choices(symbols, weights=[8, *[3] * 6, *[1] * 9], k=draw.randrange(30)))
        found = delinearise(line, words)
        assert found.words == words
        assert all(0 <= start < end <= len(words) for _, start, end in found.spans)
        order = [(start, -end) for _, start, end in found.spans]
        assert order == sorted(order)  # pre-order
        assert all(not (a.start < b.start < a.end < b.end) for a in found.spans for b in found.spans)  # nested
        assert delinearise(linearise(found), words) == found
        if words:
            assert next(read_trees([str(found)], "garbage")) == found


def test_deep_trees_take_linear_time() -> None:
    labels = range(20_000)
    opened, closed = " ".join(f"(A{label}" for label in labels), " ".join(f")A{label}" for label in reversed(labels))
    begin = time.process_time()
    assert linearise(delinearise(f"{opened} XX {closed}", ["a"])) == f"{opened} XX {closed}"
    assert delinearise("(A " * 20_000 + "XX " + ")B " * 20_000, ["a"]).spans == (Span("A", 0, 1),) * 20_000
    assert time.process_time() - begin < 10  # a search of all open brackets for each closing one takes a minute


def test_random_trees_come_back() -> None:
    draw = random.Random(3)

    def spans(start: int, end: int, depth: int) -> list[Span]:
        own = [Span(draw.choice(["S", "NP", "VP", "NP-SBJ"]), start, end)] * draw.randrange(1 if depth else 2, 3)
        cuts = sorted({start, end, *(draw.randrange(start, end + 1) for _ in range(3))})
        pieces = list(itertools.pairwise(cuts)) if len(cuts) > 2 and depth < 6 else []
        return own + [span for a, b in pieces for span in spans(a, b, depth + 1)]

    for _ in range(300):
        size = draw.randrange(1, 12)
        given = delinearise("", [f"w{i}" for i in range(size)])
        made = Tree(given.leaves, tuple(spans(0, size, 0)))
        assert delinearise(linearise(made), made.words) == made
        assert next(read_trees([str(made)], "made")) == made


@pytest.mark.skipif(not GUM.is_dir(), reason="the trees of GUM (shared/data/gum-constituency) are not here")
@pytest.mark.parametrize("name", ["train", "dev", "test", "test2"])
def test_every_tree_of_gum_comes_back(name: str) -> None:
    with gzip.open(GUM / f"{name}.trees.gz", "rt", encoding="utf-8") as lines:
        for found in read_trees(lines, name):
            for form in (found, found.without_functions()):
                line = linearise(form)
                assert delinearise(line, form.words, tags=form.tags) == form
                assert line.split().count("XX") == len(form.leaves)
            assert all(plain(word) and " " not in plain(word) for word in found.words)
