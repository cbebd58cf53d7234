"""`nmt score --model`: a line a pair on stdout, the corpus on stderr, and its remarks. Wrong use is in test_wrong_use.py."""

import math
import random
from pathlib import Path

import pytest
from in_process import invoke, objects, printed, ran, refused
from untrained import sentence

from nmt_cli.errors import DataError

MODEL = "score --model one --device cpu"
SCORE = f"{MODEL} --src src --ref ref"


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    rng = random.Random(1)
    for name in ("src", "ref"):
        Path(name).write_text("".join(sentence(rng, rng.randint(1, 12)) + "\n" for _ in range(30)))
    return here


def test_a_line_a_pair_and_the_corpus_on_stderr() -> None:
    done = ran(SCORE)
    found = [(float(one), float(two), int(tokens)) for one, two, tokens in map(str.split, done.stdout.splitlines())]
    assert len(found) == 30
    for log_prob, perplexity, tokens in found:
        assert log_prob < 0
        assert perplexity == pytest.approx(math.exp(-log_prob / tokens), rel=1e-5)
    total, tokens = -sum(row[0] for row in found), sum(row[2] for row in found)
    words = done.stderr.split()
    assert words[::2] == ["NLL", "perplexity", "sentences", "tokens"]
    assert float(words[1]) == pytest.approx(total / tokens, abs=2e-6)
    assert float(words[3]) == pytest.approx(math.exp(total / tokens), rel=1e-5)
    assert words[5::2] == ["30", str(tokens)]
    for line in printed(f"{SCORE} --width 2").splitlines():
        assert [len(number.partition(".")[2]) for number in line.split("\t")] == [2, 2, 0]


def test_blank_and_long_lines_keep_their_places() -> None:
    Path("src").write_text("the cat.\n\n \nthe cat.\n" + "cat " * 500 + "\n")
    Path("ref").write_text("\nthe cat.\n\t\nthe cat.\nthe cat.\n")
    done = ran(SCORE)
    blank_target, blank_source, both, neither, long = done.stdout.splitlines()
    assert blank_target.endswith("\t1")
    assert both == "0.000000\t1.000000\t0"
    assert long.startswith("nan\tnan\t")
    assert blank_source.split("\t")[2] == neither.split("\t")[2] == long.split("\t")[2]
    warning, corpus = done.stderr.splitlines()
    assert all(words in warning for words in ("1 of 5", "line 5", "model.max_positions = 64"))
    assert corpus.split()[4:] == ["sentences", "4", "tokens", str(1 + 2 * int(neither.split("\t")[2]))]
    last = objects(f"{SCORE} --json")[-1]
    assert (last["log_prob"], last["perplexity"]) == (None, None)


def test_invalid_utf8_is_counted() -> None:
    Path("src").write_bytes(b"caf\xe9\nfine\n")
    assert "src: 2 lines" in ran(f"{MODEL} --src src --ref src").stderr


def test_unequal_counts_of_files_are_told_before_any_work_and_of_a_pipe_after_the_lines_before() -> None:
    more, lines = Path("ref").read_bytes() + b"more\n", printed(SCORE)
    piped = invoke(f"{MODEL} --src src --ref -", stdin=more)
    assert (type(piped.exception), piped.stdout, piped.stderr) == (DataError, lines, "")
    Path("ref").write_bytes(more)
    said = refused(SCORE.replace("one", "missing"), code=1)
    for words in ("'src' has 30 lines", "has 31 lines", "line 31", "'more'"):
        assert words in said
        assert words in str(piped.exception)


@pytest.mark.parametrize("form", ["", "--json"])
def test_totals_of_no_scored_pair_are_an_error(form: str) -> None:
    """The lines are printed all the same; no perplexity of 1 is."""
    Path("blank").write_text("\n \n", encoding="utf-8")
    Path("long").write_text("the " * 400 + "\n\n", encoding="utf-8")
    for name, reason in {"blank": "are blank on both sides.", "long": "maximum, or blank on both sides."}.items():
        for src in (name, "-"):
            result = invoke(f"{MODEL} {form} --src {src} --ref {name}", stdin=Path(name).read_bytes())
            assert isinstance(result.exception, DataError)
            assert str(result.exception).startswith("nothing was scored: all 2 pairs of ")
            assert str(result.exception).endswith(reason)
            assert (result.stdout.count("\n"), "perplexity 1" in result.stderr) == (2, False)


def test_scores_in_a_file_that_is_whole_are_left_alone() -> None:
    lines = printed(SCORE)
    for whole in (False, True):
        said = ran(f"{SCORE} --output scores --resume").stderr
        assert ("is done" in said, Path("scores").read_text()) == (whole, lines)
    for other in ("--json", "--width 3", "--precision int8"):
        assert "is done" not in ran(f"{SCORE} --output scores --resume {other}").stderr
    assert "--resume needs files" in refused(f"{SCORE.replace('ref ref', 'ref -')} --output scores --resume")
