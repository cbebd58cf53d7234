"""What the shell is answered after Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


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
def test_completion(folder: Path, line: str, expected: list[str]) -> None:
    number = len(line.split(" ")) - 1
    environment = {**os.environ, "_NMT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}
    done = subprocess.run(
        [sys.executable, "-m", "nmt_cli"],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == expected
