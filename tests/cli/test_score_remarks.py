"""The remarks of `nmt score` on stderr about references, scripts and normal forms, and the scores beside them; with --src,
the counts of faulty outputs and the worst lines, as text to the byte and as JSON.
"""

import json
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from in_process import printed, warnings
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt_cli.cli.output_checks import shortened

HYP = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him.", "Le café est bon."]
REF = ["The dog bit the man.", "It was not unexpected.", "The man bit him first.", "Le café est très bon."]
SECOND = ["The dog had bit the man.", "", "The man had bitten the dog.", " \u3000"]
MIXED = ["", "It was not unexpected.", "The man bit him first.", ""]
CHINESE = ["今天天气很好，我们去公园散步吧。", "他昨天买了一台电脑。"]
JAPANESE = ["今日は天気がいいので散歩しましょう。", "昨日パソコンを買いました。"]
ONE = "score hyp --ref ref"
LINES = [
    ("A dog barks at the postman.", "", "Ein Hund bellt den Postboten an."),
    ("", "Hallo.", ""),
    (CAT := "The old cat sleeps on the warm mat.", CAT, "Die alte Katze schläft auf der warmen Matte."),
    (
        "Two men are playing chess in the park.",
        f"Zwei Männer{' spielen' * 4} Schach.",
        "Zwei Männer spielen im Park Schach.",
    ),
    ("", "", ""),
    ("She sings a song.", "Sie singt ein Lied.", "Sie singt ein Lied."),
]
SOURCE, OUTPUT, REFERENCE = (list(side) for side in zip(*LINES, strict=True))
COUNTS = {"lines": 6, "empty": 1, "invented": 1, "loops": 1, "copies": 1, "length": 0, "numbers": 0, "placeholders": 0}


@pytest.fixture(autouse=True)
def folder(workdir: Path) -> Path:
    for name, lines in (("hyp", HYP), ("ref", REF), ("second", SECOND), ("mixed", MIXED)):
        write(name, lines)
    for name, lines in (("src", SOURCE), ("out", OUTPUT), ("gold", REFERENCE)):
        write(name, lines)
    return workdir


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def says(command: str, *expected: tuple[str, ...]) -> None:
    """Every warning has its words, and there are no others."""
    found = warnings(command)
    assert len(found) == len(expected), found
    for said, words in zip(found, expected, strict=True):
        assert all(word in said for word in words), (said, words)


def scores(command: str) -> dict[str, Any]:
    return {name: score["score"] for name, score in json.loads(printed(f"{command} --json"))["scores"].items()}


def test_what_looks_wrong_is_said_by_the_name_of_the_file() -> None:
    Path("link").symlink_to("ref")
    says("score link --ref ref --metric bleu", ("'link'", "same file"))
    assert any("'ref' and --ref 'ref'" in said for said in warnings("score hyp --ref ref --src ref"))
    Path("bytes").write_bytes(b"caf\xe9\nfine\nfine\nfine\n")
    says("score bytes --ref ref", ("'bytes': 1 line", "UTF-8"))
    says(f"{ONE} --metric ter --tokenize intl", ("--tokenize intl", "BLEU"))
    for name in ("tokenised", "same"):
        write(name, ["the cat sat ."] * 100)
    tokenised = "score tokenised --ref same --metric bleu"
    says(tokenised, ("'tokenised': 100 lines", "' .'"))
    says(tokenised.replace("--metric bleu", "--protocol paper"), ("'tokenised': 100 lines", "protocol"))
    says(f"{tokenised} --tokenize none")
    says(tokenised.replace("bleu", "chrf"))


def test_a_blank_line_is_no_reference_where_another_has_text() -> None:
    """As sacrebleu scores None, whatever the order of the references."""
    expected = {
        name: metric.corpus_score(HYP, [REF, [line.strip() or None for line in SECOND]]).score  # type: ignore[misc]
        for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER()))
    }
    for command in (f"{ONE} --ref second", "score hyp --ref second --ref ref"):
        assert scores(command) == pytest.approx(expected)
        assert printed(command).count("  nrefs:var|") == 3
    says(f"{ONE} --ref second", ("'second': 2 of 4", "nrefs:var"))
    assert "  nrefs:2|" in printed(f"{ONE} --ref ref")


def test_where_all_references_are_blank_the_reference_is_empty_text() -> None:
    says("score hyp --ref second", ("'hyp': 2 of 4", "the reference is blank", "BLEU and TER"))
    assert scores("score hyp --ref second")["bleu"] == BLEU().corpus_score(HYP, [SECOND]).score
    both = "score hyp --ref second --ref mixed"
    says(both, ("'second': 1 of 4",), ("'mixed': 1 of 4",), ("'hyp': 1 of 4", "all references are blank"))
    write("hyp", [*HYP[:1], "", HYP[2], ""])
    says("score hyp --ref second")  # blank translations of blank lines


def decomposed(lines: list[str]) -> list[str]:
    return [unicodedata.normalize("NFD", line) for line in lines]


def test_different_normal_forms_are_said() -> None:
    write("nfd", decomposed(HYP))
    write("refd", decomposed(REF))
    says("score nfd --ref ref", ("'nfd': 1 of 4", "NFC", "uconv -x any-nfc"))
    says("score nfd --ref refd")
    says("score hyp --ref refd", ("'refd': 1 of 4",))
    says(f"{ONE} --ref refd", ("'refd': 1 of 4",))
    says("score nfd --ref ref --ref ref", ("'nfd': 1 of 4",))
    write("ref", ["café"] * 200)
    for count in (1, 2):  # one line in two hundred is not said
        write("hyp", [*decomposed(["café"] * count), *["café"] * (200 - count)])
        assert len(warnings(ONE)) == count - 1


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
    for command in ("score pieces --ref plain", "score plain --ref pieces"):
        [said] = [line for line in warnings(command) if kind in line]
        assert said.startswith("'pieces': 2 of 2")
    command = said.partition("Join them: ")[2].removesuffix(".")
    subprocess.run(command.replace("OLD", "pieces").replace("NEW", "joined"), shell=True, check=True)
    assert Path("joined").read_text(encoding="utf-8").splitlines() == HYP[:2]
    write("mail", ["@@ -1 +1 @@", *HYP * 5])
    assert len(warnings("score mail --ref mail")) == len(warnings("score plain --ref plain")) == 1


