"""`nmt score --metric evalb` as a program: what it prints of statuses, in which files, and how it refuses wrong use."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pytest
from forked import run

from nmt_cli import __version__

GOLD = [
    "(TOP (S (NP (NN dogs)) (VP (VBP bark)) (. .)))",
    "(TOP (S (NP (PRP it)) (, ,) (VP (VBD was) (NP (NNP Monday))) (. .)))",
    "(TOP (NP (DT the) (NN end)))",
    "(TOP (FRAG (. ?)))",
]
PARSES = [
    "(TOP (S (NP (NN dogs)) (VP (VBP bark))))",
    "(TOP (S (NP (PRP it)) (VP (VBD was) (NNP Monday))))",
    "(TOP (NP (DT the) (NN start)))",
    "",
]
LINEAR = ["(S (NP XX )NP (VP XX )VP XX )S", "(S (NP XX )NP XX (VP XX XX )VP XX )S", "", "(FRAG XX )FRAG"]
WARNINGS = (
    "warning: 'hyp': 1 of 4 sentences have the status error and do not count, as in EVALB: line 3: the parse has the word 'start', the reference 'end'. "
    "To compare over the words and parts of speech of the reference instead, give --evalb-repair.\n"
    "warning: 'hyp': 1 of 4 sentences are skipped and do not count, as in EVALB, for the parse has no words that count: line 4.\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    for name, lines in (("ref", GOLD), ("hyp", PARSES), ("linear", LINEAR)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def score(folder: Path, *arguments: object) -> tuple[str, str]:
    done = run(folder, "score", *arguments, "--ref", "ref", "--metric", "evalb")
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def line(value: float, words: str, details: str) -> str:
    return f"EVALB  {value:6.2f}  nrefs:1|labelled:yes|prm:COLLINS|words:{words}|version:nmt-{__version__}  {details}\n"


def test_parses_in_brackets_have_statuses(folder: Path) -> None:
    # S, NP, VP; S, NP, VP of 4, the NP of Monday is missing
    details = "P 100.00 R 85.71 complete 50.00 tagging accuracy 100.00 (matched = 6 gold = 7 test = 6 valid = 2 skipped = 1 errors = 1 repaired = 0)"
    assert score(folder, "hyp") == (line(1200 / 13, "hyp", details), WARNINGS)


def test_parses_in_brackets_are_repaired_on_demand(folder: Path) -> None:
    out, err = score(folder, "hyp", "--evalb-repair")
    assert "|words:ref|" in out
    assert out.endswith("valid = 3 skipped = 1 errors = 0 repaired = 4)\n")
    assert "status error" not in err


def test_json_has_the_counts(folder: Path) -> None:
    found = json.loads(score(folder, "hyp", "--json")[0])["scores"]["evalb"]
    assert found["score"] == pytest.approx(1200 / 13)
    assert found["counts"] == {
        "matched": 6,
        "gold": 7,
        "test": 6,
        "complete": 1,
        "valid": 2,
        "skipped": 1,
        "errors": 1,
        "repaired": 0,
        "words": 5,
        "correct_tags": 5,
    }
    first, second = json.loads(score(folder, "hyp", "ref", "--json", "--samples", "10")[0])
    assert first["scores"]["evalb"]["counts"] == found["counts"]
    assert second["scores"]["evalb"]["counts"]["valid"] == 3
    out = run(folder, "score", "hyp", "--ref", "ref", "--metric", "ter", "--json").stdout
    assert "counts" not in json.loads(out)["scores"]["ter"]


def test_systems_lengths_and_intervals(folder: Path) -> None:
    out, err = score(folder, "hyp", "ref", "--lengths", "3,6")
    rows = [row.split() for row in out.splitlines()]
    assert [row[0] for row in rows if row[-1:] in (["hyp"], ["ref"]) and len(row) == 5] == ["92.31", "100.00"]
    assert ["1-3", "3", "0.667", "100.00"] in rows
    assert ["4-6", "1", "0.600", "85.71"] in rows
    assert "'ref' and --ref 'ref' are the same file" in err
    assert "'hyp': 1 of 4 sentences have the status error" in err
    assert "'ref': 1 of 4 sentences are skipped" in err
    assert score(folder, "hyp", "--confidence", "--samples", "20")[0].startswith("EVALB   92.31  mean ")


def test_compressed_files_and_other_line_ends_are_the_same(folder: Path) -> None:
    plain = score(folder, "hyp")[0]
    (folder / "hyp.bz2").write_bytes(bz2.compress((folder / "hyp").read_bytes()))
    (folder / "odd").write_bytes((folder / "hyp").read_bytes().replace(b"\n", b"\r\n").replace(b" (", b"\t("))
    (folder / "ref").write_bytes(gzip.compress((folder / "ref").read_bytes().replace(b"\n", b"\r\n")))
    (folder / "ref").rename(folder / "ref.gz")
    for name in ("hyp.bz2", "odd"):
        done = run(folder, "score", name, "--ref", "ref.gz", "--metric", "evalb")
        assert (done.returncode, done.stdout.decode()) == (0, plain)


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ["hyp", "--ref", "missing", "--evalb-repair"], "error: --evalb-repair: only with --metric evalb."),
        (
            2,
            ["--model", "m", "--src", "ref", "--ref", "ref", "--evalb-repair"],
            "error: --evalb-repair: not with --model DIR",
        ),
        (1, ["empty", "--ref", "ref", "--metric", "evalb"], "error: 'empty' is empty"),
        (
            1,
            ["linear", "--ref", "ref", "--metric", "evalb"],
            "error: a hypothesis, line 1: '(S (NP XX )NP (VP XX )VP XX )S' is a linearised tree",
        ),
        (1, ["hyp", "--ref", "linear", "--metric", "evalb"], "error: the reference, line 1: '(S (NP XX )NP"),
    ],
)
def test_wrong_use_is_reported(folder: Path, code: int, arguments: list[str], message: str) -> None:
    (folder / "empty").write_text("")
    done = run(folder, "score", *arguments)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.decode().startswith(message)
    assert b"Traceback" not in done.stderr
