"""`nmt score --metric evalb`: what it prints of statuses, in which files."""

import json
from pathlib import Path

import pytest
from in_process import printed, ran

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
ERROR = ("'hyp': 1 of 4", "status error", "line 3", "'start'", "'end'", "--evalb-repair")


@pytest.fixture(autouse=True)
def folder(workdir: Path) -> Path:
    for name, lines in (("ref", GOLD), ("hyp", PARSES), ("linear", LINEAR)):
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    return workdir


def score(options: str) -> tuple[str, list[str]]:
    """stdout and the warnings."""
    done = ran(f"score {options} --ref ref --metric evalb")
    return done.stdout, done.stderr.splitlines()


def line(value: float, words: str, details: str) -> str:
    return f"EVALB  {value:6.2f}  nrefs:1|labelled:yes|prm:COLLINS|words:{words}|version:nmt-{__version__}  {details}\n"


def test_parses_in_brackets_have_statuses() -> None:
    # S, NP, VP; S, NP, VP of 4, the NP of Monday is missing
    details = "P 100.00 R 85.71 complete 50.00 tagging accuracy 100.00 (matched = 6 gold = 7 test = 6 valid = 2 skipped = 1 errors = 1 repaired = 0)"
    out, (error, skipped) = score("hyp")
    assert out == line(1200 / 13, "hyp", details)
    assert [word for word in ERROR if word not in error] == []
    assert [word for word in ("'hyp': 1 of 4", "skipped", "line 4") if word not in skipped] == []


def test_json_has_the_counts() -> None:
    found = json.loads(score("hyp --json")[0])["scores"]["evalb"]
    assert found["score"] == pytest.approx(1200 / 13)
    counted = {"matched": 6, "gold": 7, "test": 6, "complete": 1, "valid": 2, "skipped": 1, "errors": 1, "repaired": 0}
    assert found["counts"] == {**counted, "words": 5, "correct_tags": 5}
    first, second = json.loads(score("hyp ref --json --samples 10")[0])
    assert first["scores"]["evalb"]["counts"] == found["counts"]
    assert second["scores"]["evalb"]["counts"]["valid"] == 3
    assert "counts" not in json.loads(printed("score hyp --ref ref --metric ter --json"))["scores"]["ter"]
