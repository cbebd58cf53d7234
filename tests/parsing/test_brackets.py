"""Trees in brackets: what is read, what is refused and where, and that every tree of a treebank comes back as it was."""

import gzip
import re
from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.parsing.brackets import Leaf, Span, Tree, bare, escaped, plain, read_trees

GUM = Path(__file__).resolve().parents[3] / "shared" / "data" / "gum-constituency"
DOG = "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))"


def read(text: str) -> list[Tree]:
    return list(read_trees(text.split("\n"), "'some.mrg'"))


def one(text: str) -> Tree:
    [tree] = read(text)
    return tree


def test_a_tree_is_its_words_and_the_spans_of_its_constituents() -> None:
    tree = one(f"(ROOT {DOG})")
    assert tree.leaves == (Leaf("DT", "The"), Leaf("NN", "dog"), Leaf("VBZ", "barks"), Leaf(".", "."))
    assert tree.spans == (Span("S", 0, 4), Span("NP", 0, 2), Span("VP", 2, 3))
    assert (tree.words, tree.tags) == (["The", "dog", "barks", "."], ["DT", "NN", "VBZ", "."])


def test_the_outermost_bracket_is_the_root_whatever_it_is_called_and_is_put_on_in_writing() -> None:
    for text in (f"(ROOT {DOG})", f"(TOP {DOG})", f"(S1 {DOG})", f"( {DOG} )", f"({DOG})", DOG):
        assert one(text) == one(DOG)
        assert str(one(text)) == f"(TOP {DOG})"
    assert one("(ROOT (ROOT (NN a)))").spans == (Span("ROOT", 0, 1),)
    assert one("( (NP (NN a)) (. .) )").spans == (Span("NP", 0, 1),)  # several may stand below it
    assert (one("(ROOT (VB Run))"), one("(VB Run)")) == (Tree((Leaf("VB", "Run"),), ()),) * 2
    chain = one("(S (VP (VP (NP (NN a)))))")
    assert [label for label, _, _ in chain.spans] == ["S", "VP", "VP", "NP"]
    assert str(chain) == "(TOP (S (VP (VP (NP (NN a))))))"


def test_trees_go_over_lines_and_stand_side_by_side() -> None:
    text = "( (S \n    (NP (DT The)\t(NN dog))\r\n    (VP (VBZ barks)) (. .)\n  ))\n\n(TOP\n(NN a))(TOP (NN b))\n"
    assert [str(tree) for tree in read(text)] == [f"(TOP {DOG})", "(TOP (NN a))", "(TOP (NN b))"]


def test_odd_spaces_are_characters_of_a_word_and_nothing_is_no_tree() -> None:
    assert one("(NP (NN a\u00a0b) (NN c\u2028d))").words == ["a\u00a0b", "c\u2028d"]
    assert read("") == read("\n \n") == []


def test_function_tags_and_indices_are_cut_off_but_tags_that_begin_with_a_hyphen_stay() -> None:
    for label, cut in (("NP-SBJ", "NP"), ("NP=2", "NP"), ("PP-LOC-PRD-3", "PP"), ("S-TPC=1", "S")):
        assert bare(label) == bare(cut) == cut
    assert (bare("-LRB-"), bare("-NONE-")) == ("-LRB-", "-NONE-")
    tree = one("(S (NP-SBJ=1 (-LRB- -LRB-) (NN-x a)))").without_functions()
    assert str(tree) == "(TOP (S (NP (-LRB- -LRB-) (NN-x a))))"


def test_traces_go_and_what_holds_nothing_else() -> None:
    # the example of EVALB's README, section 7.1
    tree = one("(S (NP-1 (PRP he)) (VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))")
    assert str(tree.without_traces()) == "(TOP (S (NP-1 (PRP he)) (VP (VBD reported)) (. .)))"
    assert one("(S (NP (-NONE- *)))").without_traces() == Tree((), ())


def test_brackets_in_words_are_escaped_in_trees_and_plain_for_people() -> None:
    words = ("-LRB-", "-LRB-a-RRB-", r"1\/2", r"\*", "``", "-", "-RSB-", "-LCB-")
    assert [plain(word) for word in words] == ["(", "(a)", "1/2", "*", "``", "-", "]", "{"]
    assert escaped("(a)") == "-LRB-a-RRB-"
    assert str(Tree((Leaf("XX", "("),), ())) == "(TOP (XX -LRB-))"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("(S (NN a)\n(NN b)", 1, "1 closing bracket"),
        ("(S (NN a))\n)", 2, "never opened"),
        ("# heading\n(NN a)", 1, "'#'"),
        ("x" * 5000, 1, f"'{'x' * 99}…{'x' * 99}'"),
        ("(S (NP ) (NN a))", 1, "(NP )"),
        ("(NN a)\n\n()", 3, "( )"),
        ("(S\n(NP the (NN a)))", 2, "'the'"),
        ("(NP (NN a) dog)", 1, "'dog'"),
        ("(NN a b)", 1, "'b'"),
        ("(S ((NN a)))", 1, "has no label"),
    ],
)
def test_a_fault_names_the_file_the_line_and_what_is_wrong(text: str, line: int, said: str) -> None:
    with pytest.raises(DataError, match=f"^'some.mrg', line {line}: .*{re.escape(said)}"):
        read(text)


def test_deep_trees_need_no_deep_stack() -> None:
    deep = "(A " * 20_000 + "(NN a)" + ")" * 20_000
    assert len(one(deep).spans) == 20_000
    assert str(one(deep)) == f"(TOP {deep})"


@pytest.mark.skipif(not GUM.is_dir(), reason="the trees of GUM (shared/data/gum-constituency) are not here")
def test_every_tree_of_a_treebank_is_written_as_it_was_read() -> None:
    lines = gzip.decompress((GUM / "dev.trees.gz").read_bytes()).decode().removesuffix("\n").split("\n")
    trees = list(read_trees(lines, "dev"))
    assert (len(trees), sum(len(tree.leaves) for tree in trees)) == (1575, 28_119)
    assert [str(tree) for tree in trees] == [re.sub(r"^\(ROOT ", "(TOP ", line) for line in lines]
