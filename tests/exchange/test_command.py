"""`nmt export` in a process of its own, and its faults."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from pathlib import Path

import forked
import pytest
import torch

from nmt_cli.cli import app
from nmt_cli.exchange import huggingface, huggingface_reader
from nmt_cli.exchange.exporter import Exporter, SourceModel
from nmt_cli.registry import EXPORTERS


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_export_reports_what_was_verified_and_what_differs(to: str, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(trained)
    done = forked.run(tmp_path, "export", run, "--to", to, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode()
    lines = done.stderr.decode().splitlines()
    assert lines[0] == f"model: {run / 'best'}"
    assert lines[1].startswith(f"wrote {tmp_path / 'out'}: {to}, ")
    assert "verified equal on 6" in lines[2]
    assert "same token ids, same greedy output" in lines[2]
    assert "logits " in lines[2]
    assert "length_penalty = 0.5 is nearest to ((5 + |Y|) / 6)^0.6" in lines[3]
    assert "each line's length + 12" in lines[3]
    assert lines[4] == f"how to use it: {tmp_path / 'out' / 'README.md'}"
    assert len(lines) == 5


def failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, *arguments: str | Path
) -> str:
    """What the command says when it ends with `code`; in this process, which has loaded the libraries already."""
    monkeypatch.setattr(sys, "argv", ["nmt", "export", *map(str, arguments)])
    assert app.run() == code
    said = capsys.readouterr()
    assert said.out == ""
    return " ".join(said.err.split())


def test_faults_have_a_name_and_an_exit_code(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert "no model at 'nowhere'" in failed(monkeypatch, capsys, 1, "nowhere", "--to", "ctranslate2", "--out", out)
    message = failed(monkeypatch, capsys, 2, trained, "--to", "ctranslate", "--out", out)
    assert (
        "--to 'ctranslate': expected ctranslate2, huggingface, marian or argos. Did you mean 'ctranslate2'?" in message
    )
    assert "would replace its own input" in failed(
        monkeypatch, capsys, 2, trained, "--to", "ctranslate2", "--out", trained
    )
    assert "Missing option '--out'" in failed(monkeypatch, capsys, 2, trained, "--to", "ctranslate2")
    assert not out.exists()


def _write_spoiled(source_model: SourceModel, folder: Path) -> None:
    """As Hugging Face's exporter, of a model whose embeddings have changed."""
    model = copy.deepcopy(source_model.model)
    with torch.no_grad():
        model.matrix("target")[:, 0] += 1
    huggingface.write(replace(source_model, model=model), folder)


SPOILED = Exporter(huggingface.check, _write_spoiled, huggingface_reader.HuggingFaceReader)


def test_a_difference_ends_with_code_1(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short: None
) -> None:
    monkeypatch.setitem(EXPORTERS, "huggingface", f"{__name__}:SPOILED")
    said = failed(monkeypatch, capsys, 1, trained, "--to", "huggingface", "--out", tmp_path / "out")
    assert "is not equal to the model: sentence" in said
    assert "verified" not in said
    assert (tmp_path / "out" / "model.safetensors").is_file()
