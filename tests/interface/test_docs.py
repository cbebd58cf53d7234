"""The examples of docs/python.md run, one after another, and print nothing that is empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from untrained import write_untrained, write_untrained_parser

DOCS = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL) if DOCS.exists() else []


@pytest.mark.skipif(not EXAMPLES, reason="docs/python.md is not here")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_untrained(tmp_path / "runs" / "demo", beam=8)
    write_untrained_parser(tmp_path / "runs" / "gum_parsing", "tags")
    (tmp_path / "input.txt").write_text("the cat sees a dog.\n\nthe small house.\n", encoding="utf-8")
    names: dict[str, object] = {}
    threads = torch.get_num_threads()
    ran = 0
    for example in EXAMPLES:
        if "nmt.train(" in example:
            example = example.replace('"train.updates": 100', '"train.updates": 2').replace(
                '"train.valid_every": 50', '"train.valid_every": 2'
            )
            example = example.replace("nmt.train(", "nmt.train(run='run', device='cpu', threads=1, recipe=").replace(
                "nmt.average(run.path", "nmt.average('run'"
            )
            example = example.replace(
                "run = nmt",
                'OVERRIDES = {"train.batch_tokens": 256, "model.encoder_layers": 1, "model.decoder_layers": 1}\nrun = nmt',
            )
            example = example.replace('"train.updates": 2,', '**OVERRIDES, "train.updates": 2, "train.log_every": 1,')
        exec(compile(example, "docs/python.md", "exec"), names)
        assert capsys.readouterr().out.strip()
        ran += 1
    torch.set_num_threads(threads)
    assert ran == len(EXAMPLES) >= 8
