"""`nmt translate --confidence` and `nmt calibrate`: their output, files, and wrong use."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result
from untrained import sentence, write_untrained

import nmt_cli as nmt
from nmt_cli.cli import app as command_line
from nmt_cli.cli.calibrate import calibrate
from nmt_cli.cli.translate import translate
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.storage.sealed_json import to_json
from nmt_cli.translation.confidence import Calibration, read_calibration

app = typer.Typer()
app.command()(translate)
app.command()(calibrate)
LINES = 60


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "one")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each test works: the model, and parallel lines in `in` and `ref`, the fifth of them blank and the sixth in parts."""
    monkeypatch.chdir(tmp_path)
    Path("one").symlink_to(trained)
    rng = random.Random(1)
    for name in ("in", "ref"):
        lines = [sentence(rng, {5: 60}.get(number, rng.randint(1, 12))) for number in range(LINES)]
        lines[4] = "" if name == "in" else "blank"
        Path(name).write_text("".join(line + "\n" for line in lines))
    return tmp_path


MODEL = ["--model", "one", "--device", "cpu", "--precision", "fp32", "--devices", "1"]
TRANSLATE = ["translate", *MODEL, "--input", "in"]
CALIBRATE = ["calibrate", *MODEL, "--src", "in", "--ref", "ref"]


def invoke(*arguments: object) -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    torch.set_num_threads(threads)
    return result


def run(*arguments: object) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def objects(*arguments: object) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in run(*TRANSLATE, "--json", *arguments).stdout.split("\n")[:-1]]


def test_each_line_has_its_words_and_a_quality() -> None:
    found = objects("--confidence", "--nbest", 2)
    plain = objects("--nbest", 2)
    assert list(found[0]) == ["source", "translation", "score", "log_prob", "tokens", "words", "quality", "nbest"]
    assert list(found[0]["nbest"][0]) == ["translation", "score", "log_prob", "tokens", "words", "quality"]
    for line, without in zip(found, plain, strict=True):
        assert {key: value for key, value in line.items() if key not in ("words", "quality", "nbest")} == {
            key: value for key, value in without.items() if key != "nbest"
        }
        assert [entry["translation"] for entry in line["nbest"]] == [entry["translation"] for entry in without["nbest"]]
        assert {key: line[key] for key in ("words", "quality")} == {
            key: line["nbest"][0][key] for key in ("words", "quality")
        }
        for entry in line["nbest"]:
            assert " ".join(word["word"] for word in entry["words"]) == entry["translation"]
            assert all(0 < word["probability"] <= 1 for word in entry["words"])
            assert sum(math.log(word["probability"]) for word in entry["words"]) >= entry["log_prob"] - 1e-4
            assert (entry["quality"] is None) == (line["source"] == "")
            assert entry["quality"] is None or 0 < entry["quality"] < 1
    assert found[4] == {
        "source": "",
        "translation": "",
        "score": 0.0,
        "log_prob": 0.0,
        "tokens": [],
        "words": [],
        "quality": None,
        "nbest": [{"translation": "", "score": 0.0, "log_prob": 0.0, "tokens": [], "words": [], "quality": None}],
    }
    assert len(found[5]["tokens"]) > 42  # more than `data.max_length` and `max_extra` allow: it was translated in parts


@pytest.mark.parametrize(
    "search",
    [
        ["--sample"],
        ["--search", "mbr", "--mbr-samples", 3],
        ["--search", "diverse", "--beam", 2, "--diverse-groups", 2],
    ],
)
def test_every_search_has_confidence(search: list[object]) -> None:
    for line in objects("--confidence", *search):
        assert " ".join(word["word"] for word in line["words"]) == line["translation"]
        assert (line["quality"] is None) == (line["source"] == "")


def test_confidence_goes_together_with_alignments() -> None:
    [line, *_] = objects("--confidence", "--alignment")
    assert list(line) == [
        "source",
        "translation",
        "score",
        "log_prob",
        "tokens",
        "words",
        "quality",
        "source_tokens",
        "alignment",
        "nbest",
    ]


def test_a_calibration_changes_only_the_quality(folder: Path) -> None:
    result = run(*CALIBRATE, "--out", "own.json")
    assert result.stdout == ""
    assert f"calibrated on {LINES - 1} lines: mean chrF " in result.stderr
    assert "next: nmt translate --model one --json --confidence --calibration own.json < input" in result.stderr
    own = read_calibration(Path("own.json"))
    assert own.lines == LINES - 1
    assert sorted(path.name for path in folder.iterdir()) == ["in", "one", "own.json", "ref"]
    default, changed = objects("--confidence"), objects("--confidence", "--calibration", "own.json")
    assert [line["words"] for line in default] == [line["words"] for line in changed]
    assert [line["quality"] for line in default if line["source"]] != [
        line["quality"] for line in changed if line["source"]
    ]
    mean = float(result.stderr.partition("mean chrF ")[2].partition(",")[0])
    assert 100 * sum(line["quality"] for line in changed if line["source"]) / (LINES - 1) == pytest.approx(
        mean, abs=0.2
    )