@pytest.mark.parametrize(("references", "tokenizer"), [(CHINESE, "zh"), (JAPANESE, "char")])
def test_a_tokenizer_that_needs_spaces_is_said(references: list[str], tokenizer: str) -> None:
    write("ref", references)
    write("hyp", [line.replace("天", "") for line in references])
    remedy, bleu, ter = f"--tokenize {tokenizer}.", f"{ONE} --metric bleu", f"{ONE} --metric ter"
    says(bleu, ("'hyp'", "13a", remedy))
    says(f"{ONE} --protocol paper", ("'hyp'", "Moses", remedy))
    for right in (tokenizer, "char", "none"):
        says(f"{bleu} --tokenize {right}")
    says(ter, ("'hyp'", "TER", "--ter-asian"))
    says(f"{ter} --ter-asian")
    assert not [said for said in warnings(f"{ter} --tokenize none") if "TER takes" in said]
    says(f"{ONE} --metric chrf")
    write("ref", REF[:2])
    says(ONE)  # the hypothesis does not decide


# Faulty outputs and the worst lines

SCORE = "score out --ref gold --src src"


def chrf(line: int, *references: list[str], lowercase: bool = False) -> float:
    """sacrebleu's own sentence chrF of a line, from 1."""
    score = CHRF(lowercase=lowercase).sentence_score(
        OUTPUT[line - 1], [stream[line - 1] for stream in references or (REFERENCE,)]
    )
    return float(score.score)


def outputs(*arguments: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(printed(f"{SCORE} --json", *arguments))
    return value["outputs"]  # type: ignore[no-any-return]


def test_counts_and_worst_lines_follow_the_metrics() -> None:
    metrics = printed("score out --ref gold")
    assert printed(f"{SCORE} --worst 4") == metrics + (
        "\n"
        "outputs  (lines with a fault)\n"
        " lines  empty  invented  loops  copies  length  numbers  placeholders  system\n"
        "     6      1         1      1       1       0        0             0  out\n"
        "\n"
        "out  worst lines\n"
        "line 1  empty  chrF2 0.00\n"
        "  SRC  A dog barks at the postman.\n"
        "  HYP\n"
        "  REF  Ein Hund bellt den Postboten an.\n"
        "line 2  invented  chrF2 0.00\n"
        "  SRC\n"
        "  HYP  Hallo.\n"
        "  REF\n"
        f"line 3  copies  chrF2 {chrf(3):.2f}\n"
        "  SRC  The old cat sleeps on the warm mat.\n"
        "  HYP  The old cat sleeps on the warm mat.\n"
        "  REF  Die alte Katze schläft auf der warmen Matte.\n"
        f"line 4  loops  chrF2 {chrf(4):.2f}\n"
        "  SRC  Two men are playing chess in the park.\n"
        "  HYP  Zwei Männer spielen spielen spielen spielen Schach.\n"
        "  REF  Zwei Männer spielen im Park Schach.\n"
    )


def test_json_has_five_whole_lines_and_blank_pairs_never() -> None:
    value = json.loads(printed(f"{SCORE} --json"))
    assert list(value) == ["hypothesis", "references", "lines", "scores", "outputs"]
    keys = ("line", "faults", "chrf", "source", "hypothesis", "reference")
    worst = [
        (line, faults, chrf(line), SOURCE[line - 1], OUTPUT[line - 1], REFERENCE[line - 1])
        for line, faults in ((1, ["empty"]), (2, ["invented"]), (3, ["copies"]), (4, ["loops"]), (6, []))
    ]
    expected = {**COUNTS, "worst": [dict(zip(keys, one, strict=True)) for one in worst]}
    assert value["outputs"] == outputs("--worst", "100") == expected
    assert outputs("--worst", "0") == {**COUNTS, "worst": []}
    assert "line 6  no fault  chrF2 100.00\n" in printed(SCORE)
    assert printed(f"{SCORE} --worst 0").endswith("  out\n")


def test_shown_text_cannot_control_a_terminal() -> None:
    write("src", ["A dog \x1b[31mbarks\x07 at\u00a0the postman.\t!", *SOURCE[1:]])
    write("out", ["\u202eEin\r Hund\x9b bellt\u2028.", *OUTPUT[1:]])
    text = printed(f"{SCORE} --worst 9")
    assert (
        "  SRC  A dog \\u001b[31mbarks\\u0007 at\u00a0the postman.\t!\n  HYP  \\u202eEin\\u000d Hund\\u009b bellt\\u2028.\n"
        in text
    )
    shown = [line for line in outputs("--worst", "9")["worst"] if line["line"] == 1]
    assert shown[0]["hypothesis"] == "\u202eEin\r Hund\x9b bellt\u2028."


def test_long_text_loses_its_middle() -> None:
    write("out", [("Wort " * 100).strip(), *OUTPUT[1:]])
    (row,) = (line for line in printed(SCORE).splitlines() if line.startswith("  HYP  Wort"))
    assert len(row) == 200
    assert row[7:].count("…") == 1
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcde…hijk"
    assert shortened("日本語日本語", 10) == "日本 …本語"  # a character is two columns wide
