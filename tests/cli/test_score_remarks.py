"""The remarks of `nmt score` on stderr about references, scripts, normal forms and few differences; and the scores beside them."""

from __future__ import annotations

import json
import subprocess
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from typer.testing import CliRunner, Result

from nmt_cli import evaluate
from nmt_cli.cli.score import score
from nmt_cli.evaluation.metric import MetricSpec, SentenceStatisticsMetric
from nmt_cli.evaluation.metrics import Scorer
from nmt_cli.evaluation.references import missing, present_first, without_missing
from nmt_cli.registry import METRICS

HYP = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him.", "Le café est bon."]
REF = ["The dog bit the man.", "It was not unexpected.", "The man bit him first.", "Le café est très bon."]
SECOND = ["The dog had bit the man.", "", "The man had bitten the dog.", " \u3000"]
MIXED = ["", "It was not unexpected.", "The man bit him first.", ""]
CHINESE = ["今天天气很好，我们去公园散步吧。", "他昨天买了一台电脑。"]
JAPANESE = ["今日は天気がいいので散歩しましょう。", "昨日パソコンを買いました。"]
BLANK = "lines are blank where another reference has text. They count as missing references (nrefs:var)."

app = typer.Typer()
app.command()(score)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("hyp", HYP), ("ref", REF), ("second", SECOND), ("mixed", MIXED)):
        write(name, lines)
    return tmp_path


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.exception
    return result


def warnings(*arguments: str) -> list[str]:
    return [line.removeprefix("warning: ") for line in run(*arguments).stderr.splitlines()]


def scores(*arguments: str) -> dict[str, Any]:
    return {name: score["score"] for name, score in json.loads(run(*arguments, "--json").stdout)["scores"].items()}


# --- missing references ---


def test_a_blank_line_is_no_reference_where_another_has_text() -> None:
    """As sacrebleu scores None, whatever the order of the references."""
    expected = {
        name: metric.corpus_score(HYP, [REF, [line.strip() or None for line in SECOND]]).score  # type: ignore[misc]
        for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER()))
    }
    assert scores("hyp", "--ref", "ref", "--ref", "second") == pytest.approx(expected)
    assert scores("hyp", "--ref", "second", "--ref", "ref") == pytest.approx(expected)
    assert warnings("hyp", "--ref", "ref", "--ref", "second") == [f"'second': 2 of 4 {BLANK}"]
    for line in run("hyp", "--ref", "second", "--ref", "ref").stdout.splitlines():
        assert "  nrefs:var|" in line
    assert "  nrefs:2|" in run("hyp", "--ref", "ref", "--ref", "ref").stdout


def test_blank_references_add_nothing_anywhere() -> None:
    """A further reference that is blank from end to end: every number is that without it, only the signature differs."""
    write("blank", [""] * 4)
    options = ["--src", "ref", "--by-length", "--worst", "9", "--json"]
    for more in (["--metric", "bleu", "--metric", "chrf", "--metric", "ter"], ["--protocol", "paper"]):
        one = run("hyp", "--ref", "ref", *options, *more).stdout
        for order in (("--ref", "ref", "--ref", "blank"), ("--ref", "blank", "--ref", "ref")):
            two = run("hyp", *order, *options, *more).stdout.replace("nrefs:var", "nrefs:1")
            assert {**json.loads(two), "references": ["ref"]} == json.loads(one)
    one = run("hyp", "ref", "--ref", "ref", "--significance", "randomisation", "--samples", "50").stdout
    two = run(
        "hyp", "ref", "--ref", "blank", "--ref", "ref", "--significance", "randomisation", "--samples", "50"
    ).stdout
    assert two.replace("nrefs:var", "nrefs:1") == one