def test_a_calibration_from_python_is_the_same() -> None:
    run(*CALIBRATE, "--out", "own.json")
    source, reference = (Path(name).read_text().split("\n")[:-1] for name in ("in", "ref"))
    fitted = nmt.calibrate(source, reference, model="one", out="second.json", device="cpu", devices=1, precision="fp32")
    assert fitted.lines == LINES - 1
    assert Path("second.json").read_bytes() == Path("own.json").read_bytes()
    assert fitted.calibration == read_calibration(Path("second.json"))
    with pytest.raises(UsageError, match="60 lines of source and 59 of reference"):
        nmt.calibrate(source, reference[1:], model="one")


def test_a_calibration_replaces_only_an_earlier_one() -> None:
    run(*CALIBRATE, "--out", "own.json")
    first = Path("own.json").read_bytes()
    Path("own.json").write_bytes(first)
    run(*CALIBRATE, "--set", "decode.beam=1", "--out", "own.json")
    assert Path("own.json").read_bytes() != first
    values = json.loads(first) | {"intercept": 0.25}
    for content, reason in (
        (b"mine", "nmt calibrate did not write it"),
        (json.dumps(values).encode(), "it was changed after nmt calibrate had written it"),
    ):
        Path("own.json").write_bytes(content)
        result = invoke(*CALIBRATE, "--out", "own.json")
        assert isinstance(result.exception, NmtError)
        assert result.exception.exit_code == 2
        assert f"'own.json' is not replaced: {reason}." in str(result.exception)
        assert Path("own.json").read_bytes() == content


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--out", "in"], 2, "the calibration would replace its own input 'in'"),
        (["--out", "one"], 2, "the calibration is a file, and 'one' is a folder."),
        (["--out", "own.json", "--precision", "fp8"], 2, "--precision 'fp8': expected auto, fp32, bf16, fp16 or int8."),
        (["--out", "own.json", "--set", "train.seed=3"], 2, "only decode.KEY=VALUE can."),
        (["--out", "own.json", "--model", "nowhere"], 1, "no model at 'nowhere'"),
        (["--out", "own.json", "--ref", "nowhere"], 1, "cannot read 'nowhere'"),
        (["--out", "own.json", "--ref", "short"], 1, "They must be parallel, line by line."),
        (
            ["--out", "own.json", "--src", "short", "--ref", "short"],
            1,
            "a calibration needs 50 lines or more that are not blank, here are 2.",
        ),
        (["--out", "own.json", "--src", "-", "--ref", "-"], 2, "standard input"),
    ],
)
def test_wrong_use_of_calibrate(folder: Path, args: list[str], code: int, text: str) -> None:
    Path("short").write_text("the cat.\n\na dog.\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = invoke(*CALIBRATE, *args)
    assert isinstance(result.exception, NmtError), (result.exception, result.output)
    assert (result.exception.exit_code, result.stdout) == (code, "")
    assert text in str(result.exception)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--confidence"], 2, "--confidence needs --json"),
        (["--confidence", "--nbest", "2"], 2, "--confidence needs --json"),
        (["--json", "--calibration", "own.json"], 2, "--calibration needs --confidence"),
        (
            ["--json", "--confidence", "--calibration", "nowhere"],
            1,
            "there is no calibration at 'nowhere': expected a file of nmt calibrate.",
        ),
        (["--json", "--confidence", "--calibration", "in"], 1, "'in' is damaged: it is not JSON"),
        (
            ["--json", "--confidence", "--calibration", "length.json", "--output", "length.json"],
            2,
            "would replace its own input 'length.json'",
        ),
    ],
)
def test_wrong_use_of_translate(args: list[str], code: int, text: str) -> None:
    Path("length.json").write_bytes(
        to_json(Calibration(format_version=2, lines=1, intercept=0.0, coefficients={"length": 1.0}))
    )
    result = invoke(*TRANSLATE, *args)
    assert isinstance(result.exception, NmtError), (result.exception, result.output)
    assert (result.exception.exit_code, result.stdout) == (code, "")
    assert text in str(result.exception)


def test_the_command_is_registered() -> None:
    result = CliRunner().invoke(command_line.app, ["calibrate", "--help"])
    assert result.exit_code == 0
    assert "--ref" in result.stdout
