"""`nmt score` with metrics: its output to the byte, and what each option changes. Wrong use is in test_wrong_use.py."""

import gzip
import json
import math
from importlib.metadata import version
from pathlib import Path

import forked
import pytest
from in_process import printed, ran

VERSION = f"version:{version('sacrebleu')}"
BLEU = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{VERSION}"
CHRF = f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{VERSION}"
TER = f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{VERSION}"
ENDS = f"bleu:multi-bleu|sacremoses:{version('sacremoses')}|{VERSION}"
STEPS = "protocol:paper|punct:unicode|tok:moses-de|compounds:##AT##"
PAPER = "score de --ref de.ref --protocol paper"
SCORES = ["metric", "name", "score", "signature", "details", "higher_is_better"]
WITHOUT_COMET = """
import importlib.metadata as m
def version(name, found=m.version):
    if name == "unbabel-comet":
        raise m.PackageNotFoundError(name)
    return found(name)
m.version = version
"""


@pytest.fixture(autouse=True)
def folder(workdir: Path) -> Path:
    for name, text in {
        "hyp": "The cat sat on the mat.\nA dog barked loudly at the postman.\n",
        "other": "A cat on a mat.\nThe postman barked at a dog.\n",
        "ref": "The cat lay on the mat.\nThe dog barked loudly at a postman.\n",
        "de": "Das Rich-Text-Format ist alt.\nEin Hund bellt laut am Haus.\n",
        "de.other": "Das ist das Format.\nEin Hund, er bellt.\n",
        "de.ref": "Das Rich-Text-Format ist „neu“.\nEin Hund bellt laut am großen Haus.\n",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    return workdir


def test_one_hypothesis_is_one_line_a_metric() -> None:
    done = ran("score hyp --ref ref")
    assert done.stdout == (
        f"BLEU    44.66  {BLEU}  80.0/61.5/36.4/22.2 (BP = 1.000 ratio = 1.000 hyp_len = 15 ref_len = 15)\n"
        f"chrF2   72.00  {CHRF}\n"
        f"TER     23.08  {TER}\n"
    )
    assert done.stderr == ""
    assert printed("score hyp --ref ref --metric TER --metric chrf --width 1") == (
        f"TER     23.1  {TER}\nchrF2   72.0  {CHRF}\n"
    )
    Path("ref.gz").write_bytes(gzip.compress(Path("ref").read_bytes()))
    assert printed("score - --ref ref.gz", stdin=Path("hyp").read_bytes()) == done.stdout


def test_several_hypotheses_are_a_table_a_metric() -> None:
    command = "score hyp other --ref ref --metric bleu --metric ter"
    text = printed(command)
    bleu, ter = text.removesuffix("\n").split("\n\n")
    lines = bleu.splitlines()
    assert lines[0] == f"BLEU  {BLEU.replace('nrefs:1|', 'nrefs:1|bs:1000|seed:12345|')}  (higher is better)"
    assert lines[1].split() == ["score", "mean", "ci95", "p", "system"]
    first, second = lines[2].split(), lines[3].split()
    assert (first[0], first[3], first[4]) == ("44.66", "-", "hyp")
    assert second[4] == "other"
    assert ter.splitlines()[0].endswith("(lower is better)")
    assert printed(command) == text


def test_json() -> None:
    value = json.loads(printed("score hyp --ref ref --json"))
    assert (value["hypothesis"], value["references"], value["lines"]) == ("hyp", ["ref"], 2)
    assert list(value["scores"]) == ["bleu", "chrf", "ter"]
    ter = ["ter", "TER", pytest.approx(300 / 13), TER, "", False]
    assert value["scores"]["ter"] == dict(zip(SCORES, ter, strict=True))
    first, second = json.loads(printed("score hyp hyp --ref ref --json --metric ter"))
    assert (first["scores"]["ter"]["p_value"], second["scores"]["ter"]["p_value"]) == (None, 1.0)
    assert [*first["scores"]["ter"]] == [*SCORES, "mean", "ci95", "p_value", "differing_lines"]


def test_the_papers_bleu_is_one_line_with_its_steps() -> None:
    """Line 1, "Das Rich @ Text @ Format ist alt ." against "… ist „ neu &quot; .", @ for ##AT##-##AT##: 9 tokens
    against 11; matches 8/9, 6/8, 5/7, 4/6. Line 2, 7 tokens against 8: 7/7, 5/6, 3/5, 2/4. In all 15/16, 11/14, 8/12,
    6/10, and exp(1 - 19/16).
    """
    value = 100 * math.exp(1 - 19 / 16) * (15 / 16 * 11 / 14 * 8 / 12 * 6 / 10) ** 0.25
    assert printed(PAPER) == (
        f"BLEU    {value:.2f}  nrefs:1|case:mixed|{STEPS}|{ENDS}  93.8/78.6/66.7/60.0 (BP = 0.829 ratio = 0.842 hyp_len = 16 ref_len = 19)\n"
    )
    lines = printed(f"{PAPER} --metric bleu --metric chrf").splitlines()
    assert [(line.split()[0], "protocol:paper" in line) for line in lines] == [("BLEU", True), ("chrF2", False)]
    steps = {"punct": "unicode", "tok": "moses-de", "compounds": "##AT##", "bleu": "multi-bleu"}
    expected = {"name": "paper", "language": "de", "steps": steps, "tokenized_references": False}
    assert json.loads(printed(f"{PAPER} --json"))["protocol"] == expected


def test_confidence_of_one_system() -> None:
    command = "score hyp --ref ref --metric chrf --confidence --samples 50 --seed 3"
    chrf = json.loads(printed(f"{command} --json"))["scores"]["chrf"]
    assert [*chrf] == [*SCORES, "mean", "ci95"]
    means = f"mean {chrf['mean']:.2f}  ci95 {chrf['ci95']:.2f}"
    assert printed(command).startswith(f"chrF2   {chrf['score']:.2f}  {means}  nrefs:1|bs:50|seed:3|case:mixed|")
    assert "|bs:1000|seed:12345|" in printed("score hyp --ref ref --metric ter --confidence")


def test_by_length() -> None:
    assert printed("score de --ref de.ref --metric ter --lengths 3,5,7").split("\n\n")[1] == (
        "de  by words of the reference\n"
        "words   lines  ratio     TER\n"
        "  1-3       0      -       -\n"
        "  4-5       1  1.000   25.00\n"
        "  6-7       1  0.857   14.29\n"
        "   8+       0      -       -\n"
    )
    value = json.loads(printed("score de --ref de.ref --by-length --metric ter --json"))
    assert [part["words"] for part in value["by_length"]] == ["1-10", "11-20", "21-30", "31-40", "41-50", "51+"]
    assert value["by_length"][0]["scores"]["ter"] == value["scores"]["ter"]["score"]
    assert (value["by_length"][5]["longest"], value["by_length"][5]["scores"]) == (None, {})


def test_the_environment_of_translate_does_not_choose_the_way_to_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_MODEL", "model")
    assert printed("score ref --ref ref --metric ter").startswith("TER      0.00")


COMET = "score hyp --ref ref --metric comet --src ref --comet-model x"


def test_missing_packages_are_named() -> None:
    for command, prelude, packages in (
        (PAPER, "import sys; sys.modules['sacremoses'] = None", "pip install regex 'sacremoses>=0.1.1'"),
        (COMET, WITHOUT_COMET, "pip install 'setuptools<81' 'unbabel-comet>=2.2'"),
    ):
        assert packages in forked.nmt(Path.cwd(), *command.split(), prelude=prelude, code=2)
