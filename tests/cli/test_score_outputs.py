"""`nmt score HYP --ref REF --src SRC`: the counts of faulty outputs and the worst lines, as text to the byte and as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import typer
from sacrebleu.metrics.chrf import CHRF
from typer.testing import CliRunner, Result

from nmt_cli.cli.output_checks import shortened
from nmt_cli.cli.score import score
from nmt_cli.errors import DataError, NmtError, UsageError
from nmt_cli.registry import METRICS

SOURCE = [
    "A dog barks at the postman.",
    "",
    "The old cat sleeps on the warm mat.",
    "Two men are playing chess in the park.",
    "",
    "She sings a song.",
]
OUTPUT = [
    "",
    "Hallo.",
    "The old cat sleeps on the warm mat.",
    "Zwei Männer spielen spielen spielen spielen Schach.",
    "",
    "Sie singt ein Lied.",
]
REFERENCE = [
    "Ein Hund bellt den Postboten an.",
    "",
    "Die alte Katze schläft auf der warmen Matte.",
    "Zwei Männer spielen im Park Schach.",
    "",
    "Sie singt ein Lied.",
]
BLANK = ": 1 of 6 lines have text where "
WARNINGS = (
    f"warning: 'hyp'{BLANK}",
    f"warning: standard input{BLANK}",
    "warning: 'good one': too few lines differ from 'hyp', ",
)
COUNTS = {"lines": 6, "empty": 1, "invented": 1, "loops": 1, "copies": 1, "length": 0, "numbers": 0, "placeholders": 0}

app = typer.Typer()
app.command()(score)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("src", SOURCE), ("hyp", OUTPUT), ("ref", REFERENCE)):
        write(name, lines)
    return tmp_path


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    said = [line for line in result.stderr.splitlines() if not line.startswith(WARNINGS)]
    assert (result.exit_code, said) == (0, [])
    return result


def fault(*arguments: str) -> NmtError:
    error = CliRunner().invoke(app, list(arguments)).exception
    assert isinstance(error, NmtError), error
    return error


def chrf(line: int, *references: list[str], lowercase: bool = False) -> float:
    """sacrebleu's own sentence chrF of a line, from 1."""
    score = CHRF(lowercase=lowercase).sentence_score(
        OUTPUT[line - 1], [stream[line - 1] for stream in references or (REFERENCE,)]
    )
    return float(score.score)


