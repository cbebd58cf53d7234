"""`nmt export` in a process of its own, and its faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import forked
import pytest

from nmt_cli.cli import app
from nmt_cli.export import huggingface
from nmt_cli.export.target import Trained


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_export_tells_what_was_proven_and_what_differs(to: str, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(trained)
    done = forked.run(tmp_path, "export", run, "--to", to, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode()
    lines = done.stderr.decode().splitlines()
    assert lines[0] == f"model: {run / 'best'}"
    assert lines[1].startswith(f"wrote {tmp_path / 'out'}: {to}, ")
    assert "proven equal on 6" in lines[2]
    assert "same token ids, same greedy output" in lines[2]
    assert "logits " in lines[2]
    assert "length_penalty = 0.5 comes nearest to ((5 + |Y|) / 6)^0.6" in lines[3]
    assert "each line's length + 12" in lines[3]
    assert lines[4] == f"next: see {tmp_path / 'out' / 'README.md'}"
    assert len(lines) == 5


def failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, *arguments: str | Path) -> str:
    """What the command says when it ends with `code`; in this process, which has loaded the libraries already."""
    monkeypatch.setattr(sys, "argv", ["nmt", "export", *map(str, arguments)])
    assert app.run() == code
    said = capsys.readouterr()
    assert said.out == ""
    return " ".join(said.err.split())


def test_faults_have_a_name_and_an_exit_code(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert "no model at 'nowhere'" in failed(monkeypatch, capsys, 1, "nowhere", "--to", "ctranslate2", "--out", out)
    message = failed(monkeypatch, capsys, 2, trained, "--to", "ctranslate", "--out", out)
    assert "--to 'ctranslate': expected ctranslate2 or huggingface. Did you mean 'ctranslate2'?" in message
    assert "would replace its own input" in failed(monkeypatch, capsys, 2, trained, "--to", "ctranslate2", "--out", trained)
    assert "Missing option '--out'" in failed(monkeypatch, capsys, 2, trained, "--to", "ctranslate2")
    assert not out.exists()


def test_a_difference_ends_with_code_1(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short: None
) -> None:
    order = huggingface.feature_order

    def turned(config: Any) -> Any:
        return order(config).flip(0)

    write = huggingface.write

    def spoil(trained: Trained, folder: Path) -> None:
        monkeypatch.setattr(huggingface, "feature_order", turned)
        write(trained, folder)
        monkeypatch.setattr(huggingface, "feature_order", order)

    monkeypatch.setattr(huggingface, "write", spoil)
    said = failed(monkeypatch, capsys, 1, trained, "--to", "huggingface", "--out", tmp_path / "out")
    assert "is not equal to the model: sentence" in said
    assert "proven" not in said
    assert (tmp_path / "out" / "model.safetensors").is_file()