def test_where_all_references_are_blank_the_reference_is_empty_text() -> None:
    text = "lines have text where the reference is blank. BLEU and TER count this text as wrong; chrF leaves it out."
    assert warnings("hyp", "--ref", "second") == [f"'hyp': 2 of 4 {text}"]
    assert scores("hyp", "--ref", "second")["bleu"] == BLEU().corpus_score(HYP, [SECOND]).score
    both = text.replace("the reference is", "all references are")
    assert warnings("hyp", "--ref", "second", "--ref", "mixed") == [
        f"'second': 1 of 4 {BLANK}",
        f"'mixed': 1 of 4 {BLANK}",
        f"'hyp': 1 of 4 {both}",
    ]
    write("hyp", [*HYP[:1], "", HYP[2], ""])
    assert warnings("hyp", "--ref", "second") == []  # blank translations of blank lines


class Exact(SentenceStatisticsMetric):
    """The metric of the documentation, which reads the first reference alone."""

    def __init__(self) -> None:
        super().__init__("Exact", version="1")

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[float]]:
        return [[h == r, 1] for h, r in zip(hypotheses, references[0], strict=True)]

    def value(self, sums: Sequence[float]) -> float:
        return 100 * sums[0] / sums[1]


EXACT = MetricSpec(lambda options: Exact())


def test_a_metric_of_ones_own_gets_present_references_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "exact", f"{__name__}:EXACT")
    scorer = Scorer("exact", [["a", "", "c"], ["x", "b", "y"], ["", "", "z"]])
    score = scorer.score(["a", "b", "c"])
    assert (score.value, score.signature) == (100.0, "nrefs:var|version:1")
    assert Scorer("exact", [["a"], ["b"]]).score(["a"]).signature == "nrefs:2|version:1"


def test_missing_lines_by_stream() -> None:
    streams = [["a", "", "", "d"], ["", "b", " ", "e"]]
    assert missing(streams) == [1, 1]
    assert present_first(streams) == [["a", "b", "", "d"], ["", "", " ", "e"]]
    assert without_missing(present_first(streams)) == [["a", "b", "", "d"], [None, None, " ", "e"]]
    assert missing([["", "x"]]) == [0]


# --- normal forms ---


def decomposed(lines: list[str]) -> list[str]:
    return [unicodedata.normalize("NFD", line) for line in lines]


def test_different_normal_forms_are_said() -> None:
    write("nfd", decomposed(HYP))
    (remark,) = warnings("nfd", "--ref", "ref")
    assert remark == (
        "'nfd': 1 of 4 lines are not in Unicode's normal form NFC, unlike those of another text. A letter such as é is then written "
        "in two ways, and counts as wrong. Convert 'nfd': uconv -x any-nfc < OLD > NEW, or python3 -c \"import sys, unicodedata as u; "
        "sys.stdout.write(u.normalize('NFC', sys.stdin.read()))\" < OLD > NEW."
    )
    write("refd", decomposed(REF))
    assert warnings("nfd", "--ref", "refd") == []
    (remark,) = warnings("hyp", "--ref", "refd")
    assert remark.startswith("'refd': 1 of 4 ")
    (remark,) = warnings("hyp", "--ref", "ref", "--ref", "refd")
    assert remark.startswith("'refd': 1 of 4 ")
    (remark,) = warnings("nfd", "--ref", "ref", "--ref", "ref")
    assert remark.startswith("'nfd': 1 of 4 ")


@pytest.mark.parametrize(("count", "said"), [(1, False), (2, True)])
def test_one_line_in_two_hundred_is_not_said(count: int, said: bool) -> None:
    write("hyp", [*decomposed(["café"] * count), *["café"] * (200 - count)])
    write("ref", ["café"] * 200)
    assert bool(warnings("hyp", "--ref", "ref")) == said


# --- scripts without spaces ---


@pytest.mark.parametrize(
    ("subwords", "kind"),
    [
        (["The do@@ g bit the man@@ .", "It wasn@@ '@@ t surprising."], "BPE"),
        (["▁The ▁do g ▁bit ▁the ▁man .", "▁It ▁was n ' t ▁sur prising ."], "SentencePiece"),
    ],
)
def test_text_in_subwords_is_said_with_the_command_that_joins_it(subwords: list[str], kind: str) -> None:
    write("pieces", subwords)
    write("plain", HYP[:2])
    for arguments in (["pieces", "--ref", "plain"], ["plain", "--ref", "pieces"]):
        [said] = [line for line in warnings(*arguments) if kind in line]
        assert said.startswith(f"'pieces': 2 of 2 lines are in {kind}'s subwords (")
    command = said.partition("Join them: ")[2].removesuffix(".")
    subprocess.run(command.replace("OLD", "pieces").replace("NEW", "joined"), shell=True, check=True)
    assert Path("joined").read_text(encoding="utf-8").splitlines() == HYP[:2]
    write("mail", ["@@ -1 +1 @@", *HYP * 5])
    assert warnings("mail", "--ref", "mail")[1:] == warnings("plain", "--ref", "plain")[1:] == []


