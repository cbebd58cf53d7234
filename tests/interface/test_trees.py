"""`nmt.trees` and `nmt.brackets`: files and lines, names, what is refused; `tests/cli/test_trees.py` has the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import nmt_cli as nmt
from nmt_cli.errors import DataError, UsageError

BARKS = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))"
RUNS = "(TOP (S (NP (NNS Cats)) (VP (VBP run))))"


def test_pairs_of_a_file_and_back_and_repaired_parses(tmp_path: Path) -> None:
    (tmp_path / "some.trees").write_text(f"{BARKS}\n{RUNS}\n")
    [written] = nmt.trees(tmp_path / "some.trees", tmp_path / "pairs", terminals="tags")
    assert (written.trees, written.words, written.left_out) == (2, 6, 0)
    assert [path.name for path in written.files] == ["some.words", "some.linear", "some.ptb"]
    words, linear, gold = written.files
    assert words.read_text() == "The dog barks .\nCats run\n"
    assert (
        [str(parse) for parse in nmt.brackets(words, linear)] == gold.read_text().splitlines() == [BARKS, RUNS]
    )  # terminals as recorded
    right, wrong = nmt.brackets(["Cats run", "Cats run"], ["(S (NP XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP"])
    assert (right.repaired, wrong.repaired) == (False, True)
    assert wrong.words == ["Cats", "run"]


def test_lines_have_a_name_for_messages_and_what_is_refused(tmp_path: Path) -> None:
    [written] = nmt.trees([("the bank", [BARKS, RUNS])], tmp_path, name="all")
    assert written.files[0] == tmp_path / "all.words"
    with pytest.raises(DataError, match=r"the bank.*no tree"):
        nmt.trees(("the bank", []), tmp_path / "none", name="all")
    both = ["a/x.trees", "b/x.trees"]
    for inputs, named in (
        (("the bank", [BARKS]), "the bank has no name"),
        ([], "no input"),
        (both, "both go to x.words"),
    ):
        with pytest.raises(UsageError, match=named):
            nmt.trees(inputs, tmp_path)
    with pytest.raises(DataError, match=r"2 lines, the parses has 1 line"):
        list(nmt.brackets(["a", "b"], ["XX"]))
