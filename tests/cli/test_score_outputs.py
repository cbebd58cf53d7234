"""`nmt score HYP --ref REF --src SRC`: the counts of faulty outputs and the worst lines, as text to the byte and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import printed
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.cli.output_checks import shortened

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("src", SOURCE), ("hyp", OUTPUT), ("ref", REFERENCE)):
        write(name, lines)
    return tmp_path


SCORE = "score hyp --ref ref --src src"


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


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
    metrics = printed("score hyp --ref ref")
    assert printed(f"{SCORE} --worst 4") == metrics + (
        "\n"
        "outputs  (lines with a fault)\n"
        " lines  empty  invented  loops  copies  length  numbers  placeholders  system\n"
        "     6      1         1      1       1       0        0             0  hyp\n"
        "\n"
        "hyp  worst lines\n"
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
    assert printed(f"{SCORE} --worst 0").endswith("  hyp\n")


def test_shown_text_cannot_control_a_terminal() -> None:
    write("src", ["A dog \x1b[31mbarks\x07 at\u00a0the postman.\t!", *SOURCE[1:]])
    write("hyp", ["\u202eEin\r Hund\x9b bellt\u2028.", *OUTPUT[1:]])
    text = printed(f"{SCORE} --worst 9")
    assert (
        "  SRC  A dog \\u001b[31mbarks\\u0007 at\u00a0the postman.\t!\n  HYP  \\u202eEin\\u000d Hund\\u009b bellt\\u2028.\n"
        in text
    )
    shown = [line for line in outputs("--worst", "9")["worst"] if line["line"] == 1]
    assert shown[0]["hypothesis"] == "\u202eEin\r Hund\x9b bellt\u2028."


def test_long_text_loses_its_middle() -> None:
    write("hyp", [("Wort " * 100).strip(), *OUTPUT[1:]])
    (row,) = (line for line in printed(SCORE).splitlines() if line.startswith("  HYP  Wort"))
    assert len(row) == 200
    assert row[7:].count("…") == 1
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcde…hijk"
    assert shortened("日本語日本語", 10) == "日本 …本語"  # a character is two columns wide