@pytest.mark.parametrize(
    ("references", "script", "tokenizer"),
    [(CHINESE, "Chinese", "zh"), (JAPANESE, "in a script without spaces between words", "char")],
)
def test_a_tokenizer_that_needs_spaces_is_said(references: list[str], script: str, tokenizer: str) -> None:
    write("ref", references)
    write("hyp", [line.replace("天", "") for line in references])
    text = f"the references are {script}: BLEU by {{}} takes a run of characters as one word, so it means little. Give --tokenize {tokenizer}."
    bleu = ["hyp", "--ref", "ref", "--metric", "bleu"]
    assert warnings(*bleu) == [f"'hyp': {text.format('13a')}"]
    assert warnings(*bleu, "--tokenize", "intl") == [f"'hyp': {text.format('intl')}"]
    assert warnings("hyp", "--ref", "ref", "--protocol", "paper") == [f"'hyp': {text.format('Moses')}"]
    for right in (tokenizer, "char", "none"):
        assert warnings(*bleu, "--tokenize", right) == []
    assert warnings("hyp", "--ref", "ref", "--metric", "chrf") == []
    write("same", references)
    (both,) = warnings("hyp", "same", "--ref", "ref", "--metric", "bleu", "--significance", "randomisation")
    assert both == f"'hyp', 'same': {text.format('13a')}"


@pytest.mark.parametrize(
    ("references", "script"), [(CHINESE, "Chinese"), (JAPANESE, "in a script without spaces between words")]
)
def test_ter_of_text_without_spaces_is_said(references: list[str], script: str) -> None:
    write("ref", references)
    write("hyp", [line.replace("天", "") for line in references])
    ter = ["hyp", "--ref", "ref", "--metric", "ter"]
    assert warnings(*ter) == [
        f"'hyp': the references are {script}: TER takes a run of characters as one word, so it means little. Give "
        "--ter-asian for Chinese and Japanese, or leave TER out with --metric."
    ]
    for right in (["--ter-asian"], ["--tokenize", "none"]):
        assert [text for text in warnings(*ter, *right) if "TER" in text] == []


def test_the_hypothesis_does_not_decide() -> None:
    write("hyp", CHINESE * 2)
    assert warnings("hyp", "--ref", "ref") == []


# --- few differences ---


def test_few_differences_are_said_once_for_all_metrics() -> None:
    write("many", REF * 20)
    write("other", [*(REF * 20)[:-1], "Le café est bon."])
    (remark,) = warnings("many", "other", "--ref", "many", "--significance", "bootstrap")[1:]
    assert remark.startswith(
        "'other': too few lines differ from 'many', so the bootstrap's p says nothing: BLEU in 1 of 80 (p = 0."
    )
    assert remark.count("random exchanges give 1)") == 3
    assert len(warnings("many", "other", "--ref", "many", "--significance", "randomisation")) == 1


# --- Python ---


def test_python_gets_the_same_remarks() -> None:
    evaluation = evaluate({"a": HYP, "b": REF}, [REF, SECOND], significance="randomisation", samples=9)
    assert evaluation.remarks() == [f"reference 2: 2 of 4 {BLANK}"]
    assert evaluation.remarks(["x", "y"], str.upper) == [f"y: 2 of 4 {BLANK}"]
    (remark,) = evaluate(CHINESE, [CHINESE], metrics=["bleu"]).remarks()
    assert remark.startswith("'hypothesis': the references are Chinese: BLEU by 13a takes ")
