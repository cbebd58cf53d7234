"""Validation's BLEU: of which lines, with which tokenizer, and which scores may be compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from shared import TINY

import nmt_cli as nmt
from nmt_cli.errors import NmtError

CHARACTERS = "天地人山水火木金土日月星风云雨雪"


def chinese(lines: int) -> list[str]:
    return ["".join(CHARACTERS[(i * k + i // 7) % 16] for k in range(1, 9)) + "。" for i in range(lines)]


def written(folder: Path, lines: list[str], language: str) -> Path:
    """A recipe, its text and its shards, in `folder`, the working directory."""
    (folder / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recipe = TINY.replace("[data]", f'[data]\ntarget_language = "{language}"') + 'best_metric = "bleu"\n'
    (folder / "mine.toml").write_text(recipe, encoding="utf-8")
    nmt.preprocess("mine.toml")
    return folder


@pytest.fixture
def recipe(workdir: Path) -> Path:
    return written(workdir, chinese(60), "zh")


def validations(folder: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "runs/mine/metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["type"] == "valid"]


def log(folder: Path) -> str:
    return (folder / "runs/mine/train.log").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "language", "tokenizer"),
    [
        (chinese(60), "target", "zh"),
        (["ฉันอ่านหนังสือ", "เขาไปตลาด"] * 30, "th", "char"),
        (["the small dog sleeps", "a big cat sees it"] * 30, "de", "13a"),
    ],
)
def test_the_tokenizer_fits_the_language_and_stands_beside_the_score(
    workdir: Path, lines: list[str], language: str, tokenizer: str
) -> None:
    folder = written(workdir, lines, language)
    nmt.train("mine.toml")
    assert f"chrF and BLEU of all 60 lines (tokenizer {tokenizer})" in log(folder)
    assert f"({tokenizer})" in log(folder)
    for record in validations(folder):
        assert f"|tok:{tokenizer}|" in record["bleu_signature"]
        assert record["bleu_sentences"] == record["bleu_of_sentences"] == 60


@pytest.mark.slow
def test_of_long_text_lines_at_even_distances_are_translated(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nmt.train("mine.toml", overrides=["train.valid_bleu_sentences=20", "train.valid_samples=20"])
    assert "BLEU of 20 of 60 lines" in log(recipe)
    assert [validations(recipe)[0][key] for key in ("bleu_sentences", "bleu_of_sentences")] == [20, 60]
    text = chinese(60)
    first = log(recipe).split("valid at 1 ")[1].split("valid at 2 ")[0]
    assert [line.split()[-1] for line in first.splitlines() if " reference " in line] == text[::3]
    shown = [line.split()[-1] for line in capsys.readouterr().err.splitlines() if " reference " in line]
    assert shown == [text[0]] * 2  # one for each validation


@pytest.mark.slow
def test_scores_of_another_measure_do_not_count(recipe: Path) -> None:
    """A resumed run may change the tokenizer: the best checkpoint is then the best by the new one."""
    nmt.train("mine.toml", overrides=["train.valid_bleu_tokenizer=none", "train.updates=1"])
    assert "|tok:none|" in validations(recipe)[0]["bleu_signature"]
    nmt.train("mine.toml", overrides=["train.updates=2"])
    assert "BLEU is measured in another way from here on: earlier scores do not count" in log(recipe)
    assert (recipe / "runs/mine/best").resolve().name == "step-00000002"
    assert log(recipe).count("best so far") == 2


def test_older_shards_keep_their_rule_and_their_run_resumes(recipe: Path) -> None:
    """The recipe does not name data.normalization: its default was nmt_nfkc when these shards were made."""
    older = ["data.normalization=nmt_nfkc"]
    nmt.preprocess("mine.toml", overrides=older, force=True)
    nmt.train("mine.toml", overrides=[*older, "train.updates=1"])
    nmt.train("mine.toml")
    assert not nmt.preprocess("mine.toml").fresh
    stored = json.loads((recipe / "runs/mine/last/config.json").read_text(encoding="utf-8"))
    assert stored["recipe"]["data"]["normalization"] == "nmt_nfkc"
    assert validations(recipe)[-1]["update"] == 2
    with pytest.raises(NmtError, match=r"data\.normalization: was 'nmt_nfkc', is 'nfc'"):
        nmt.preprocess("mine.toml", overrides=["data.normalization=nfc"])