def outputs(*arguments: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(run("hyp", "--ref", "ref", "--src", "src", "--json", *arguments).stdout)[
        "outputs"
    ]
    return value


def test_counts_and_worst_lines_follow_the_metrics() -> None:
    metrics = run("hyp", "--ref", "ref").stdout
    assert run("hyp", "--ref", "ref", "--src", "src", "--worst", "4").stdout == metrics + (
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


def test_json_has_counts_and_whole_lines() -> None:
    value = json.loads(run("hyp", "--ref", "ref", "--src", "src", "--json", "--worst", "3").stdout)
    assert list(value) == ["hypothesis", "references", "lines", "scores", "outputs"]
    assert value["outputs"] == {
        **COUNTS,
        "worst": [
            {
                "line": line,
                "faults": [name],
                "chrf": chrf(line),
                "source": SOURCE[line - 1],
                "hypothesis": OUTPUT[line - 1],
                "reference": REFERENCE[line - 1],
            }
            for line, name in ((1, "empty"), (2, "invented"), (3, "copies"))
        ],
    }


def test_five_lines_are_shown_and_blank_pairs_never() -> None:
    default, every, none = outputs(), outputs("--worst", "100"), outputs("--worst", "0")
    assert [(line["line"], line["faults"]) for line in default["worst"]] == [
        (1, ["empty"]),
        (2, ["invented"]),
        (3, ["copies"]),
        (4, ["loops"]),
        (6, []),
    ]
    assert every == default
    assert none == {**COUNTS, "worst": []}
    assert "line 6  no fault  chrF2 100.00\n" in run("hyp", "--ref", "ref", "--src", "src").stdout
    assert run("hyp", "--ref", "ref", "--src", "src", "--worst", "0").stdout.endswith("  hyp\n")


def test_chrf_is_sacrebleus_against_all_references_whatever_the_metrics() -> None:
    other = [line.replace("Katze", "cat").replace("im Park Schach", "Schach") for line in REFERENCE]
    write("other", other)
    for metrics in ([], ["--metric", "bleu"], ["--metric", "ter", "--metric", "chrf"]):
        worst = outputs("--ref", "other", *metrics)["worst"]
        assert [line["chrf"] for line in worst] == [chrf(line["line"], REFERENCE, other) for line in worst]
        assert [line["reference"] for line in worst] == [REFERENCE[line["line"] - 1] for line in worst]
        assert chrf(3, REFERENCE, other) > chrf(3)
    lower = outputs("--lowercase")["worst"]
    assert [line["chrf"] for line in lower] == [chrf(line["line"], lowercase=True) for line in lower]


def test_every_system_has_its_row_and_its_lines() -> None:
    write("good one", REFERENCE)
    arguments = ["hyp", "good one", "--ref", "ref", "--src", "src", "--metric", "chrf", "--samples", "5"]
    text = run(*arguments, "--worst", "1").stdout
    assert text.split("\n\n")[1:] == [
        "outputs  (lines with a fault)\n"
        " lines  empty  invented  loops  copies  length  numbers  placeholders  system\n"
        "     6      1         1      1       1       0        0             0  hyp\n"
        "     6      0         0      0       0       0        0             0  good one",
        "hyp  worst lines\nline 1  empty  chrF2 0.00\n  SRC  A dog barks at the postman.\n  HYP\n  REF  Ein Hund bellt den Postboten an.",
        "good one  worst lines\nline 1  no fault  chrF2 100.00\n  SRC  A dog barks at the postman.\n  HYP  Ein Hund bellt den Postboten an.\n  REF  Ein Hund bellt den Postboten an.\n",
    ]
    assert [value["outputs"]["empty"] for value in json.loads(run(*arguments, "--json").stdout)] == [1, 0]


def test_beside_other_tables_and_from_standard_input() -> None:
    text = run(
        "-", "--ref", "ref", "--src", "src", "--metric", "chrf", "--by-length", stdin=Path("hyp").read_bytes()
    ).stdout
    assert [part.split("\n")[0].split("  ")[0] for part in text.split("\n\n")] == ["chrF2", "-", "outputs", "-"]
    assert (
        run("hyp", "--ref", "ref", "--src", "-", "--worst", "2", stdin=Path("src").read_bytes()).stdout
        == run("hyp", "--ref", "ref", "--src", "src", "--worst", "2").stdout
    )


def test_with_comet_the_same_appears(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric of that name which needs no model."""
    (folder / "constant_comet.py").write_text(
        "from nmt_cli.evaluation.metric import MetricSpec, SentenceStatisticsMetric\n"
        "class Constant(SentenceStatisticsMetric):\n"
        "    def __init__(self): super().__init__('COMET', version='1')\n"
        "    def rows(self, hypotheses, references): return [[1.0] for _ in hypotheses]\n"
        "    def value(self, sums): return sums[0]\n"
        "SPEC = MetricSpec(lambda options: Constant())\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(METRICS, "comet", "constant_comet:SPEC")
    value = outputs("--metric", "comet")
    assert value == outputs()
    assert "outputs  (lines with a fault)" in run("hyp", "--ref", "ref", "--src", "src", "--metric", "comet").stdout


def test_shown_text_cannot_control_a_terminal() -> None:
    write("src", ["A dog \x1b[31mbarks\x07 at\u00a0the postman.\t!", *SOURCE[1:]])
    write("hyp", ["\u202eEin\r Hund\x9b bellt\u2028.", *OUTPUT[1:]])
    text = run("hyp", "--ref", "ref", "--src", "src", "--worst", "9").stdout
    assert (
        "  SRC  A dog \\u001b[31mbarks\\u0007 at\u00a0the postman.\t!\n  HYP  \\u202eEin\\u000d Hund\\u009b bellt\\u2028.\n"
        in text
    )
    shown = [line for line in outputs("--worst", "9")["worst"] if line["line"] == 1]
    assert shown[0]["hypothesis"] == "\u202eEin\r Hund\x9b bellt\u2028."


def test_long_text_loses_its_middle() -> None:
    write("hyp", [("Wort " * 100).strip(), *OUTPUT[1:]])
    (row,) = (
        line
        for line in run("hyp", "--ref", "ref", "--src", "src").stdout.splitlines()
        if line.startswith("  HYP  Wort")
    )
    assert len(row) == 200
    assert row[7:].count("…") == 1
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcde…hijk"
    assert shortened("日本語日本語", 10) == "日本 …本語"  # a character is two columns wide


def test_a_text_fits_into_a_row_of_the_terminal() -> None:
    write("hyp", [("Ein [Hund] bellt. " * 30).strip(), *OUTPUT[1:]])
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 66, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {
        "TERM": "dumb"
    }
    command = [sys.executable, "-m", "nmt_cli", "score", "hyp", "--ref", "ref", "--src", "src", "--metric", "chrf"]
    with os.fdopen(master, "rb", buffering=0) as stream:
        subprocess.run(command, stdout=terminal, env=environment, check=True)
        os.close(terminal)
        rows = stream.read(1 << 16).decode().splitlines()
    (row,) = (row for row in rows if row.startswith("  HYP  Ein"))
    assert (len(row), row.count("…"), row[:23]) == (66, 1, "  HYP  Ein [Hund] bellt")


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (
            ["hyp", "--ref", "ref", "--worst", "3"],
            UsageError,
            "--worst 3 needs --src SRC, the text that HYP translates",
        ),
        (
            ["--model", "model", "--src", "src", "--ref", "ref", "--worst", "0"],
            UsageError,
            "--worst: not with --model DIR",
        ),
        (
            ["hyp", "--ref", "ref", "--src", "src", "--metric", "evalb"],
            UsageError,
            "--src: not with --metric evalb, which scores parses.",
        ),
        (["hyp", "--ref", "ref", "--src", "missing"], DataError, "cannot read 'missing'"),
        (["-", "--ref", "ref", "--src", "-"], UsageError, "given more than once"),
        (["hyp", "--ref", "ref", "--src", "short"], DataError, "'short' has 1 lines, the reference 'ref' has 6."),
    ],
)
def test_wrong_use_is_named(arguments: list[str], kind: type[NmtError], words: str) -> None:
    write("short", ["one"])
    error = fault(*arguments)
    assert isinstance(error, kind)
    assert words in str(error)


def test_less_than_no_line_is_refused() -> None:
    assert CliRunner().invoke(app, ["hyp", "--ref", "ref", "--src", "src", "--worst", "-1"]).exit_code == 2
