"""What the shell is answered after Tab."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.cli.app import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("runs/demo/checkpoints", "runs/other", "recipes", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("recipes/mine.toml", "recipes/notes.txt", "mine.toml"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nmt tran", ["translate"]),
        ("nmt impo", ["import"]),
        ("nmt train multi30k_en_de", ["multi30k_en_de", "multi30k_en_de_tok"]),
        ("nmt train mi", ["mine.toml"]),
        ("nmt preprocess recipes/", ["recipes/mine.toml"]),
        ("nmt translate --model ", ["runs/demo/", "runs/other/"]),
        ("nmt translate -m runs/d", ["runs/demo/"]),
        ("nmt average runs/demo/", ["runs/demo/checkpoints/"]),
        ("nmt export nowhere/", []),
    ],
    ids=str,
)
def test_completion(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, expected: list[str]
) -> None:
    monkeypatch.chdir(folder)
    number = len(line.split(" ")) - 1
    for name, value in {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        run()
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, expected)
